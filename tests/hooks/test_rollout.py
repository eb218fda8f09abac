"""The hooks as hosts call them: records written, failures typed and counted, abort, rewards of a trajectory."""

import importlib
import inspect
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from mem_agent import rollout
from mem_agent.config import ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.data.document_store import DocumentStore
from mem_agent.hooks.metrics import rollout_metrics
from mem_agent.hooks.reader import messages_before, question_of, row_of
from mem_agent.hooks.sample import AllFailed, Record, Sample
from mem_agent.rollout_client import Dialect
from mem_agent.tests.helpers import samples
from mem_agent.tests.helpers.fake_router import FakeRouter, log_probs_of
from mem_agent.tests.helpers.tiny_tokenizer import encode, make_tokenizer
from mem_agent.tests.hooks.conftest import rewarded, sample

# --- how hooks are named and called ---------------------------------------------------------------------------------

HOOKS = {
    "rollout.generate": "args, sample, sampling_params",
    "rollout.reward_func": "args, sample",
    "rollout.nonzero_std": "args, samples",
    "rollout.log_rollout": "rollout_id, args, samples, rollout_extra_metrics, rollout_time",
    "rollout.log_eval": "rollout_id, args, data, extra_metrics",
    "rollout.evaluate": "args, rollout_id, data_source",
    "rollout.rollout_fully_async": "args, rollout_id, data_source",
    "rollout.keep_policy": "args",
    "custom_convert.custom_convert": "args, samples",
}


@pytest.mark.parametrize("path,given", HOOKS.items())
def test_hooks_take_what_hosts_pass(path, given):
    module, _, name = path.rpartition(".")
    takes = inspect.signature(getattr(importlib.import_module(f"mem_agent.{module}"), name)).parameters.values()
    needed = [p.name for p in takes if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    assert ", ".join(needed) == given


# --- trajectories ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", Dialect)
def test_a_trajectory_is_one_sample_whose_tokens_keep_their_log_probs_until_the_training_row(run, dialect):
    replies = [encode("m one"), encode("another memory"), encode("so \\boxed{red}")]
    router = FakeRouter(replies)
    done = run(router, sample(), dialect=dialect, settings={"MEM_MAX_MEMORY": 40})
    turns = Record.of(done).turns
    assert [turn.kind for turn in turns] == ["memory", "memory", "final"]
    assert done.status is Sample.Status.COMPLETED and done.reward is None and done.response == "so \\boxed{red}"
    assert done.tokens == turns[-1].tokens and done.loss_mask == [1] * done.response_length
    assert done.weight_versions == ["v1"] and done.prompt == "who?"
    if dialect is Dialect.VLLM:
        assert [turn.prompt_ids for turn in turns] == [request["token_ids"] for request in router.requests]
        assert [request["sampling_params"]["max_tokens"] for request in router.requests] == [40, 40, 16]
    done.reward = 1.0
    data = custom_convert(SimpleNamespace(mem_agent={}), [done])
    assert data["rollout_log_probs"] == [log_probs_of(reply) for reply in replies]
    rows = zip(data["tokens"], data["response_lengths"], strict=True)
    assert [tokens[-length:] for tokens, length in rows] == replies


def test_siblings_share_the_routing_key_of_each_chunk(run):
    router = FakeRouter(default=encode("x"))
    run(router, *(sample("UJXYZW" * 3, index=i, group_index=7) for i in range(4)))
    keys = Counter(headers["x-session-id"] for headers in router.headers)
    assert sorted(keys.values()) == [4, 4, 4, 4, 8]  # the answer and 5 chunks, of which two are alike
    assert all(key.startswith("group-7/") for key in keys)


def test_chunks_left_to_read_decide_which_request_goes_next(run):
    """Documents of 1, 2 and 4 chunks through one slot: answers come after those who still read."""
    router = FakeRouter(default=encode("x"), delay=0.05)
    given = (sample("QWZRXYUJQZWRYXUJ"[:letters], index=letters, group_index=letters) for letters in (4, 8, 16))
    done = run(router, *given, settings={"MEM_CONCURRENCY": 1}, n_samples_per_prompt=1)
    kinds = {tuple(turn.prompt_ids): turn.kind for one in done for turn in Record.of(one).turns}
    sent = [kinds[tuple(request["token_ids"])] for request in router.requests]
    assert len(sent) == 10 and sent.index("final") >= 5


def test_documents_by_id_come_from_the_store_beside_the_training_file(run, tmp_path):
    train = tmp_path / "train.jsonl"
    known = DocumentStore(f"{train}.docs").add("QWZRXYUJ")
    given = (sample(metadata={"context_id": context_id}) for context_id in (known, "absent"))
    found, missing = run(FakeRouter(default=encode("x")), *given, prompt_data=f"{train}@[0:9]")
    assert len(Record.of(found).turns) == 3 and missing.train_metadata["failure"] == "missing_document"


# --- rows that are conversations, and those that fail ---------------------------------------------------------------

ROW = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"}, {"role": "user", "content": [{"type": "text", "text": " 2+2? "}]},
]
LED = {"role": "assistant", "content": "So "}
ASKED = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    "2<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
CHAT = {"AGENT": "chat"}


@pytest.mark.parametrize("prompt,prefix,evaluation", [
    (ROW, "", False), ([*ROW, LED], "So ", False), (np.array([*ROW, LED], dtype=object), "So ", True)])
def test_a_conversation_is_asked_and_scored(run, prompt, prefix, evaluation):
    """pandas gives an array of messages, hosts a list."""
    router = FakeRouter(default=encode("it is \\boxed{4}"))
    done = run(router, sample(prompt=prompt, label="4", metadata={}), settings=CHAT, evaluation=evaluation)
    (request,) = router.requests
    assert make_tokenizer().decode(request["token_ids"]) == ASKED + prefix and done.response == "it is \\boxed{4}"
    assert (question_of(done), len(messages_before(done))) == ("2+2?", 3)
    assert rewarded(done, **CHAT) == 1.0 and row_of(done).metadata.get("reply_prefix", "") == prefix


@pytest.mark.parametrize("broken,settings,failure", [
    ({"metadata": {}}, {}, "no_context"), ({"prompt": " "}, {}, "no_question"),
    ({"prompt": "why " * 600}, {}, "long_question"), ({"prompt": ROW[:1]}, CHAT, "no_question"),
    ({"prompt": [ROW[1], ROW[0], ROW[3]]}, CHAT, "bad_messages"),
    ({"prompt": [{"role": "boss", "content": "x"}]}, CHAT, "bad_messages"),
])
def test_bad_rows_fail_alone_with_a_counted_reason(run, broken, settings, failure):
    router = FakeRouter(default=encode("x"))
    done, good = run(router, sample(**broken), sample(prompt="2+2?", context="QW"), settings=settings)
    assert done.status is Sample.Status.FAILED and done.reward == 0.0 and done.remove_sample
    assert done.train_metadata["failure"] == failure and good.status is Sample.Status.COMPLETED
    assert (done.tokens, done.loss_mask, done.rollout_log_probs) == ([0, 0], [0], [0.0])


@pytest.mark.parametrize("wrong,named", [
    ({"settings": {"AGENT": "nope"}}, "AGENT='nope'"), ({"partial_rollout": True}, "--partial-rollout"),
    ({"hf_checkpoint": "/nowhere"}, "the tokenizer of /nowhere"),
])
def test_a_bad_configuration_does_raise(run, wrong, named):
    with pytest.raises(ConfigError, match=named):
        run(FakeRouter(default=encode("x")), sample(), **wrong)


def test_a_group_with_an_abort_and_an_error_from_prompt_to_rows(run):
    note, right, wrong = map(encode, ("m", "\\boxed{red}", "\\boxed{blue}"))
    turns = iter([note, note, right, note, "abort", note, 400, note, note, wrong])
    router = FakeRouter(default=lambda body: next(turns))
    group = [run(router, sample(index=i)) for i in range(4)]
    for done in (group[0], group[3]):
        done.reward = rewarded(done)
    assert [s.status.value for s in group] == ["completed", "aborted", "failed", "completed"]
    assert [s.reward for s in group] == [1.0, 0.0, 0.0, 0.0] and rollout.nonzero_std(SimpleNamespace(), group)
    data = custom_convert(SimpleNamespace(mem_agent={}, global_batch_size=4, data_parallel_size=2), group)
    assert [data["rollout_ids"].count(i) for i in range(4)] == [3, 1, 1, 3]
    assert [data["rewards"][data["rollout_ids"].index(i)] for i in range(4)] == [0.5, 0.0, 0.0, -0.5]


# --- rewards and groups ---------------------------------------------------------------------------------------------


def test_a_right_answer_pays_for_its_rounds_in_training_alone(run):
    """Two rounds of a reading that could have had three."""
    gated = {"AGENT": "gated", "MEM_MAX_MEMORY": 24}

    def finished(evaluation):
        router = FakeRouter([encode("finish\nred"), encode("\\boxed{red}")])
        return run(router, sample(), settings=gated, evaluation=evaluation)

    done, counts = finished(False), {"chunks": 2, "chunks_read": 1, "rounds": 2}
    assert counts.items() <= done.train_metadata["counts"].items()
    assert rewarded(done, **gated) == pytest.approx(1 - 0.2 * 2 / 3) and done.train_metadata["accuracy"] == 1.0
    assert rewarded(done, **gated, AGENT_ARGS="turn_cost=0.6") == pytest.approx(0.6)
    assert rewarded(done, **gated, AGENT_ARGS="turn_cost=0") == rewarded(done, AGENT="memagent") == 1.0
    assert rewarded(finished(True), **gated) == 1.0
    done.response = "\\boxed{blue}"
    assert rewarded(done, **gated) == 0.0


def test_what_turns_of_rememr1_earn_from_the_loop_to_training_rows(run):
    """Two siblings by hand: outcome 1 and 0, alpha 0.8."""
    settings = {"AGENT": "rememr1", "MEM_MAX_MEMORY": 200, "MEM_MAX_FINAL": 64}
    data = {"context": "QWZRXYUJ", "ground_truth": ["red key"]}

    def reply(update, recall=""):
        return f"<thinking>so</thinking>\n<update>{update}</update>" + f"\n<recall>{recall}</recall>" * bool(recall)

    def reading(index, *replies):
        return run(FakeRouter(list(map(encode, replies))), sample(index=index, metadata=data), settings=settings)

    good = reading(0, reply("it is red"), reply("it is gone", "red"), "so \\boxed{red key}")
    poor = reading(1, "nothing", reply("red"), "\\boxed{x}")
    assert [turn["state_rewards"] for turn in good.train_metadata["turns"]] == [
        {"format": 1.0, "gain": 1 / 2, "recall": 0.0},  # red of red, key
        # The memory loses red; the query finds it, but the prompt still showed it.
        {"format": 1.0, "gain": -1 / 2, "recall": 0.0},
        {"format": 1.0},
    ]
    good.reward, poor.reward = 1.0, 0.0
    metrics = rollout_metrics([good])
    assert (metrics["updates"], metrics["recall_hits"], metrics["state_reward/gain"]) == (2, 1, 0.0)
    data = custom_convert(SimpleNamespace(mem_agent={"AGENT": "rememr1"}), [good, poor])
    # state rewards, good: 1 + 1/2, 1 - 1/2, 1; poor: 0 + 0, 1 + 1/2, 1; halves of their differences: 3/4, -1/2, 0
    assert data["rewards"] == pytest.approx([
        0.8 * 0.5 + 0.2 * 3 / 4, 0.8 * 0.5 - 0.2 / 2, 0.8 * 0.5, -0.8 * 0.5 - 0.2 * 3 / 4, -0.8 * 0.5 + 0.2 / 2,
        -0.8 * 0.5])


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


def test_a_run_of_equal_groups_or_of_nothing_but_failures_ends(monkeypatch):
    monkeypatch.setattr(rollout, "EQUAL_ROLLOUTS", 2)
    args = SimpleNamespace(mem_agent={"SAVE_PATH": "/nowhere/ends"}, rollout_batch_size=2)
    equal, mixed = group_of(RIGHT, RIGHT), group_of(RIGHT, WRONG)
    given = (equal, equal, equal, mixed, equal, equal, equal)
    assert [rollout.nonzero_std(args, group) for group in given] == [group is mixed for group in given]
    with pytest.raises(ConfigError):
        rollout.nonzero_std(args, equal)
    dead = [samples.trajectory(status="failed", failure="connection", record={"failure_message": "no engine"})]
    for group in (mixed, dead, mixed, dead):
        rollout.nonzero_std(args, group)
    for call in (lambda: rollout.nonzero_std(args, dead), lambda: custom_convert(args, dead * 3)):
        with pytest.raises(AllFailed, match="no engine"):
            call()


def test_failures_nobody_foresaw_are_named_by_the_users_line_and_told_once_a_place(run, tmp_path, caplog):
    """Whatever of Python or of this pack the line calls."""
    own = tmp_path / "mine.py"
    own.write_text("import json\nfrom mem_agent.tasks import Task\n\n\nclass Mine(Task):\n"
                   "    def reward(self, reply, row):\n        return json.loads('{')\n\n"
                   "    read_answer = metrics = reward\n")
    done = run(FakeRouter(default=encode("red")), sample(), sample())
    for each in done:
        rewarded(each, TASK=f"{own}:Mine")
        assert f"({own}:7)" in Record.of(each).failure_message
    assert sum("a trajectory failed" in record.getMessage() for record in caplog.records) == 1
