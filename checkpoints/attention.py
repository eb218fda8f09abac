"""Core attention for megatron-core's local layer spec, on torch's scaled_dot_product_attention.

The stock module refuses packed sequences and builds its causal mask on CUDA. Shapes, with n query heads, g key/value
heads and d channels per head on this tensor-parallel rank::

    query [t, n, d], key and value [t, g, d] -> [t, n * d]

The t tokens are a pack of sequences ("thd"), sequence i at ``cu_seqlens[i]:cu_seqlens[i + 1]``, or of tries, with
``TreeSeqParams``.

**Tries** (``training/tries.py``): token k is visible to token q iff ``k <= q < end[k]``. The pack is divided into
calls of scaled_dot_product_attention that see little more than they must. A run of tokens without a branch is one
call, whose keys are its ancestors' and its own; so is a whole subtree, or several side by side, of at most ``DENSE``
tokens, under a mask. A call's keys are pieces of a split, never slices: the gradient of every slice is a zero tensor
of the whole pack.

A root of 1,000 tokens with two branches of 600 and 300, and DENSE = 256::

    AttentionCall(1000, ancestors=())       causal
    AttentionCall(600, ancestors=(0,))      sees all 1,000, then itself causally
    AttentionCall(300, ancestors=(0,))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor


class SDPACoreAttention(MegatronModule):
    """Causal grouped-query attention without dropout; the constructor is that of mcore's DotProductAttention."""

    def __init__(self, config: TransformerConfig, *_: Any, softmax_scale: float | None = None, **__: Any) -> None:
        super().__init__(config=config)
        self.softmax_scale = softmax_scale

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *_: Any, packed_seq_params: PackedSeqParams, **__: Any
    ) -> Tensor:
        params = packed_seq_params
        if not isinstance(params, TreeSeqParams):
            # One call per sequence: a block-diagonal mask over the pack would cost the square of its length.
            params = TreeSeqParams(calls=[AttentionCall(tokens) for tokens in params.cu_seqlens_q.diff().tolist()])
        return tree_attention(query, key, value, params, self.softmax_scale)


# --- tries ----------------------------------------------------------------------------------------------------------


DENSE = 256
"""Tokens up to which one masked call beats a call for each branch; from 128 to 384 the pocket update differs by 5%."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The next ``tokens`` of the pack; ``ancestors`` are the calls, by number, that all of them see whole."""

    tokens: int
    ancestors: tuple[int, ...] = ()
    mask: Tensor | None = None
    """``[queries, keys]``, True where visible; None: plainly causal."""


def attention_calls(end: Sequence[int], device: torch.device, dense: int = DENSE) -> list[AttentionCall]:
    """Calls that together make every token a query once, in order."""
    calls: list[AttentionCall] = []
    ends = torch.tensor(end, device=device)
    spans: list[tuple[int, int, tuple[int, ...]]] = [(0, len(end), ())]
    while spans:
        first, stop, ancestors = spans.pop()
        if first == stop:
            continue
        after = end[first]  # of the subtree, or of several that are small together
        while after < stop and end[after] - first <= dense:
            after = end[after]
        spans.append((after, stop, ancestors))
        run = first
        while after - first > dense and run < after and end[run] == after:
            run += 1
        if run == first:  # small
            run = after
        own, mask = torch.arange(first, run, device=device), None
        if ancestors or bool((ends[own] != run).any()):
            before = sum(calls[i].tokens for i in ancestors)
            mask = F.pad(visible(ends, own[:, None], own[None]), (before, 0), value=True)
        calls.append(AttentionCall(run - first, ancestors, mask))
        spans.append((run, after, (*ancestors, len(calls) - 1)))
    return calls


@dataclass
class TreeSeqParams(PackedSeqParams):
    """What megatron-core passes to each layer's attention; made by ``tree_seq_params``."""

    calls: list[AttentionCall] = field(default_factory=list)


def tree_seq_params(end: Sequence[int], deepest: int, device: torch.device, dense: int = DENSE) -> TreeSeqParams:
    """Of the tries whose longest row has ``deepest`` tokens; ``dense`` 0: each row without a branch is a call.

    To megatron-core the pack is one sequence; of a rotary table with as many entries as tokens it takes one after the
    other (``rope_utils._apply_rotary_pos_emb_thd``, case 1), whatever their positions.
    """
    whole = torch.tensor([0, len(end)], dtype=torch.int32, device=device)
    return TreeSeqParams(qkv_format="thd", cu_seqlens_q=whole, cu_seqlens_kv=whole, max_seqlen_q=deepest,
                         max_seqlen_kv=deepest, calls=attention_calls(end, device, dense))


def tree_attention(query: Tensor, key: Tensor, value: Tensor, params: TreeSeqParams, scale: float | None) -> Tensor:
    """Query ``[t, n, d]``, key and value ``[t, g, d]``; result ``[t, n * d]``."""
    sizes = [call.tokens for call in params.calls]
    queries, keys, values = (x.transpose(0, 1).unsqueeze(0).split(sizes, 2) for x in (query, key, value))
    parts = []
    for number, call in enumerate(params.calls):
        seen = [*call.ancestors, number]
        key, value = (torch.cat([x[i] for i in seen], 2) if call.ancestors else x[number] for x in (keys, values))
        causal = call.mask is None
        parts.append(F.scaled_dot_product_attention(
            queries[number], key, value, attn_mask=call.mask, is_causal=causal, scale=scale, enable_gqa=True))
    return torch.cat(parts, 2).squeeze(0).transpose(0, 1).flatten(1)


def visible(end: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Whether token k is visible to token q."""
    return (k <= q) & (q < end[k])
