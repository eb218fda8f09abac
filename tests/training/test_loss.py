"""The loss by hand and against a plain reading of its definition, whatever way a step is cut."""

import math
import random

import pytest
import torch

from mem_agent.config import Config, ConfigError
from mem_agent.training.loss import (
    low_var_kl,
    policy_loss,
    policy_metrics,
    row_weights,
    sft_loss,
    sft_metrics,
    token_batch,
)
from mem_agent.training.rows import TrainRow
from mem_agent.training.tries import rank_micro_batches

TRAJECTORY, TOKEN = Config(loss_agg="trajectory", kl_coef=0.1), Config(loss_agg="token", kl_coef=0.1)


def a_step(seed: int = 0, trajectories: int = 5) -> list[TrainRow]:
    """Trajectories of one to four turns; the last one fully masked, as a failed one is."""
    rng = random.Random(seed)
    rows = []
    for rollout_id in range(trajectories):
        turns = [rng.randint(1, 6) for _ in range(rng.randint(1, 4))]
        masks = [[int(rng.random() < 0.8) for _ in range(length)] for length in turns]
        if rollout_id == trajectories - 1:
            masks = [[0] * len(mask) for mask in masks]
        total = sum(map(sum, masks))
        advantage = rng.gauss(0, 1)
        for mask in masks:
            log_probs = [-rng.random() for _ in mask]
            rows.append(TrainRow([1, *mask], len(mask), mask, log_probs, advantage, rollout_id, total))
    return rows


def noise(rows: list[TrainRow], seed: int) -> list[list[float]]:
    rng = random.Random(seed)
    return [[-rng.random() for _ in range(row.response_length)] for row in rows]


@pytest.mark.parametrize("advantage,ratio,expected", [
    (-1.0, 8.0, 3.0),  # 8 without the third clip
    (-1.0, 2.0, 2.0), (-2.0, 8.0, 6.0), (1.0, 8.0, -1.28), (1.0, 0.1, -0.1), (-1.0, 0.1, 0.8),
])
def test_a_dual_clip_bounds_what_a_bad_token_costs(advantage, ratio, expected):
    config = Config(eps_clip_c=3.0, kl_coef=0.0)
    rows = [TrainRow([1, 1], 1, [1], [0.0], advantage, 0, 1)]
    batch = token_batch(rows, row_weights(rows, "trajectory"), [[0.0]], None)
    numerator, _ = policy_loss(torch.tensor([math.log(ratio)]), torch.zeros(1), batch, config)
    assert numerator.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("value", [0.5, 1.0])
def test_a_dual_clip_of_at_most_one_is_refused(value):
    with pytest.raises(ConfigError, match="EPS_CLIP_C"):
        Config(eps_clip_c=value)


def golden(rows, new, old, ref, config) -> float:
    """The definition, one token at a time."""
    per_trajectory: dict[int, list[float]] = {}
    for row, n, o, r in zip(rows, new, old, ref, strict=True):
        values = per_trajectory.setdefault(row.rollout_id, [])
        for mask, lp, lo, lr in zip(row.loss_mask, n, o, r, strict=True):
            ratio = math.exp(lp - lo)
            clipped = min(max(ratio, 1 - config.eps_clip), 1 + config.eps_clip_high)
            kl = min(math.exp(lr - lp) - 1 - (lr - lp), 10.0)
            if mask:
                values.append(-min(ratio * row.advantage, clipped * row.advantage) + config.kl_coef * kl)
    if config.loss_agg == "token":
        everything = [x for values in per_trajectory.values() for x in values]
        return sum(everything) / sum(max(sum(row.loss_mask), 1) for row in rows)
    return sum(sum(v) / max(len(v), 1) for v in per_trajectory.values()) / len(per_trajectory)


def gradient(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad


def loss_and_gradient(rows, new, old, ref, config, ranks=1, max_tokens=10**6):
    """The step as ranks and micro-batches compute it: sums of numerators over the sum of counts."""
    weights = row_weights(rows, config.loss_agg)
    inputs = [torch.tensor(values, requires_grad=True) for values in new]
    numerators, counts, all_sums = [], [], []
    for batches in rank_micro_batches([row.inputs for row in rows], ranks, max_tokens):
        for batch in batches:
            def pick(values, batch=batch):
                return [values[i] for i in batch]

            tokens = token_batch(pick(rows), pick(weights), pick(old), pick(ref))
            log_probs = torch.cat(pick(inputs))
            numerator, sums = policy_loss(log_probs, torch.full_like(log_probs, 2.0), tokens, config)
            numerators.append(numerator)
            counts.append(tokens.count)
            all_sums.append(sums)
    loss = torch.stack(numerators).sum() / sum(counts)
    loss.backward()
    return loss.item(), torch.cat([gradient(x) for x in inputs]), policy_metrics(torch.stack(all_sums).sum(0))


@pytest.mark.parametrize("config", [TRAJECTORY, TOKEN], ids=["trajectory", "token"])
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_is_its_definition(config, seed):
    rows = a_step(seed)
    new, old, ref = noise(rows, 1), noise(rows, 2), noise(rows, 3)
    loss, _, metrics = loss_and_gradient(rows, new, old, ref, config)
    assert loss == pytest.approx(golden(rows, new, old, ref, config), abs=1e-6)
    assert metrics["loss"] == pytest.approx(loss, abs=1e-6)
    assert metrics["loss"] == pytest.approx(metrics["pg_loss"] + config.kl_coef * metrics["kl"], abs=1e-6)


@pytest.mark.parametrize("config", [TRAJECTORY, TOKEN], ids=["trajectory", "token"])
@pytest.mark.parametrize(("ranks", "max_tokens"), [(1, 8), (2, 10**6), (2, 8), (3, 12), (7, 1)])
def test_ranks_and_micro_batches_do_not_change_loss_or_gradient(config, ranks, max_tokens):
    rows = a_step()
    new, old, ref = noise(rows, 1), noise(rows, 2), noise(rows, 3)
    loss, whole, metrics = loss_and_gradient(rows, new, old, ref, config)
    split_loss, split_gradient, split_metrics = loss_and_gradient(rows, new, old, ref, config, ranks, max_tokens)
    assert split_loss == pytest.approx(loss, abs=1e-6)
    torch.testing.assert_close(split_gradient, whole, atol=1e-7, rtol=0)
    assert split_metrics == pytest.approx(metrics, abs=1e-6)


@pytest.mark.parametrize("config", [TRAJECTORY, TOKEN], ids=["trajectory", "token"])
def test_the_order_of_rows_does_not_change_the_loss(config):
    rows = a_step()
    order = random.Random(1).sample(range(len(rows)), len(rows))
    columns = rows, noise(rows, 1), noise(rows, 2), noise(rows, 3)
    rows_, new, old, ref = ([column[i] for i in order] for column in columns)
    shuffled, _, _ = loss_and_gradient(rows_, new, old, ref, config)
    assert shuffled == pytest.approx(loss_and_gradient(*columns, config)[0], abs=1e-6)


@pytest.mark.parametrize("turns", [(1,), (6,), (2, 3, 1), (1,) * 6])
def test_a_trajectory_weighs_one_however_many_turns_it_has(turns):
    total = sum(turns)
    rows = [TrainRow([1] * (n + 1), n, [1] * n, [0.0] * n, 1.0, 0, total) for n in turns]
    rows.append(TrainRow([1, 1], 1, [1], [0.0], 0.0, 1, 1))
    same = [[0.0] * row.response_length for row in rows]
    _, slope, _ = loss_and_gradient(rows, same, same, same, TRAJECTORY)
    assert slope[:total].sum().item() == pytest.approx(-1.0 / 2)  # advantage 1, two trajectories
    assert slope[:total].tolist() == pytest.approx([-1.0 / 2 / total] * total)


def test_a_fully_masked_trajectory_has_no_gradient_but_counts():
    live = TrainRow([1, 1], 1, [1], [0.0], 1.0, 0, 1)
    failed = TrainRow([1, 1], 1, [0], [0.0], 9.0, 1, 0)
    zeros = [[0.0], [0.0]]
    loss, slope, _ = loss_and_gradient([live, failed], zeros, zeros, zeros, TRAJECTORY)
    assert (loss, slope.tolist()) == (-0.5, [-0.5, 0.0])
    loss, slope, _ = loss_and_gradient([live, failed], zeros, zeros, zeros, TOKEN)
    assert (loss, slope.tolist()) == (-0.5, [-0.5, 0.0])


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "loss", "clipped"),
    [
        (1.0, math.log(1.5), -1.28, 1.0),  # gain capped at 1 + eps_clip_high
        (1.0, math.log(0.5), -0.5, 0.0),  # a falling good token is never clipped
        (-1.0, math.log(0.5), 0.8, 1.0),  # capped at 1 - eps_clip
        (-1.0, math.log(1.5), 1.5, 0.0),  # a rising bad token is never clipped
    ],
)
def test_the_clip_bounds_are_one_sided_and_asymmetric(advantage, log_ratio, loss, clipped):
    row = TrainRow([1, 1], 1, [1], [-0.25], advantage, 0, 1)
    _, _, metrics = loss_and_gradient([row], [[log_ratio]], [[0.0]], [[log_ratio]], TRAJECTORY)
    assert metrics["pg_loss"] == pytest.approx(loss)
    assert metrics["clip_fraction"] == clipped
    assert metrics["ratio_mean"] == pytest.approx(math.exp(log_ratio))
    assert (metrics["kl"], metrics["entropy"], metrics["rollout_log_prob_gap"]) == (0.0, 2.0, 0.25)


def test_kl_is_never_negative_and_at_most_ten():
    log_probs = torch.tensor([0.0, -1.0, -3.0, -80.0], requires_grad=True)
    kl = low_var_kl(log_probs, torch.tensor([0.0, 0.0, -500.0, 0.0]))
    assert kl.tolist() == pytest.approx([0.0, math.e - 2, 10.0, 10.0])
    kl.sum().backward()
    assert torch.isfinite(gradient(log_probs)).all()


@pytest.mark.parametrize(
    ("log_ratio", "loss"),
    [
        (0.5, math.exp(0.5)),
        (30.0, math.exp(30.0)),  # no bound before the clip, which a bad token's rise never meets
        (1e4, math.inf),
    ],
)
def test_a_ratio_is_not_bounded_before_it_is_clipped(log_ratio, loss):
    row = TrainRow([1, 1], 1, [1], [0.0], -1.0, 0, 1)
    found, slope, _ = loss_and_gradient([row], [[0.0]], [[-log_ratio]], [[0.0]], TRAJECTORY)
    assert found == pytest.approx(loss, rel=1e-6)
    assert torch.isfinite(slope).all() == math.isfinite(loss)


def test_the_supervised_loss_is_the_mean_over_unmasked_tokens():
    _, sums = sft_loss(torch.tensor([-1.0, -3.0, -7.0]), torch.tensor([1.0, 1.0, 0.0]))
    assert sft_metrics(sums) == {"loss": 2.0, "tokens": 2.0}
