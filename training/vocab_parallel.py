"""Log-probabilities and entropy of tokens from logits whose vocabulary is split over tensor-parallel ranks.

``logits`` is ``[n, v]``: this rank's columns ``rank * v : (rank + 1) * v`` of the padded vocabulary, where entry i
predicts ``targets[i]``. Columns past ``vocab_size`` are padding and get probability 0, so a padded model gives the
same numbers as the unpadded one. The logits' memory is reused and must not be read afterwards.
"""

from __future__ import annotations

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from torch import Tensor

_NEVER = -1e30  # finite, so that 0 * logit stays 0 in the entropy


def token_log_probs(
    logits: Tensor, targets: Tensor, vocab_size: int, temperature: float, with_entropy: bool = False
) -> tuple[Tensor, Tensor]:
    """``(log-probability of each target, entropy of each distribution)``; without entropy that one is zeros."""
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

