"""The GRPO loss on flat response tokens, and how tokens are averaged, exactly for any split of a step.

A loss function returns a numerator and sums, of which the last two are the count and the number of unmasked tokens;
megatron-core sums numerators and counts over the micro-batches and data-parallel ranks of a step and divides the
gradient once. So the mean is exact however rows are split:

* ``trajectory``: numerator = sum over tokens of x * mask / rollout_mask_sum, count = 1 for the first row of each
  trajectory of the step. Two trajectories, one of three turns and one of one turn, weigh the same. A fully masked
  trajectory adds nothing to the numerator and 1 to the count, as in the hosts' reducers.
* ``token``: numerator = sum over tokens of x * mask, count = number of unmasked tokens, 1 for a fully masked row, as
  in the hosts' reducers.

No ratio is bounded before it is clipped, as in the hosts: one beyond float32 is no number to learn from, and a loss or
gradient that is not finite ends the run (``train.learn``).

All tensors are ``[n]`` for the n response tokens of a micro-batch, row after row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from torch import Tensor

from ..config import Config
from .rows import TrainRow


def row_weights(rows: Sequence[TrainRow], loss_agg: str) -> list[tuple[float, int]]:
    """Of all rows of one optimizer step, in order: what an unmasked token adds to the numerator, and the row to the
    count."""
    if loss_agg == "token":
        return [(1.0, max(sum(row.loss_mask), 1)) for row in rows]
    before = [None, *(row.rollout_id for row in rows)]
    return [(1.0 / max(row.rollout_mask_sum, 1.0), int(row.rollout_id != last))
            for row, last in zip(rows, before, strict=False)]


def has_gradient(row: TrainRow, kl_coef: float) -> bool:
    """Whether a step can learn from ``row``: an unmasked token, and an advantage where no KL term pulls besides."""
    return any(row.loss_mask) and bool(kl_coef > 0 or row.advantage)


def policy_loss(
    log_probs: Tensor, entropy: Tensor, rows: Sequence[TrainRow], weights: Sequence[tuple[float, int]],
    old_log_probs: Sequence[Sequence[float]] | None, ref_log_probs: Sequence[Sequence[float]] | None, config: Config,
) -> tuple[Tensor, Tensor]:
    """``(numerator to minimise, sums for policy_metrics)`` of a micro-batch.

    Args:
        old_log_probs: None: the policy is still the one that sampled, so these are the log-probs of this very pass.
    """

    def flat(per_row: Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor([x for values in per_row for x in values], dtype=torch.float32, device=log_probs.device)

    mask = flat([row.loss_mask for row in rows])
    scale = mask * flat([[each] * row.response_length for row, (each, _) in zip(rows, weights, strict=True)])
    advantages = flat([[row.advantage] * row.response_length for row in rows])
    old = log_probs.detach() if old_log_probs is None else flat(old_log_probs)
    ratio = (log_probs - old).exp()
    clipped = ratio.clamp(1.0 - config.eps_clip, 1.0 + config.eps_clip_high)
    unclipped_loss, clipped_loss = -advantages * ratio, -advantages * clipped
    token_loss = torch.maximum(unclipped_loss, clipped_loss)
    if config.eps_clip_c:  # dual-clip PPO, arXiv 1912.09729, equation 5: of advantage -1, ratio 8, bound 3: 3, not 8
        most = torch.minimum(token_loss, -advantages * config.eps_clip_c)
        token_loss = torch.where(advantages < 0, most, token_loss)
    pg = (token_loss * scale).sum()
    kl = torch.zeros_like(pg)
    if ref_log_probs is not None:  # Schulman's k3 estimate of KL(policy || reference), never negative, clamped to 10
        log_ratio = flat(ref_log_probs) - log_probs
        kl = ((log_ratio.exp() - 1.0 - log_ratio).clamp(-10.0, 10.0) * scale).sum()
    loss = pg + config.kl_coef * kl
    with torch.no_grad():
        gap = (old - flat([row.log_probs for row in rows])).abs()
        per_token = (clipped_loss > unclipped_loss, ratio, entropy, gap)
        sums = [loss, pg, kl, *((x * mask).sum() for x in per_token)]
        return loss, _with_counts(sums, sum(count for _, count in weights), mask)


def sft_loss(log_probs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of the unmasked response tokens; divide by their number for the token mean."""
    loss = -(log_probs * mask).sum()
    with torch.no_grad():
        return loss, _with_counts([loss], int(mask.sum()), mask)


def _with_counts(sums: Sequence[Tensor], count: int, mask: Tensor) -> Tensor:
    return torch.stack([*(s.detach().double() for s in sums), mask.new_tensor(count).double(), mask.sum().double()])


def policy_metrics(sums: Tensor) -> dict[str, float]:
    """Means of a step from its summed sums: the losses by the chosen aggregation, the others per unmasked token."""
    loss, pg, kl, clipped, ratio, entropy, gap, count, tokens = sums.tolist()
    per_token = {"clip_fraction": clipped, "ratio_mean": ratio, "entropy": entropy, "rollout_log_prob_gap": gap}
    means = {name: value / max(count, 1.0) for name, value in {"loss": loss, "pg_loss": pg, "kl": kl}.items()}
    return means | {name: value / max(tokens, 1.0) for name, value in per_token.items()} | {"tokens": tokens}


# --- from logits to log-probs ---------------------------------------------------------------------------------------

_NEVER = -1e30
"""A logit of padding. Finite, so that 0 * logit stays 0 in the entropy."""


def token_log_probs(
    logits: Tensor, targets: Tensor, vocab_size: int, temperature: float, with_entropy: bool = False
) -> tuple[Tensor, Tensor]:
    """``(log-probability of each target, entropy of each distribution)``; without entropy that one is zeros.

    ``logits`` is ``[n, v]``: this tensor-parallel rank's columns ``rank * v : (rank + 1) * v`` of the padded
    vocabulary, where entry i predicts ``targets[i]``. Columns past ``vocab_size`` are padding and get probability 0,
    so a padded model gives the same numbers as the unpadded one. The logits' memory is reused and must not be read
    afterwards.
    """
    first = parallel_state.get_tensor_model_parallel_rank() * logits.shape[-1]
    if first + logits.shape[-1] > vocab_size:
        columns = torch.arange(first, first + logits.shape[-1], device=logits.device)
        logits = logits.masked_fill(columns >= vocab_size, _NEVER)
    if temperature != 1.0:
        logits = logits / temperature
    # The cross entropy overwrites the logits with their softmax, hence entropy first.
    entropy = _entropy(logits.detach()) if with_entropy else torch.zeros_like(logits[:, 0])
    return -vocab_parallel_cross_entropy(logits, targets), entropy


@torch.no_grad()
def _entropy(logits: Tensor) -> Tensor:
    """log Z - E[logit], with the maximum taken out."""
    group = parallel_state.get_tensor_model_parallel_group()
    highest = logits.amax(-1, keepdim=True)
    torch.distributed.all_reduce(highest, torch.distributed.ReduceOp.MAX, group)
    shifted = logits - highest
    weights = shifted.exp()
    sums = torch.stack([weights.sum(-1), (weights * shifted).sum(-1)])
    torch.distributed.all_reduce(sums, group=group)
    return sums[0].log() - sums[1] / sums[0]
