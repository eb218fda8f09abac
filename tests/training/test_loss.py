"""The loss by hand and against a plain reading of its definition, whatever way a step is cut."""

import math

import pytest
import torch

from mem_agent.config import Config
from mem_agent.tests.helpers.trainer_steps import make_rows
from mem_agent.training.loss import policy_loss, policy_metrics, row_weights
from mem_agent.training.rows import TrainRow
from mem_agent.training.tries import rank_micro_batches

TRAJECTORY, TOKEN = Config(loss_agg="trajectory", kl_coef=0.1), Config(loss_agg="token", kl_coef=0.1)


def noise(rows: list[TrainRow], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [-torch.rand(row.response_length, generator=generator) for row in rows]


def golden(rows, new, old, ref, config) -> torch.Tensor:
    """The definition, row by row, on log-probs [response length] of each."""
    losses = []
    for row, n, o, r in zip(rows, new, old, ref, strict=True):
        ratio = (n - o).exp()
        clipped = ratio.clamp(1 - config.eps_clip, 1 + config.eps_clip_high)
        kl = ((r - n).exp() - 1 - (r - n)).clamp(max=10.0)
        token = -torch.minimum(ratio * row.advantage, clipped * row.advantage) + config.kl_coef * kl
        weight = max(row.rollout_mask_sum, 1) if config.loss_agg == "trajectory" else 1
        losses.append((token * torch.tensor(row.loss_mask)).sum() / weight)
    if config.loss_agg == "trajectory":
        return sum(losses) / len({row.rollout_id for row in rows})
    return sum(losses) / sum(max(sum(row.loss_mask), 1) for row in rows)


def loss_and_gradient(rows, new, old, ref, config, ranks=1, max_tokens=10**6):
    """The step as ranks and micro-batches compute it: sums of numerators over the sum of counts."""
    weights = row_weights(rows, config.loss_agg)
    inputs = [values.clone().requires_grad_() for values in new]
    numerators, all_sums = [], []
    for batches in rank_micro_batches([row.inputs for row in rows], ranks, max_tokens):
        for batch in batches:
            def pick(values, batch=batch):
                return [values[i] for i in batch]

            log_probs = torch.cat(pick(inputs))
            entropy = torch.full_like(log_probs, 2.0)
            numerator, sums = policy_loss(log_probs, entropy, *map(pick, (rows, weights, old, ref)), config)
            numerators.append(numerator)
            all_sums.append(sums)
    loss = torch.stack(numerators).sum() / int(sum(sums[-2] for sums in all_sums))
    loss.backward()
    return loss.item(), torch.cat([x.grad for x in inputs]), policy_metrics(torch.stack(all_sums).sum(0))


@pytest.mark.parametrize("config", [TRAJECTORY, TOKEN], ids=["trajectory", "token"])
def test_the_loss_is_its_definition(config):
    """However ranks and micro-batches split it."""
    rows = make_rows(5)
    new, old, ref = noise(rows, 1), noise(rows, 2), noise(rows, 3)
    loss, whole, metrics = loss_and_gradient(rows, new, old, ref, config)
    assert loss == pytest.approx(golden(rows, new, old, ref, config).item(), abs=1e-6)
    assert metrics["loss"] == pytest.approx(loss, abs=1e-6)
    assert metrics["loss"] == pytest.approx(metrics["pg_loss"] + config.kl_coef * metrics["kl"], abs=1e-6)
    for ranks, most in ((1, 40), (2, 10**6), (3, 60), (7, 1)):
        split_loss, gradient, split_metrics = loss_and_gradient(rows, new, old, ref, config, ranks, most)
        assert split_loss == pytest.approx(loss, abs=1e-6)
        torch.testing.assert_close(gradient, whole, atol=1e-7, rtol=0)
        assert split_metrics == pytest.approx(metrics, abs=1e-6)


CLIPPED = [
    (1.0, 1.5, 0.0, -1.28, 1.0),  # gain capped at 1 + eps_clip_high
    (1.0, 0.5, 0.0, -0.5, 0.0),  # a falling good token is never clipped
    (-1.0, 0.5, 0.0, 0.8, 1.0),  # capped at 1 - eps_clip
    (-1.0, 1.5, 0.0, 1.5, 0.0),  # a rising bad token is never clipped
    (-1.0, math.exp(30), 0.0, math.exp(30), 0.0),  # nor is its ratio bounded before
    (-1.0, 8.0, 3.0, 3.0, 0.0), (-2.0, 8.0, 3.0, 6.0, 0.0), (1.0, 8.0, 3.0, -1.28, 1.0),  # but by a dual clip
]


@pytest.mark.parametrize(("advantage", "ratio", "dual", "loss", "clipped"), CLIPPED)
def test_the_clip_bounds_are_one_sided_and_asymmetric(advantage, ratio, dual, loss, clipped):
    row, log_ratio = TrainRow([1, 1], 1, [1], [-0.25], advantage, 0, 1), math.log(ratio)
    config = TRAJECTORY.replace(eps_clip_c=dual)
    new = [torch.tensor([log_ratio])]
    _, _, metrics = loss_and_gradient([row], new, [[0.0]], new, config)
    assert metrics["pg_loss"] == pytest.approx(loss, rel=1e-5) and metrics["clip_fraction"] == clipped
    assert metrics["ratio_mean"] == pytest.approx(ratio, rel=1e-5)
    assert (metrics["kl"], metrics["entropy"], metrics["rollout_log_prob_gap"]) == (0.0, 2.0, 0.25)
