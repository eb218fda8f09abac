"""Trajectories to be read: what each turn showed, wrote and remembered, and which are kept."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import traces
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.metrics import find_golds
from mem_agent.hooks.sample import Record, Sample, write_record
from mem_agent.hooks.traces import Teller
from mem_agent.rollout_client import Dialect, Endpoint, close_clients
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.scripted import QUESTION, VOCABULARY, read
from mem_agent.tests.helpers.tiny_tokenizer import encode
from mem_agent.traces.trace import Trace, TraceDocument, read_traces, trace_files

TELLER = Teller(VOCABULARY)
UPDATE = "<update>{}</update><recall>{}</recall>"


def trace_of(config, sample, record, **known):
    return TELLER.trace(config, sample, record, id="1", **known)


def sample_of(run, golds=("red",)):
    done = run.trajectory
    memories = find_golds(done.memories, VOCABULARY.decode, golds, keep=True)
    recalled = [VOCABULARY.decode(one.recalled) for one in done.turns]
    record = Record.of_trajectory(done, memories=tuple(memories), recalled=recalled, task="qa")
    return write_record(Sample(prompt=QUESTION, metadata={"ground_truth": list(golds)}), record, done.answer, [])


def told(replies, chunks=3, **settings):
    sample = sample_of(read(replies, chunks, **settings))
    record = Record.of(sample)
    return TELLER.document([record]), trace_of(Config(agent=settings.get("agent", "memagent")), sample, record)


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


# --- which are kept -----------------------------------------------------------------------------------------------

SETTINGS = {"mem_chunk_tokens": 4, "mem_max_memory": 8, "mem_max_final": 16}


RIGHT, WRONG = [encode("m"), encode("n"), encode("\\boxed{red}")], [encode("m"), encode("n"), encode("\\boxed{blue}")]


def sampled(checkpoint, folder, groups=3, siblings=2, **settings):
    """Args and samples of one rollout, the first of each group right, as a host has them before its log hook."""
    config = Config(**SETTINGS | {"save_path": str(folder)} | settings)

    async def main():
        router = FakeRouter([reply for n in range(groups * siblings) for reply in (WRONG if n % siblings else RIGHT)])
        async with running(router):
            endpoint = Endpoint(Dialect.VLLM, f"http://127.0.0.1:{router.port}")
            args = SimpleNamespace(
                hf_checkpoint=checkpoint, mem_agent=config, mem_agent_endpoint=endpoint, save=str(folder)
            )
            samples = []
            for number in range(groups * siblings):
                metadata = {"context": "QWZRXYUJ", "ground_truth": ["red"]}
                one = Sample("who?", metadata=metadata, group_index=number // siblings, index=number)
                one = await rollout.generate(args, one, {"temperature": 1.0, "seed": 1})
                one.reward = await rollout.reward_func(args, one)
                samples.append(one)
            await close_clients()
        return args, samples

    return asyncio.run(main())


def logged(number, args, samples):
    """What a host does with a rollout; what the log hook says of keeping."""
    extra = {}
    rollout.log_rollout(number, args, samples, extra, 1.0)
    custom_convert(args, samples)
    traces.wait()
    return extra.get("rollout/memory/keeping_failed", 0)


def traces_of(folder, name):
    records = list(read_traces(folder / "trajectories" / f"{name}.jsonl"))
    return [one for one in records if isinstance(one, TraceDocument)], [r for r in records if isinstance(r, Trace)]


def test_a_rollout_is_kept_with_what_was_trained(checkpoint, tmp_path):
    args, samples = sampled(checkpoint, tmp_path, agent_args="turn_cost=0.5")
    assert logged(12, args, samples) == 0
    (document,), kept = traces_of(tmp_path, "rollout_000012")
    assert "".join(document.sections) == "QWZRXYUJ" and {trace.document for trace in kept} == {document.id}
    first, second = sorted((t for t in kept if t.group == "0"), key=lambda trace: trace.sample)
    assert (first.id, first.rollout, first.prediction, second.prediction) == ("12-0-0", 12, "red", "blue")
    assert first.reward == samples[0].reward == 0.5 and first.reward_parts == {"answer": 1.0, "turn_cost": -0.5}
    assert (first.accuracy, second.reward, first.advantage, second.advantage) == (1.0, 0.0, 0.25, -0.25)
    assert {turn.advantage for turn in first.turns} == {0.25} and first.question == "who?" and first.golds == ("red",)


def test_older_rollouts_are_thinned_and_a_failure_is_counted(checkpoint, tmp_path):
    args, samples = sampled(checkpoint, tmp_path)
    assert [logged(number, args, samples) for number in range(2)] == [0, 0]
    assert [len(traces_of(tmp_path, f"rollout_{number:06d}")[1]) for number in range(2)] == [4, 6]
    (tmp_path / "trajectories").rename(tmp_path / "moved")
    (tmp_path / "trajectories").write_text("in the way")
    assert [logged(number, args, samples) for number in range(2, 4)] == [0, 1]


def test_rollouts_and_evaluations_keep_within_their_bounds(checkpoint, tmp_path, monkeypatch):
    args, samples = sampled(checkpoint, tmp_path)
    monkeypatch.setattr(traces, "KEPT_BYTES", 20_000)
    for number in range(4):
        logged(number, args, samples)
    assert 0 < sum(path.stat().st_size for path in trace_files(tmp_path)) <= 20_000
    args.mem_agent = args.mem_agent.replace(num_rollout=10, eval_interval=5)
    traces.keep_evaluation(HostArgs.of(args), 1, {"a": samples, "b": samples})
    traces.wait()
    assert sum(path.stat().st_size for path in (tmp_path / "trajectories").glob("eval_*")) <= 10_000


def test_an_evaluation_in_a_host_is_kept(checkpoint, tmp_path):
    args, samples = sampled(checkpoint, tmp_path, groups=2)
    args.n_samples_per_eval_prompt = 2
    assert rollout.log_eval(12, args, {"h q/a": {"samples": samples}, "bare": {"rewards": [1.0]}}, {}) is False
    traces.wait()
    documents, kept = traces_of(tmp_path, "eval_000012_h_q_a")
    assert [(t.question_id, t.sample, t.prediction, t.reward) for t in kept] == [
        ("0", 0, "red", 1.0), ("0", 1, "blue", 0.0), ("1", 0, "red", 1.0), ("1", 1, "blue", 0.0)
    ]
    assert {t.document for t in kept} == {document.id for document in documents}
    assert {t.advantage for t in kept} == {None} and len({t.id for t in kept}) == 4
