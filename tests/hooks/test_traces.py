"""Trajectories to be read: what each turn showed, wrote and remembered, which are kept, and the lines on disk."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from mem_agent import rollout
from mem_agent.config import Config
from mem_agent.custom_convert import custom_convert
from mem_agent.evaluation.questions import KeptTrajectories
from mem_agent.hooks import traces
from mem_agent.hooks.metrics import find_golds
from mem_agent.hooks.sample import Record, Sample, write_record
from mem_agent.hooks.traces import Trace, TraceError, document_of, read_traces, trace_of
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.helpers.scripted import QUESTION, VOCABULARY, read
from mem_agent.tests.helpers.tiny_tokenizer import encode
from mem_agent.tests.hooks.conftest import SETTINGS, rewarded, sample

UPDATE = "<update>{}</update><recall>{}</recall>"
CASES = {
    "memagent": (["a", "b", "c", "x"], "",
                 [("QW", "", "", "a"), ("ZR", "a", "", "b"), ("XY", "b", "", "c"), ("", "c", "", "c")]),
    "gated": (["update\na", "skip", "finish", "x"], "",
              [("QW", "", "", "a"), ("ZR", "a", "", "a"), ("XY", "a", "", "a"), ("", "a", "", "a")]),
    "parallel": (["a", "b", "a b", "a b c", "x"], "width=2",
                 [("QW", "", "", ""), ("ZR", "", "", ""), ("", "", "", "a b"), ("XY", "a b", "", "a b c"),
                  ("", "a b c", "", "a b c")]),
    "rememr1": ([UPDATE.format("red key", ""), UPDATE.format("b", "red"), UPDATE.format("c", ""), "x"], "",
                [("QW", "", "", "red key"), ("ZR", "red key", "", "b"), ("XY", "b", "red key", "c"),
                 ("", "c", "", "c")]),
}


@pytest.mark.parametrize("agent", CASES)
def test_a_turn_tells_what_it_was_shown_and_what_was_remembered_after_it(agent):
    replies, args, expected = CASES[agent]
    done = read(replies, 3, agent=agent, agent_args=args).trajectory
    memories = find_golds(done.memories, VOCABULARY.decode, ("red",), keep=True)
    record = Record.of_trajectory(done, memories=tuple(memories), task="qa")
    written = write_record(Sample(prompt=QUESTION), record, done.answer)
    document = document_of(VOCABULARY, [record])
    trace = trace_of(VOCABULARY, Config(agent=agent), written, record, id="1")
    shown = ["".join(document.sections[number] for number in turn.sections) for turn in trace.turns]
    told = [(turn.shown_memory, turn.recalled, turn.memory) for turn in trace.turns]
    assert [(section, *turn) for section, turn in zip(shown, told, strict=True)] == expected
    assert [turn.reply for turn in trace.turns] == replies and not any(turn.prompt for turn in trace.turns)
    assert trace.response == "x" and trace.agent == agent


# --- rollouts -------------------------------------------------------------------------------------------------------


def kept(run):
    """Of each rollout's file the groups that it has, in order."""
    files = {path: [one.group for one in read_traces(path) if one.kind == "trajectory"]
             for path in traces.kept_files(run)}
    return {int(path.stem.removeprefix("rollout_")): list(dict.fromkeys(found)) for path, found in files.items()}


def test_a_rollout_is_kept_with_what_was_trained_and_later_thinned(run, model_folder, tmp_path, caplog):
    """Three groups, the first of each of their two trajectories right."""
    args = SimpleNamespace(mem_agent=SETTINGS | {"AGENT_ARGS": "turn_cost=0.5"}, hf_checkpoint=str(model_folder),
                           save=str(tmp_path))
    samples = []
    for number in range(6):
        final = encode("\\boxed{blue}" if number % 2 else "\\boxed{red}")
        one = run(FakeRouter([encode("m"), encode("n"), final]), sample(index=number, group_index=number // 2))
        one.reward = rewarded(one, AGENT_ARGS="turn_cost=0.5")
        samples.append(one)

    def logged(number):
        rollout.log_rollout(number, args, samples, {}, 1.0)
        custom_convert(args, samples)

    logged(12)
    document, first, second, *_ = read_traces(tmp_path / "trajectories" / "rollout_000012.jsonl")
    assert "".join(document.sections) == "QWZRXYUJ" and {first.document, second.document} == {document.id}
    assert (first.id, first.rollout, first.prediction, second.prediction) == ("12-0-0", 12, "red", "blue")
    assert first.reward == samples[0].reward == 0.5 and first.reward_parts == {"answer": 1.0, "turn_cost": -0.5}
    assert (first.accuracy, second.reward, first.advantage, second.advantage) == (1.0, 0.0, 0.25, -0.25)
    assert {turn.advantage for turn in first.turns} == {0.25} and first.question == "who?" and first.golds == ("red",)
    logged(13)
    assert kept(tmp_path) == {12: ["0", "1"], 13: ["0", "1", "2"]}
    (tmp_path / "trajectories").rename(tmp_path / "moved")
    (tmp_path / "trajectories").write_text("in the way")
    logged(14)
    assert "rollout 14: its trajectories are not kept" in caplog.text


def groups(*names, text=""):
    return [[Trace(id=f"{name}-{number}", group=name, response=text) for number in range(2)] for name in names]


def test_the_oldest_go_first_and_of_a_run_that_was_set_back_one_line_is_kept(tmp_path):
    for number in range(6):
        traces.write_rollout(tmp_path, number, groups("a", "b", text="x" * 1000), 1, 10**4)  # of some 3 kB a group
        assert sum(path.stat().st_size for path in traces.kept_files(tmp_path)) <= 10**4
    assert kept(tmp_path) == {4: ["a"], 5: ["a"]}
    traces.write_rollout(tmp_path, 3, groups("c", "d"), 1, 10**9)
    assert kept(tmp_path) == {3: ["c", "d"]}


# --- evaluations, lines ---------------------------------------------------------------------------------------------


def test_a_continued_evaluation_goes_on_with_the_same_file_within_its_bound(tmp_path):
    done = read(["a", "x"], 1).trajectory
    record = Record.of_trajectory(done, memories=tuple(find_golds(done.memories, VOCABULARY.decode, ())))
    answered = write_record(Sample(prompt=QUESTION), record, done.answer)
    row = {"length": "50", "sample": 0, "pred": "x", "headline": "em", "em": 0.0, "failure_message": None}

    def written(*numbers, bound=10**6):
        kept = KeptTrajectories(tmp_path, VOCABULARY, Config(), bound)
        for number in numbers:
            asyncio.run(kept.write(answered, record, row | {"_id": str(number)}))

    def ids():
        return [one.id if one.kind == "trajectory" else "document" for one in read_traces(path)]

    written(0, 1)
    (path,) = traces.kept_files(tmp_path)
    # What a killed run leaves of a line: its end is missing.
    path.write_bytes(path.read_bytes() + b'{"kind": "document", "id": "e", "sections": []}')
    assert ids() == ["document", "50-0-0", "50-1-0"]
    written(2)
    assert ids() == ["document", "50-0-0", "50-1-0", "document", "50-2-0"]
    written(*range(3, 93), bound=9_000)
    assert 5 < len(ids()) < 90 and path.stat().st_size <= 9_000


LINES = b'''{"kind":"document","id":"4f78","sections":["tool axe.","animal dog."]}
{"kind":"trajectory","id":"3-24-0","rollout":3,"length":null,"question_id":"24","group":"24","sample":0,\
"question":"Which animal?","golds":["dog"],"document":"4f78","task":"qa","agent":"memagent","weight_version":"3",\
"response":"none","prediction":"none","outcome":"completed","failure":null,"failure_message":null,"reward":0.0,\
"reward_parts":{"answer":0.0},"accuracy":null,"scores":{},"advantage":-0.354,"counts":{"turns":2.0},"turns":[\
{"kind":"memory","sections":[0],"shown_memory":"","recalled":"","prompt":"","reply":"tool axe","memory":"tool axe",\
"gold":false,"stop":"stop","prompt_tokens":63,"cached_tokens":32,"rewards":{},"advantage":-0.354,\
"pieces":["tool"," axe",""],"log_probs":[-2.5354,null,0.0]}]}
'''


def test_lines_are_read_and_written_alike_and_what_is_no_trace_is_named(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(LINES)
    document, trace = read_traces(tmp_path / "x.jsonl")
    assert document.sections == ("tool axe.", "animal dog.") and trace.turns[0].log_probs == (-2.5354, None, 0.0)
    assert traces.line_of(document) + traces.line_of(trace) == LINES
    given_by_user = Trace(id="x", reward=np.float32(0.5), scores={"mine": np.bool_(True)})
    assert traces.line_of(given_by_user) == traces.line_of(Trace(id="x", reward=0.5, scores={"mine": True}))
    (tmp_path / "x.jsonl").write_bytes(LINES + b'{"kind": "trajectory", "id": "1", "turns": "x"}\n')
    with pytest.raises(TraceError, match=r"x\.jsonl: line 3 .*turns"):
        list(read_traces(tmp_path / "x.jsonl"))
