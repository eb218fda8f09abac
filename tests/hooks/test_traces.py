"""Trajectories to be read: what each turn showed, wrote and remembered, which are kept, and the lines on disk."""

import asyncio
import errno
from types import SimpleNamespace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from mem_agent import rollout
from mem_agent.config import Config
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks.metrics import find_golds
from mem_agent.hooks.sample import Record, Sample, write_record
from mem_agent.hooks.traces import (
    EvaluationFiles,
    Teller,
    Trace,
    TraceDocument,
    TraceError,
    line_of,
    pieces_of,
    read_traces,
    trace_files,
    write_rollout,
)
from mem_agent.rollout_client import Dialect, Endpoint, close_clients
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.scripted import QUESTION, VOCABULARY, read
from mem_agent.tests.helpers.tiny_tokenizer import encode

UPDATE = "<update>{}</update><recall>{}</recall>"


def told(replies, **settings):
    """The document and the trace of a reading of three chunks."""
    done = read(replies, 3, **settings).trajectory
    memories = find_golds(done.memories, VOCABULARY.decode, ("red",), keep=True)
    record = Record.of_trajectory(done, memories=tuple(memories), task="qa")
    sample = write_record(Sample(prompt=QUESTION, metadata={"ground_truth": ["red"]}), record, done.answer, [])
    teller, config = Teller(VOCABULARY), Config(agent=settings.get("agent", "memagent"))
    return teller.document([record]), teller.trace(config, sample, record, id="1")


CASES = {
    "memagent": (["a", "b", "c", "x"], {},
                 [("QW", "", "", "a"), ("ZR", "a", "", "b"), ("XY", "b", "", "c"), ("", "c", "", "c")]),
    "gated": (["update\na", "skip", "finish", "x"], {"agent": "gated"},
              [("QW", "", "", "a"), ("ZR", "a", "", "a"), ("XY", "a", "", "a"), ("", "a", "", "a")]),
    "parallel": (["a", "b", "a b", "a b c", "x"], {"agent": "parallel", "agent_args": "width=2"},
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


# --- rollouts -------------------------------------------------------------------------------------------------------

RIGHT, WRONG = [encode("m"), encode("n"), encode("\\boxed{red}")], [encode("m"), encode("n"), encode("\\boxed{blue}")]


def sampled(checkpoint, folder, groups=3):
    """Args and samples of one rollout, the first of each group right, as a host has them before its log hook."""
    config = Config(mem_chunk_tokens=4, mem_max_memory=8, mem_max_final=16, agent_args="turn_cost=0.5",
                    save_path=str(folder))

    async def main():
        router = FakeRouter([reply for _ in range(groups) for reply in RIGHT + WRONG])
        async with running(router):
            endpoint = Endpoint(Dialect.VLLM, f"http://127.0.0.1:{router.port}")
            args = SimpleNamespace(
                hf_checkpoint=checkpoint, mem_agent=config, mem_agent_endpoint=endpoint, save=str(folder))
            samples = []
            for number in range(2 * groups):
                metadata = {"context": "QWZRXYUJ", "ground_truth": ["red"]}
                one = Sample("who?", metadata=metadata, group_index=number // 2, index=number)
                one = await rollout.generate(args, one, {"temperature": 1.0, "seed": 1})
                one.reward = await rollout.reward_func(args, one)
                samples.append(one)
            await close_clients()
        return args, samples

    return asyncio.run(main())


def test_a_rollout_is_kept_with_what_was_trained_and_later_thinned(checkpoint, tmp_path, caplog):
    args, samples = sampled(checkpoint, tmp_path)

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


def groups(*names, siblings=2, text=""):
    return [
        [TraceDocument(id="same", sections=("a",)),
         *(Trace(id=f"{name}-{n}", group=name, sample=n, response=text) for n in range(siblings))]
        for name in names
    ]


def kept(run):
    """Of each rollout's file the groups that it has, in order."""
    return {int(path.stem.removeprefix("rollout_")): list(dict.fromkeys(
        record.group for record in read_traces(path) if isinstance(record, Trace))) for path in trace_files(run)}


def test_of_a_run_that_was_set_back_one_line_is_kept(tmp_path):
    for number in range(6):
        write_rollout(tmp_path, number, groups("a", "b"), 1, 10**9)
    write_rollout(tmp_path, 3, groups("c", "d"), 1, 10**9)
    assert kept(tmp_path) == {0: ["a"], 1: ["a"], 2: ["a"], 3: ["c", "d"]}


@given(bound=st.integers(200, 20_000), most=st.integers(1, 3), sizes=st.lists(
    st.lists(st.integers(0, 400), min_size=1, max_size=4), min_size=1, max_size=6))
def test_the_bound_holds_and_the_oldest_go_first(bound, most, sizes, tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    for number, lengths in enumerate(sizes):
        write_rollout(run, number, [groups(str(n), text="x" * size)[0] for n, size in enumerate(lengths)], most, bound)
        assert sum(path.stat().st_size for path in trace_files(run)) <= bound
        found = kept(run)
        assert found[number] == [str(n) for n in range(len(found[number]))]
        assert [*found] == list(range(number + 1))[-len(found) :]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    write_rollout(tmp_path, 0, groups("a"), 1, 10**9)

    def breaks():
        yield from groups("b")
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in (0, 1):
        with pytest.raises(OSError, match="No space left"):
            write_rollout(tmp_path, number, breaks(), 1, 10**9)
    assert kept(tmp_path) == {0: ["a"]} and len(list((tmp_path / "trajectories").iterdir())) == 1


# --- evaluations ----------------------------------------------------------------------------------------------------

DOCUMENT = TraceDocument(id="d", sections=("Ann has", "silver."))


def written(folder, *numbers, bound=10**6, length="50"):
    files = EvaluationFiles(folder, bound)
    return [files.write(DOCUMENT, Trace(id=f"{length}-{n}-0", length=length, document="d")) for n in numbers]


@pytest.mark.parametrize("rest", [b"", b'{"kind": "traj', b'{"kind": "document", "id": "e", "sections": []}'])
def test_a_continued_evaluation_goes_on_with_the_same_file(tmp_path, rest):
    written(tmp_path, 0, 1)
    (path,) = trace_files(tmp_path)
    path.write_bytes(path.read_bytes() + rest)  # what a killed run left of a line
    assert [record.id for record in read_traces(path)] == ["d", "50-0-0", "50-1-0"]
    written(tmp_path, 2)
    assert [record.id for record in read_traces(path)] == ["d", "50-0-0", "50-1-0", "d", "50-2-0"]


def test_the_bound_holds_over_continued_evaluations(tmp_path):
    done = [*written(tmp_path, *range(9), bound=5_000), *written(tmp_path, *range(90), bound=5_000, length="200")]
    assert 9 < done.count(True) < 90
    assert 4_000 < sum(path.stat().st_size for path in trace_files(tmp_path)) <= 5_000


# --- lines ----------------------------------------------------------------------------------------------------------

LINES = b'''{"kind":"document","id":"4f78","sections":["tool axe.","animal dog."]}
{"kind":"trajectory","id":"3-24-0","rollout":3,"length":null,"question_id":"24","group":"24","sample":0,\
"question":"Which animal?","golds":["dog"],"document":"4f78","task":"qa","agent":"memagent","weight_version":"3",\
"response":"none","prediction":"none","outcome":"completed","failure":null,"failure_message":null,"reward":0.0,\
"reward_parts":{"answer":0.0},"accuracy":null,"scores":{},"advantage":-0.354,"counts":{"turns":2.0},"turns":[\
{"kind":"memory","sections":[0],"shown_memory":"","recalled":"","prompt":"","reply":"tool axe","memory":"tool axe",\
"gold":false,"stop":"stop","prompt_tokens":63,"cached_tokens":32,"rewards":{},"advantage":-0.354,\
"pieces":["tool"," axe",""],"log_probs":[-2.5354,null,0.0]}]}
'''


def test_lines_are_read_and_written_alike_and_numpys_numbers_are_plain(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(LINES)
    document, trace = read_traces(tmp_path / "x.jsonl")
    assert document.sections == ("tool axe.", "animal dog.") and trace.turns[0].log_probs == (-2.5354, None, 0.0)
    assert line_of(document) + line_of(trace) == LINES
    given_by_user = Trace(id="x", reward=np.float32(0.5), scores={"mine": np.bool_(True)})
    assert line_of(given_by_user) == line_of(Trace(id="x", reward=0.5, scores={"mine": True}))


@pytest.mark.parametrize(("line", "named"), [
    (b"{", ""), (b'{"kind":"x"}', ""), (b'{"kind":"trajectory"}', "id"),
    (orjson.dumps({"kind": "trajectory", "id": "1", "turns": "x"}), "turns"),
], ids=str)
def test_what_is_no_trace_is_named_by_file_line_and_field(tmp_path, line, named):
    (tmp_path / "x.jsonl").write_bytes(LINES + line + b"\n")
    with pytest.raises(TraceError, match=rf"x\.jsonl: line 3 .*\({named}"):
        list(read_traces(tmp_path / "x.jsonl"))


def sentencepiece():
    """A decoder that drops the blank of the first word, as Llama 2's."""
    words = {"▁red": 0, "▁key": 1, "s": 2, "<0xC3>": 3, "<0xBC>": 4, "▁": 5, "<unk>": 6}
    model = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    model.decoder = decoders.Sequence(steps)
    return model


def test_a_blank_stands_with_its_word_and_a_character_with_its_last_token():
    ids = [0, 5, 3, 4, 2, 1]
    assert pieces_of(sentencepiece(), ids, sentencepiece().decode(ids)) == ("red", " ", "", "ü", "s", " key")


@given(st.lists(st.integers(0, VOCABULARY.size + 5), max_size=60))
def test_the_pieces_of_any_tokens_are_their_text(ids):
    """Halves of characters, control tokens and padding of the vocabulary included."""
    whole = VOCABULARY.reply_text(ids)
    pieces = pieces_of(VOCABULARY.tokenizer.backend_tokenizer, ids, whole)
    assert "".join(pieces) == whole and len(pieces) == len(ids)
