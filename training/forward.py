"""One forward pass over a pack of rows: the log-probability and entropy of every response token.

The pack is one sequence ``[1, t]`` of tries (``trie.py``), in which a prefix that rows share is encoded once. Logits
are computed only where a response token is predicted, so a long prompt costs no vocabulary-sized memory, and once for
rows that predict the same token in the same place: ``index_select`` adds up the gradients of those rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..checkpoints import megatron_cpu
from ..checkpoints.tree_attention import DENSE, tree_seq_params
from .rows import TrainRow
from .trie import build_trie
from .vocab_parallel import token_log_probs


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
    with _LogitsOnlyAt(model, predicting), _RotaryAt(model, positions):
        logits = model(
            input_ids=tokens[None],
            position_ids=positions[None],
            attention_mask=None,
            packed_seq_params=tree_seq_params(trie.end, trie.deepest, device, DENSE if share else 0),
        )
    different = token_log_probs(logits[0], targets, vocab_size, temperature, with_entropy)
    log_probs, entropy = (values.index_select(0, places) for values in different)
    return log_probs, entropy


class _LogitsOnlyAt:
    """While this stands, the model's output layer sees the hidden states ``[t, 1, h]`` at ``positions`` only."""

    def __init__(self, model: Any, positions: Tensor) -> None:
        self.output_layer = getattr(model, "module", model).output_layer
        self.positions = positions

    def __enter__(self) -> None:
        self.handle = self.output_layer.register_forward_pre_hook(
            lambda _, args: (args[0].index_select(0, self.positions), *args[1:])
        )

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


class _RotaryAt:
    """While this stands, the model's rotary table ``[longest row, 1, 1, d]`` has an entry for each token instead."""

    def __init__(self, model: Any, positions: Tensor) -> None:
        self.table = getattr(model, "module", model).rotary_pos_emb
        self.positions = positions

    def __enter__(self) -> None:
        self.handle = self.table.register_forward_hook(lambda _, __, table: table.index_select(0, self.positions))

    def __exit__(self, *_: object) -> None:
        self.handle.remove()
