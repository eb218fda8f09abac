"""One forward pass over a pack of rows: the log-probability and entropy of every response token.

The pack is one sequence ``[1, t]`` of tries (``tries.py``), in which a prefix that rows share is encoded once. Logits
are computed only where a response token is predicted, so a long prompt costs no vocabulary-sized memory, and once for
rows that predict the same token in the same place: ``index_select`` adds up the gradients of those rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from torch import Tensor

from ..checkpoints import megatron_cpu
from ..checkpoints.tree_attention import DENSE, tree_seq_params
from .rows import TrainRow
from .tries import build_trie

_NEVER = -1e30
"""A logit of padding. Finite, so that 0 * logit stays 0 in the entropy."""


def response_log_probs(
    model: Any,
    rows: Sequence[TrainRow],
    vocab_size: int,
    temperature: float,
    with_entropy: bool = False,
    share: bool = True,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of the rows' response tokens, both ``[n]``, row after row."""
    trie = build_trie(rows, share)
    device = megatron_cpu.device()
    tokens, positions, predicting, targets, places = (
        torch.tensor(numbers, dtype=torch.long, device=device)
        for numbers in (trie.tokens, trie.positions, trie.predicting, trie.targets, trie.places)
    )
    inner = getattr(model, "module", model)
    with (
        # The output layer sees the hidden states [t, 1, h] of predicting tokens only ...
        inner.output_layer.register_forward_pre_hook(lambda _, args: (args[0].index_select(0, predicting), *args[1:])),
        # ... and the rotary table [longest row, 1, 1, d] has an entry for each token of the pack.
        inner.rotary_pos_emb.register_forward_hook(lambda _, __, table: table.index_select(0, positions)),
    ):
        logits = model(
            input_ids=tokens[None],
            position_ids=positions[None],
            attention_mask=None,
            packed_seq_params=tree_seq_params(trie.end, trie.deepest, device, DENSE if share else 0),
        )
    different = token_log_probs(logits[0].float(), targets, vocab_size, temperature, with_entropy)
    log_probs, entropy = (values.index_select(0, places) for values in different)
    return log_probs, entropy


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

