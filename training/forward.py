"""One forward pass over packed rows: the log-probability and entropy of every response token.

A micro-batch is one sequence ``[1, t]`` of whole rows back to back, told apart by cumulative lengths; logits are
computed only where a response token is predicted, so a long prompt costs no vocabulary-sized memory.

Rows of 5 and 4 tokens with responses of 2 and 1: the responses are tokens 3, 4 and 8 of the pack, predicted at
positions 2, 3 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor

from ..checkpoints import megatron_cpu
from .rows import TrainRow
from .vocab_parallel import token_log_probs


def response_log_probs(
    model: Any, rows: Sequence[TrainRow], vocab_size: int, temperature: float, with_entropy: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of the rows' response tokens, both ``[n]``, row after row."""
    device = megatron_cpu.device()
    lengths = [len(row.tokens) for row in rows]
    tokens = torch.tensor([token for row in rows for token in row.tokens], device=device)
    predicting = torch.tensor(predicting_positions(rows), dtype=torch.long, device=device)
    with _LogitsOnlyAt(model, predicting):
        logits = model(
            input_ids=tokens[None],
            position_ids=torch.tensor([[p for length in lengths for p in range(length)]], device=device),
            attention_mask=None,
            packed_seq_params=_packed(lengths, device),
        )
    return token_log_probs(logits[0], tokens[predicting + 1], vocab_size, temperature, with_entropy)


def predicting_positions(rows: Sequence[TrainRow]) -> list[int]:
    """Positions in the pack whose logits predict the response tokens."""
    positions: list[int] = []
    end = 0
    for row in rows:
        end += len(row.tokens)
        positions += range(end - row.response_length - 1, end - 1)
    return positions


def _packed(lengths: Sequence[int], device: torch.device) -> PackedSeqParams:
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)
    longest = max(lengths)
    return PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds, max_seqlen_q=longest, max_seqlen_kv=longest
    )


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
