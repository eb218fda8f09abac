"""The hooks as hosts call them: records written, failures typed and counted, abort, reward forms, contract calls."""

import asyncio
import importlib
import inspect
import sys
from collections import Counter
from types import ModuleType, SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.data.document_store import DocumentWriter
from mem_agent.hooks.sample import AllFailed, Record, Sample
from mem_agent.rollout_client import Dialect, close_clients
from mem_agent.tests.helpers import samples
from mem_agent.tests.helpers.fake_router import FakeRouter, log_probs_of, running, vllm_answer
from mem_agent.tests.helpers.tiny_tokenizer import encode

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 999}
SETTINGS = {"MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 16}


def run(router, checkpoint, *samples, settings=(), evaluation=False, dialect="vllm", **host_args):
    async def main():
        async with running(router):
            address = {f"{dialect}_router_ip": "127.0.0.1", f"{dialect}_router_port": router.port}
            config = SETTINGS | dict(settings)
            args = SimpleNamespace(hf_checkpoint=checkpoint, mem_agent=config, **address, **host_args)
            try:
                return await asyncio.gather(*(rollout.generate(args, s, SAMPLING, evaluation) for s in samples))
            finally:
                await close_clients()

    done = asyncio.run(main())
    return done[0] if len(done) == 1 else done


def sample(context="QWZRXYUJ", **fields):
    metadata = {"context": context, "ground_truth": ["red"]}
    return Sample(**{"prompt": "who?", "index": 3, "group_index": 1, "metadata": metadata} | fields)


def rewarded(done, **settings):
    return asyncio.run(rollout.reward_func(SimpleNamespace(mem_agent=SETTINGS | settings), done))


# --- how hooks are named and called ---------------------------------------------------------------------------------

POSITIONAL = {
    "mem_agent.rollout.generate": ("args", "sample", "sampling_params"),
    "mem_agent.rollout.reward_func": ("args", "sample"),
    "mem_agent.custom_convert.custom_convert": ("args", "samples"),
    "mem_agent.rollout.nonzero_std": ("args", "samples"),
    "mem_agent.rollout.log_rollout": ("rollout_id", "args", "samples", "rollout_extra_metrics", "rollout_time"),
    "mem_agent.rollout.log_eval": ("rollout_id", "args", "data", "extra_metrics"),
    "mem_agent.rollout.evaluate": ("args", "rollout_id", "data_source"),
    "mem_agent.rollout.rollout_fully_async": ("args", "rollout_id", "data_source"),
    "mem_agent.rollout.keep_policy": ("args",),
}
AWAITED = {"mem_agent.rollout.generate", "mem_agent.rollout.reward_func"}


@pytest.mark.parametrize("path", POSITIONAL)
def test_hooks_take_what_hosts_pass(path):
    module, _, name = path.rpartition(".")  # as hosts split it
    hook = getattr(importlib.import_module(module), name)
    given, takes = POSITIONAL[path], inspect.signature(hook).parameters
    assert tuple(takes)[: len(given)] == given and inspect.iscoroutinefunction(hook) == (path in AWAITED)
    rest = list(takes.values())[len(given) :]
    assert all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in rest)


def test_a_bare_args_and_sample_as_in_the_hosts_own_contract_test():
    """No tokenizer, no router, empty metadata, three sampling keys at most."""
    done = asyncio.run(rollout.generate(SimpleNamespace(partial_rollout=False), Sample(index=0, prompt="prompt"),
                                        {"temperature": 0.3}, evaluation=True))
    assert isinstance(done.tokens, list) and isinstance(done.response, str) and done.reward is not None
    assert done.status is Sample.Status.FAILED


# --- trajectories ---------------------------------------------------------------------------------------------------


def test_a_trajectory_is_one_sample_with_its_turns(checkpoint):
    router = FakeRouter([encode("m one"), encode("m two"), encode("\\boxed{red}")])
    done = run(router, checkpoint, sample())
    turns = Record.of(done).turns
    assert [t.kind for t in turns] == ["memory", "memory", "final"]
    assert done.status is Sample.Status.COMPLETED and done.reward is None and done.response == "\\boxed{red}"
    assert done.tokens == turns[-1].tokens and done.response_length == len(turns[-1].response_ids)
    assert done.loss_mask == [1] * done.response_length and done.rollout_log_probs == turns[-1].log_probs
    assert [turn.prompt_ids for turn in turns] == [request["token_ids"] for request in router.requests]
    assert done.weight_versions == ["v1"] and done.prompt == "who?"
    assert [r["sampling_params"]["max_tokens"] for r in router.requests] == [8, 8, 16]


@pytest.mark.parametrize("dialect", Dialect)
def test_a_log_prob_stays_with_its_token_from_the_engine_to_the_training_row(checkpoint, dialect):
    replies = [encode("m one"), encode("another memory"), encode("so \\boxed{red}")]
    done = run(FakeRouter(replies), checkpoint, sample(), dialect=dialect, settings={"MEM_MAX_MEMORY": 40})
    done.reward = 1.0
    data = custom_convert(SimpleNamespace(mem_agent=SETTINGS), [done])
    assert data["rollout_log_probs"] == [log_probs_of(reply) for reply in replies]
    rows = zip(data["tokens"], data["response_lengths"], strict=True)
    assert [tokens[-length:] for tokens, length in rows] == replies


def test_siblings_share_the_routing_key_of_each_chunk(checkpoint):
    router = FakeRouter(default=encode("x"))
    run(router, checkpoint, *(sample("UJXYZW" * 3, index=i, group_index=7) for i in range(4)))
    keys = Counter(h["x-session-id"] for h in router.headers)
    assert sorted(keys.values()) == [4, 4, 4, 4, 8]  # the answer and 5 chunks, of which two are alike
    assert all(key.startswith("group-7/") for key in keys)


def test_chunks_left_to_read_decide_which_request_goes_next(checkpoint):
    """Documents of 1, 2 and 4 chunks through one slot: answers come after those who still read."""
    router = FakeRouter(default=encode("x"), delay=0.05)
    texts = ["QWZR", "QWZRXYUJ", "QWZRXYUJQZWRYXUJ"]
    given = (sample(context=text, index=i, group_index=i) for i, text in enumerate(texts))
    done = run(router, checkpoint, *given, settings={"MEM_CONCURRENCY": 1}, n_samples_per_prompt=1)
    kinds = {tuple(t.prompt_ids): t.kind for s in done for t in Record.of(s).turns}
    sent = [kinds[tuple(request["token_ids"])] for request in router.requests]
    assert len(sent) == 10 and sent.index("final") >= 5


def test_documents_by_id_come_from_the_store_beside_the_training_file(checkpoint, tmp_path):
    train = tmp_path / "train.jsonl"
    with DocumentWriter(f"{train}.docs") as writer:
        context_id = writer.add("QWZRXYUJ")
    router = FakeRouter(default=encode("x"))
    done = run(router, checkpoint, sample(metadata={"context_id": context_id}), prompt_data=f"{train}@[0:9]")
    assert done.status is Sample.Status.COMPLETED and len(router.requests) == 3
    done = run(router, checkpoint, sample(metadata={"context_id": "absent"}), prompt_data=str(train))
    assert done.train_metadata["failure"] == "missing_document"


@pytest.mark.parametrize("broken,failure", [
    ({"metadata": {}}, "no_context"), ({"prompt": " "}, "no_question"), ({"prompt": "why " * 600}, "long_question"),
])
def test_bad_rows_fail_alone_with_a_counted_reason(checkpoint, broken, failure):
    router = FakeRouter(default=encode("x"))
    done = run(router, checkpoint, sample(**broken))
    assert done.status is Sample.Status.FAILED and done.reward == 0.0 and done.remove_sample
    assert done.train_metadata["failure"] == failure and router.requests == []
    assert (done.tokens, done.loss_mask, done.rollout_log_probs) == ([0, 0], [0], [0.0])


@pytest.mark.parametrize("wrong,named", [
    ({"settings": {"AGENT": "nope"}}, "AGENT='nope'"), ({"partial_rollout": True}, "--partial-rollout"),
    ({"checkpoint": "/nowhere"}, "the tokenizer of /nowhere"),
])
def test_a_bad_configuration_does_raise(checkpoint, wrong, named):
    with pytest.raises(ConfigError, match=named):
        run(FakeRouter(default=encode("x")), wrong.pop("checkpoint", checkpoint), sample(), **wrong)


@pytest.mark.parametrize("module", ["slime.rollout.sglang_rollout", "vime.rollout.vllm_rollout"])
def test_the_hosts_abort_flag_ends_the_trajectory(checkpoint, monkeypatch, module):
    state, fake = SimpleNamespace(aborted=False), ModuleType(module)
    fake.GenerateState = lambda args: state
    monkeypatch.setitem(sys.modules, module, fake)

    def first_turn(body):
        state.aborted = True
        return vllm_answer(encode("m"))

    router = FakeRouter([first_turn], default=encode("x"))
    done = run(router, checkpoint, sample())
    assert done.status is Sample.Status.ABORTED and len(router.requests) == 1 and done.remove_sample


def test_a_group_with_an_abort_and_an_error_from_prompt_to_rows(checkpoint):
    note, right, wrong = map(encode, ("m", "\\boxed{red}", "\\boxed{blue}"))
    turns = iter([note, note, right, note, "abort", note, 400, note, note, wrong])
    router = FakeRouter(default=lambda body: next(turns))
    group = [run(router, checkpoint, sample(index=i)) for i in range(4)]
    for done in group:
        if done.reward is None and done.status is not Sample.Status.ABORTED:
            done.reward = rewarded(done)
    assert [s.status.value for s in group] == ["completed", "aborted", "failed", "completed"]
    assert [s.reward for s in group] == [1.0, 0.0, 0.0, 0.0] and rollout.nonzero_std(SimpleNamespace(), group)
    data = custom_convert(SimpleNamespace(mem_agent={}, global_batch_size=4, data_parallel_size=2), group)
    assert [data["rollout_ids"].count(i) for i in range(4)] == [3, 1, 1, 3]
    assert [data["rewards"][data["rollout_ids"].index(i)] for i in range(4)] == [0.5, 0.0, 0.0, -0.5]


# --- rewards and groups ---------------------------------------------------------------------------------------------


def test_a_right_answer_pays_for_its_rounds_in_training_alone(checkpoint):
    """Two rounds of a reading that could have had three."""
    gated = {"AGENT": "gated", "MEM_MAX_MEMORY": 24}

    def finished(evaluation=False):
        router = FakeRouter([encode("finish\nred"), encode("\\boxed{red}")])
        return run(router, checkpoint, sample(), settings=gated, evaluation=evaluation)

    done = finished()
    counts = done.train_metadata["counts"]
    assert (counts["chunks"], counts["chunks_read"], counts["rounds"]) == (2, 1, 2)
    assert rewarded(done, **gated) == pytest.approx(1 - 0.2 * 2 / 3) and done.train_metadata["accuracy"] == 1.0
    assert rewarded(done, **gated, AGENT_ARGS="turn_cost=0.6") == pytest.approx(0.6)
    assert rewarded(done, **gated, AGENT_ARGS="turn_cost=0") == rewarded(done, AGENT="memagent") == 1.0
    assert rewarded(finished(evaluation=True), **gated) == 1.0
    done.response = "\\boxed{blue}"
    assert rewarded(done, **gated) == 0.0


FAILED, RIGHT, WRONG = (("failed", 0.0), ("completed", 1.0), ("completed", 0.0))


def group_of(*ended):
    return [samples.trajectory(samples.turns_of((2,)), status, reward=worth) for status, worth in ended]


@pytest.mark.parametrize("group,kept", [
    ([RIGHT, WRONG, FAILED], True), ([RIGHT, RIGHT], False), ([RIGHT, FAILED], False), ([FAILED, FAILED], False),
])
def test_a_group_is_kept_where_usable_rewards_differ(group, kept):
    args = SimpleNamespace(mem_agent={"SAVE_PATH": f"/nowhere/{group}"})
    assert rollout.nonzero_std(args, group_of(*group)) is kept
    assert rollout.nonzero_std(args, [[one, one] for one in group_of(*group)]) is kept  # a fan-out counts once


def test_a_run_of_equal_groups_ends(monkeypatch):
    monkeypatch.setattr(rollout, "EQUAL_ROLLOUTS", 2)
    args = SimpleNamespace(mem_agent={"SAVE_PATH": "/nowhere/equal"}, rollout_batch_size=2)
    equal, mixed = group_of(RIGHT, RIGHT), group_of(RIGHT, WRONG)
    assert [rollout.nonzero_std(args, one) for one in (equal, equal, equal, mixed, equal, equal, equal)] == [
        False, False, False, True, False, False, False]
    with pytest.raises(ConfigError):
        rollout.nonzero_std(args, equal)


def test_a_run_of_nothing_but_failures_ends():
    args = SimpleNamespace(mem_agent={"SAVE_PATH": "/nowhere/dead"}, rollout_batch_size=2)
    dead = [samples.trajectory(status="failed", failure="connection", record={"failure_message": "no engine"})]
    for group in (dead, group_of(RIGHT), dead):
        rollout.nonzero_std(args, group)
    for call in (lambda: rollout.nonzero_std(args, dead), lambda: custom_convert(args, dead * 3)):
        with pytest.raises(AllFailed, match="no engine"):
            call()
