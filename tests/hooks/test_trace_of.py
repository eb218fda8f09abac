"""Samples as traces: what each agent's turns showed, wrote and remembered, and one line as it stands on disk."""


import pytest

from mem_agent.agents.records import StopReason
from mem_agent.config import Config
from mem_agent.hooks.metrics import find_golds
from mem_agent.hooks.record import Record, write_record
from mem_agent.hooks.sample import Sample
from mem_agent.hooks.trace_of import Teller
from mem_agent.tests.helpers.samples import trajectory
from mem_agent.tests.helpers.scripted import QUESTION, SECTIONS, VOCABULARY, read
from mem_agent.traces.trace import line_of

TELLER = Teller(VOCABULARY)
UPDATE = "<update>{}</update><recall>{}</recall>"


def trace_of(config, sample, record, **known):
    return TELLER.trace(config, sample, record, id="1", **known)


def sample_of(run, golds=("red",)):
    done = run.trajectory
    memories = find_golds(done.memories, VOCABULARY.decode, golds, keep=True)
    recalled = [VOCABULARY.decode(one.recalled) for one in done.turns]
    record = Record.of_trajectory(done, memories, recalled=recalled, task="qa")
    return write_record(Sample(prompt=QUESTION, metadata={"ground_truth": list(golds)}), record, done)


def told(replies, chunks=3, **settings):
    sample = sample_of(read(replies, chunks, **settings))
    record = Record.of(sample)
    return TELLER.document([record]), trace_of(Config(agent=settings.get("agent", "memagent")), sample, record)


CASES = {
    "memagent": (["a", "b", "c", "x"], {},
                 [("QW", "", "", "a"), ("ZR", "a", "", "b"), ("XY", "b", "", "c"), ("", "c", "", "c")]),
    "gated": (["update\na", "skip", "finish", "x"], {"agent": "gated"},
              [("QW", "", "", "a"), ("ZR", "a", "", "a"), ("XY", "a", "", "a"), ("", "a", "", "a")]),
    "parallel": (["a", "b", "a b", "a b c", "x"], {"agent": "parallel", "mem_parallel": 2},
                 [("QW", "", "", ""), ("ZR", "", "", ""), ("", "", "", "a b"), ("XY", "a b", "", "a b c"),
                  ("", "a b c", "", "a b c")]),
    "rememr1": ([UPDATE.format("red key", ""), UPDATE.format("b", "red"), UPDATE.format("c", ""), "x"],
                {"agent": "rememr1"},
                [("QW", "", "", "red key"), ("ZR", "red key", "", "b"), ("XY", "b", "red key", "c"),
                 ("", "c", "", "c")]),
}


@pytest.mark.parametrize("replies,settings,expected", CASES.values(), ids=CASES)
def test_a_turn_tells_what_it_was_shown_and_what_was_remembered_after_it(replies, settings, expected):
    document, trace = told(replies, **settings)
    shown = ["".join(document.sections[n] for n in turn.sections) for turn in trace.turns]
    assert [
        (section, turn.shown_memory, turn.recalled, turn.memory)
        for section, turn in zip(shown, trace.turns, strict=True)
    ] == expected
    assert [turn.reply for turn in trace.turns] == replies and not any(turn.prompt for turn in trace.turns)
    assert trace.response == "x" and trace.agent == settings.get("agent", "memagent")


def test_a_section_that_was_not_read_is_empty_unless_a_sibling_read_it():
    short, long = (Record.of(sample_of(read(replies, 3, agent="gated")))
                   for replies in (["update\na", "finish", "x"], ["update\na", "skip", "skip", "x"]))
    assert TELLER.document([short]).sections == ("QW", "ZR", "")
    assert TELLER.document([short, long]).sections == ("QW", "ZR", "XY")
    assert TELLER.document([short, long]).id == TELLER.document([long]).id != TELLER.document([short]).id
    assert TELLER.document([Record.of(trajectory())]) is None


def test_a_turn_in_words_of_its_own_is_kept_with_its_prompt():
    document, trace = told(["x"], 0, agent="chat")
    (only,) = trace.turns
    assert document is None and only.prompt.startswith(f"user\n{QUESTION}\nassistant\n")


def test_a_trajectory_that_was_broken_off_tells_the_memories_it_had():
    _, trace = told(["a", ("part", StopReason.ABORT)])
    told_of = [(turn.reply, turn.shown_memory, turn.memory) for turn in trace.turns]
    assert told_of == [("a", "", "a"), ("part", "a", "")]
    assert (trace.outcome, trace.turns[-1].stop) == ("aborted", "abort")


def test_thinking_is_part_of_the_reply_and_of_no_memory():
    _, trace = told([VOCABULARY.encode_markup("<think>hm</think>a"), "x"], 1)
    assert (trace.turns[0].reply, trace.turns[0].memory) == ("<think>hm</think>a", "a")


def test_a_line_as_it_stands_on_disk():
    document, trace = told(["red", "\\boxed{red}"], 1, mem_max_memory=8)
    assert SECTIONS.startswith(document.sections[0])
    assert line_of(document) == b'{"kind":"document","id":"%s","sections":["QW"]}\n' % document.id.encode()
    assert line_of(trace) == (
        b'{"kind":"trajectory","id":"1","rollout":null,"length":null,"question_id":"","group":"","sample":0,'
        b'"question":"Who, then?","golds":["red"],"document":null,"task":"qa","agent":"memagent","weight_version":"",'
        b'"response":"\\\\boxed{red}","prediction":"","outcome":"completed","failure":null,"failure_message":null,'
        b'"reward":null,"reward_parts":{},"accuracy":null,"scores":{},"advantage":null,"counts":{"chunks":1,'
        b'"chunks_read":1,"document_tokens":2,"dropped_tokens":0,"memory_tokens":2,"empty_updates":0,'
        b'"truncated_memories":0,"turns":2,"rounds":2,"prompt_tokens":364,"response_tokens":10},"turns":['
        b'{"kind":"memory","sections":[0],"shown_memory":"","recalled":"","prompt":"","reply":"red","memory":"red",'
        b'"gold":true,"stop":"stop","prompt_tokens":251,"cached_tokens":null,"rewards":{},"advantage":null,'
        b'"pieces":["r","ed",""],"log_probs":[-0.5,-0.5,-0.5]},'
        b'{"kind":"final","sections":[],"shown_memory":"red","recalled":"","prompt":"","reply":"\\\\boxed{red}",'
        b'"memory":"red","gold":true,"stop":"stop","prompt_tokens":113,"cached_tokens":null,"rewards":{},'
        b'"advantage":null,"pieces":["\\\\","boxed","{","r","ed","}",""],'
        b'"log_probs":[-0.5,-0.5,-0.5,-0.5,-0.5,-0.5,-0.5]}]}\n'
    )
