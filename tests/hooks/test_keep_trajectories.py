"""What hosts sample is kept: which rollout, with which advantages, and nothing of it ends or changes a rollout."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.client.engine_api import Dialect, Endpoint
from mem_agent.client.rollout_client import close_clients
from mem_agent.config import Config
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import keep_trajectories
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.sample import Sample
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.samples import foreign
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer
from mem_agent.traces.read_traces import read_traces, trace_files
from mem_agent.traces.trace import Trace, TraceDocument

SETTINGS = {"mem_chunk_tokens": 4, "mem_max_memory": 8, "mem_max_final": 16, "mem_max_retries": 0}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(path)
    return str(path)


def encode(text):
    return make_tokenizer().encode(text, add_special_tokens=False) + [make_tokenizer().eos_token_id]


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
    """What a host does with a rollout; the log hook's metrics."""
    extra = {}
    rollout.log_rollout(number, args, samples, extra, 1.0)
    custom_convert(args, samples)
    return {name.rpartition("/")[2]: value for name, value in extra.items() if "kept" in name or "keeping" in name}


def finished(args):
    return keep_trajectories.take(HostArgs.of(args))


def traces_of(folder, number):
    records = list(read_traces(folder / "trajectories" / f"rollout_{number:06d}.jsonl"))
    return [one for one in records if isinstance(one, TraceDocument)], [r for r in records if isinstance(r, Trace)]


def test_a_rollout_is_kept_with_what_was_trained(checkpoint, tmp_path):
    args, samples = sampled(checkpoint, tmp_path, mem_turn_cost=0.5)
    assert logged(12, args, samples) == {}
    assert finished(args) == {}
    (document,), traces = traces_of(tmp_path, 12)
    assert "".join(document.sections) == "QWZRXYUJ" and {trace.document for trace in traces} == {document.id}
    first, second = sorted((t for t in traces if t.group == "0"), key=lambda trace: trace.sample)
    assert (first.id, first.rollout, first.prediction, second.prediction) == ("12-0-0", 12, "red", "blue")
    assert first.reward == samples[0].reward == 0.5 and first.reward_parts == {"answer": 1.0, "turn_cost": -0.5}
    assert (first.accuracy, second.reward, first.advantage, second.advantage) == (1.0, 0.0, 0.25, -0.25)
    assert {turn.advantage for turn in first.turns} == {0.25} and first.question == "who?" and first.golds == ("red",)


def test_the_log_hook_tells_what_became_of_the_rollout_before(checkpoint, tmp_path):
    args, samples = sampled(checkpoint, tmp_path)
    assert logged(0, args, samples) == {} == logged(1, args, samples)
    finished(args)
    assert [len(traces_of(tmp_path, number)[1]) for number in range(2)] == [4, 6]
    (tmp_path / "trajectories").rename(tmp_path / "moved")
    (tmp_path / "trajectories").write_text("in the way")
    assert [logged(number, args, samples) for number in range(2, 4)] == [{}, {"keeping_failed": 1}]
    assert finished(args) == {"keeping_failed": 1} and finished(args) == {}


def test_what_is_not_trained_has_no_advantage(checkpoint, tmp_path):
    args, samples = sampled(checkpoint, tmp_path, 1, train_turns="final")
    samples[1].remove_sample = True
    logged(0, args, samples)
    finished(args)
    _, (kept, removed) = traces_of(tmp_path, 0)
    assert [turn.advantage for turn in kept.turns] == [None, None, 0.5]
    assert removed.advantage is None and [turn.advantage for turn in removed.turns] == [None] * 3


def test_failures_are_kept_and_samples_of_another_hook_are_not(checkpoint, tmp_path):
    args, samples = sampled(checkpoint, tmp_path, 1)
    failed = asyncio.run(rollout.generate(args, Sample(" ", group_index=0, index=9), {}))
    logged(0, args, [*samples, failed, foreign(index=10, group_index=5, rollout_log_probs=[-0.1])])
    finished(args)
    (*_, last) = traces = traces_of(tmp_path, 0)[1]
    assert len(traces) == 3
    assert (last.outcome, last.failure, last.reward, last.turns) == ("failed", "no_question", None, ())


@pytest.mark.parametrize("settings", [{"keep_trajectories": 0}, {"loss": "sft"}], ids=str)
def test_nothing_is_kept_where_nothing_is_to_be_or_nothing_was_sampled(checkpoint, tmp_path, settings):
    args, samples = sampled(checkpoint, tmp_path, 1, keep_trajectories=settings.get("keep_trajectories", 2))
    assert bool(samples[0].train_metadata["memories"][0]["text"]) == ("loss" in settings)
    args.mem_agent = Config(**SETTINGS | {"save_path": str(tmp_path)} | settings)
    keep_trajectories.begin(HostArgs.of(args), 0)
    custom_convert(args, samples)
    assert finished(args) == {} and not (tmp_path / "trajectories").exists()


def test_the_bound_holds(checkpoint, tmp_path, monkeypatch):
    args, samples = sampled(checkpoint, tmp_path)
    monkeypatch.setattr(Config, "keep_trajectories_bytes", property(lambda config: 20_000))
    for number in range(4):
        logged(number, args, samples)
    finished(args)
    assert 0 < sum(path.stat().st_size for path in trace_files(tmp_path)) <= 20_000
