"""LOSS=sft in the host: rows with the replies that they give, from the data file to the ranks' data, and no server."""

import json
from types import SimpleNamespace

import pytest

from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer
from mem_agent.tests.inside_host import host
from mem_agent.tests.inside_host.host import contents, manager, module, no_object_store, parse

FLAGS = ("--metadata-key", "metadata", "--n-samples-per-prompt", "1", "--rollout-batch-size", "4",
         "--rollout-function-path", "mem_agent.rollout.rollout_of_given_replies",
         "--custom-rollout-log-function-path", "mem_agent.rollout.log_rollout")
NOBODY = SimpleNamespace(port=9)


def row(number, **metadata):
    return {"prompt": f"problem {number}?", "label": None, "metadata": metadata}


def given(folder, rows, **settings):
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    args = parse(folder, NOBODY, "--prompt-data", str(path), *FLAGS)
    args.debug_train_only = True
    args.mem_agent = host.SETTINGS | {"LOSS": "sft", "MEM_MAX_FINAL": 64} | settings
    return manager(args)


def replies_of(ranks):
    """({a taught reply: its mask}, the number of rows)."""
    decode = make_tokenizer().decode
    names = ("tokens", "response_lengths", "loss_masks")
    rows = [row for rank in ranks for row in zip(*(rank[name] for name in names), strict=True)]
    masked = [(decode(tokens[-length:]), list(map(int, mask))) for tokens, length, mask in rows]
    return {reply: mask for reply, mask in masked if any(mask)}, len(rows)


@pytest.fixture
def logged(monkeypatch):
    metrics = []
    place = "observability.logging_utils" if host.NAME == "slime" else "utils.logging_utils"
    monkeypatch.setattr(module(place), "log", lambda args, values, step_key: metrics.append(values))
    return metrics


def test_each_rank_gets_its_rows_of_given_replies(tmp_path, logged):
    rows = [row(i, solution=f"\\boxed{{{i}}}") for i in range(3)] + [row(3)]
    one = given(tmp_path, rows, AGENT="single")
    with no_object_store():
        taught, count = replies_of(contents(one.generate(0)))
    assert set(taught) == {f"\\boxed{{{i}}}<|im_end|>" for i in range(3)} and count == 4
    assert all(set(mask) == {1} for mask in taught.values())
    assert logged[0]["rollout/memory/failed/no_reply"] == 1 and logged[0]["rollout/memory/trajectories"] == 4
    assert "rollout/memory/reward" not in logged[0]
