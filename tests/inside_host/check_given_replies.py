"""LOSS=sft in the host: rows with the replies that they give, from the data file to the ranks' data, and no server."""

import json
from types import SimpleNamespace

from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer
from mem_agent.tests.inside_host import host
from mem_agent.tests.inside_host.host import contents, manager, no_object_store, parse

FLAGS = ("--metadata-key", "metadata", "--n-samples-per-prompt", "1", "--rollout-batch-size", "4",
         "--rollout-function-path", "mem_agent.rollout.rollout_of_given_replies",
         "--custom-rollout-log-function-path", "mem_agent.rollout.log_rollout")
NOBODY = SimpleNamespace(port=9)


def test_each_rank_gets_its_rows_of_given_replies(tmp_path, logged):
    metadata = [{"solution": f"\\boxed{{{number}}}"} for number in range(3)] + [{}]
    rows = [{"prompt": f"problem {n}?", "label": None, "metadata": one} for n, one in enumerate(metadata)]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = parse(tmp_path, NOBODY, "--prompt-data", str(path), *FLAGS)
    args.debug_train_only = True
    args.mem_agent = host.SETTINGS | {"LOSS": "sft", "MEM_MAX_FINAL": 64, "AGENT": "single"}
    with no_object_store():
        ranks = contents(manager(args).generate(0))
    decode, taught = make_tokenizer().decode, []
    for rank in ranks:
        for tokens, length, mask in zip(*(rank[n] for n in ("tokens", "response_lengths", "loss_masks")), strict=True):
            taught.append((decode(tokens[-length:]), set(map(int, mask))))
    given = [(f"\\boxed{{{number}}}<|im_end|>", {1}) for number in range(3)]
    assert sorted(one for one in taught if one[1] == {1}) == given and len(taught) == 4
    assert logged[0]["rollout/memory/failed/no_reply"] == 1 and logged[0]["rollout/memory/trajectories"] == 4
    assert "rollout/memory/reward" not in logged[0]
