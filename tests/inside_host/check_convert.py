"""Trajectories through the host's own conversion, split and loss reducer: none is lost and each weighs once."""

from types import SimpleNamespace

import pytest
import torch

from mem_agent.tests.helpers import samples
from mem_agent.tests.helpers.samples import turn
from mem_agent.tests.inside_host.host import DIALECT, NAME, Sample, manager

COMMON = {"reward_key": None, "balance_data": False, "balance_by_flops": False, "micro_batch_size": 1, "mem_agent": {},
          "use_dynamic_batch_size": True, "prompt_data": None, "advantage_estimator": "grpo",
          "rollout_function_path": f"{NAME}.rollout.{DIALECT}_rollout.generate_rollout", "eval_function_path": None,
          "custom_convert_samples_to_train_data_path": "mem_agent.custom_convert.custom_convert"}


def trajectory(index, group, reward, turns, status="completed"):
    """``turns`` are pairs of prompt and reply lengths; ``removed`` is a finished one that a host's filter removed."""
    outcome = "completed" if status == "removed" else status
    written = samples.trajectory([turn(reply, prompt=prompt) for prompt, reply in turns], outcome)
    return Sample(
        index=index, group_index=group, reward=reward, prompt="p", remove_sample=status == "removed",
        status=Sample.Status(outcome), train_metadata=written.train_metadata,
    )


def split(samples, step, dp, cp=1, stages=1):
    """What each data-parallel rank is given; several pipeline ``stages`` are virtual ones too."""
    vpp = 2 if stages > 1 else 1
    args = SimpleNamespace(**COMMON, max_tokens_per_gpu=64 // cp, global_batch_size=step, data_parallel_size=dp,
                           pipeline_model_parallel_size=stages, virtual_pipeline_model_parallel_size=vpp)
    host = manager(args, dp=dp, cp=cp, vpp=vpp, vpp_group=stages)
    return [box.inner for box in host._split_train_data_by_dp(host._convert_samples_to_train_data(samples))]


def check(samples, step, ranks, stages=1):
    """That every trajectory is there and weighs once, and that each rank gets rows of the right shape."""
    columns = ("tokens", "response_lengths", "rewards", "loss_masks", "rollout_ids", "rollout_mask_sums",
               "rollout_log_probs")
    rows = [{name: rank[name][i] for name in columns} for rank in ranks for i in range(len(rank["tokens"]))]
    assert {row["rollout_ids"] for row in rows} == {s.index for s in samples}
    assert all(rank["global_batch_sizes"] == [step] * (len(samples) // step) for rank in ranks)
    counts = {tuple(rank["num_microbatches"]) for rank in ranks}
    assert len(counts) == 1 and all(n % stages == 0 for n in counts.pop())
    for sample in samples:
        mine = [row for row in rows if row["rollout_ids"] == sample.index]
        weight = sum((row["loss_masks"].sum() / max(row["rollout_mask_sums"], 1)).item() for row in mine)
        usable = sample.status.value in ("completed", "truncated") and not sample.remove_sample
        assert weight == pytest.approx(float(usable))
        assert len({row["rewards"] for row in mine if row["loss_masks"].any()}) <= 1
    for row in rows:
        length = row["response_lengths"]
        assert len(row["loss_masks"]) == len(row["rollout_log_probs"]) == length < len(row["tokens"])
        assert row["tokens"].dtype == torch.long and row["rollout_log_probs"].dtype == torch.float32
        assert not row["loss_masks"].is_floating_point()


def mixed(long=False):
    """Twelve trajectories: 1 to 12 turns, every status, a group of one, a group of equal rewards."""
    n = 60 if long else 6
    return [
        trajectory(0, 0, 1.0, [(n, 4)] * 1), trajectory(1, 0, 0.0, [(n, 4)] * 12),
        trajectory(2, 0, 1.0, [(n, 4)] * 3, "failed"), trajectory(3, 0, 0.0, [(n, 4)] * 2, "aborted"),
        trajectory(4, 1, 1.0, [(n, 4)] * 5, "truncated"), trajectory(5, 1, 0.0, [(n, 4)] * 2, "removed"),
        trajectory(6, 2, 1.0, [(n, 3)] * 7),
        trajectory(7, 3, 1.0, [(n, 1)] * 2), trajectory(8, 3, 1.0, [(n, 2)] * 3),
        trajectory(9, 4, 0.0, [], "failed"), trajectory(10, 4, 1.0, [(n, 4)] * 4),
        trajectory(11, 4, 0.5, [(n, 4)] * 9),
    ]


@pytest.mark.parametrize("long", [False, True], ids=["short", "filling"])
@pytest.mark.parametrize("step", [12, 6, 3])
@pytest.mark.parametrize("dp,cp", [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
def test_the_mixed_batch(dp, cp, step, long):
    samples = mixed(long)
    check(samples, step, split(samples, step, dp, cp))


@pytest.mark.parametrize("dp", [1, 2, 4])
@pytest.mark.parametrize("stages", [2, 4])
def test_rows_that_fill_their_bins_under_a_virtual_pipeline(dp, stages):
    samples = mixed(long=True)
    check(samples, 6, split(samples, 6, dp, stages=stages), stages)
