"""Core attention for megatron-core's local layer spec, on torch's scaled_dot_product_attention.

The stock module refuses packed sequences and builds its causal mask on CUDA. Shapes, with n query heads, g key/value
heads and d channels per head on this tensor-parallel rank::

    query [t, n, d], key and value [t, g, d] -> [t, n * d]

The t tokens are a pack of sequences ("thd"), sequence i at ``cu_seqlens[i]:cu_seqlens[i + 1]``, or of tries, with
``TreeSeqParams``.

**Tries** (``training/tries.py``): token k is visible to token q iff ``k <= q < end[k]``. On a CPU the pack is divided
into calls of scaled_dot_product_attention that see little more than they must. A run of tokens without a branch is one
call, whose keys are its ancestors' and its own; so is a whole subtree, or several side by side, of at most ``DENSE``
tokens, under a mask. A call's keys are pieces of a split, never slices: the gradient of every slice is a zero tensor
of the whole pack.

A root of 1,000 tokens with two branches of 600 and 300, and DENSE = 256::

    AttentionCall(1000, ancestors=())       causal
    AttentionCall(600, ancestors=(0,))      sees all 1,000, then itself causally
    AttentionCall(300, ancestors=(0,))

On a GPU it is one call of FlexAttention, whose block mask leaves out what no query of a block sees. Its forward pass
is tested on a CPU; there it has no backward pass (torch 2.13, ``flex_attention.py``: "does not support backward on
CPU"), and here was no GPU to run it on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention


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
            calls = [AttentionCall(tokens) for tokens in params.cu_seqlens_q.diff().tolist()]
            params = TreeSeqParams(calls=calls, masks=[None] * len(calls))
        return tree_attention(query, key, value, params, self.softmax_scale)


# --- tries ----------------------------------------------------------------------------------------------------------


DENSE = 256
"""Tokens up to which one masked call beats a call for each branch; from 128 to 384 the pocket update differs by 5%."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The next ``tokens`` of the pack; ``ancestors`` are the calls, by number, that all of them see whole."""

    tokens: int
    ancestors: tuple[int, ...] = ()


def attention_calls(end: Sequence[int], dense: int = DENSE) -> list[AttentionCall]:
    """Calls that together make every token a query once, in order."""
    calls: list[AttentionCall] = []
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
        calls.append(AttentionCall(run - first, ancestors))
        spans.append((run, after, (*ancestors, len(calls) - 1)))
    return calls


@dataclass
class TreeSeqParams(PackedSeqParams):
    """What megatron-core passes to each layer's attention; made by ``tree_seq_params``."""

    calls: list[AttentionCall] = field(default_factory=list)
    masks: list[Tensor | None] = field(default_factory=list)
    """Of each call, ``[queries, keys]``, True where visible; None: plainly causal."""
    block_mask: BlockMask | None = None


def tree_seq_params(end: Sequence[int], deepest: int, device: torch.device, dense: int = DENSE) -> TreeSeqParams:
    """Of the tries whose longest row has ``deepest`` tokens; ``dense`` 0: each row without a branch is a call.

    To megatron-core the pack is one sequence; of a rotary table with as many entries as tokens it takes one after the
    other (``rope_utils._apply_rotary_pos_emb_thd``, case 1), whatever their positions.
    """
    whole = torch.tensor([0, len(end)], dtype=torch.int32, device=device)
    params = TreeSeqParams(
        qkv_format="thd", cu_seqlens_q=whole, cu_seqlens_kv=whole, max_seqlen_q=deepest, max_seqlen_kv=deepest,
    )
    ends = torch.tensor(end, device=device)
    if device.type == "cuda":
        params.block_mask = _block_mask(ends)
    else:
        params.calls = attention_calls(end, dense)
        params.masks = _masks(ends, params.calls)
    return params


def tree_attention(query: Tensor, key: Tensor, value: Tensor, params: TreeSeqParams, scale: float | None) -> Tensor:
    """Query ``[t, n, d]``, key and value ``[t, g, d]``; result ``[t, n * d]``."""
    if params.block_mask is not None:
        heads_first = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
        context = _flex(query.is_cuda)(*heads_first, block_mask=params.block_mask, scale=scale, enable_gqa=True)
        return context.squeeze(0).transpose(0, 1).flatten(1)
    sizes = [call.tokens for call in params.calls]
    keys, values = key.transpose(0, 1).split(sizes, 1), value.transpose(0, 1).split(sizes, 1)
    parts = [
        F.scaled_dot_product_attention(
            part.unsqueeze(0), _seen(keys, number, call), _seen(values, number, call),
            attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=True,
        ).squeeze(0)
        for number, (part, call, mask) in enumerate(
            zip(query.transpose(0, 1).split(sizes, 1), params.calls, params.masks, strict=True)
        )
    ]
    return torch.cat(parts, 1).transpose(0, 1).flatten(1)


def _seen(pieces: Sequence[Tensor], number: int, call: AttentionCall) -> Tensor:
    """Keys or values of a call, ``[1, g, keys, d]``."""
    own = pieces[number]
    return (torch.cat([*(pieces[i] for i in call.ancestors), own], 1) if call.ancestors else own).unsqueeze(0)


def _masks(end: Tensor, calls: Sequence[AttentionCall]) -> list[Tensor | None]:
    masks: list[Tensor | None] = []
    start = 0
    for call in calls:
        stop = start + call.tokens
        own = torch.arange(start, stop)
        if call.ancestors or bool((end[own] != stop).any()):
            before = sum(calls[i].tokens for i in call.ancestors)
            masks.append(F.pad(visible(end, own[:, None], own[None]), (before, 0), value=True))
        else:
            masks.append(None)
        start = stop
    return masks


def visible(end: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Whether token k is visible to token q."""
    return (k <= q) & (q < end[k])


# --- tries on a GPU -------------------------------------------------------------------------------------------------


def _block_mask(end: Tensor) -> BlockMask:
    size = end.numel()
    return create_block_mask(lambda _, __, q, k: visible(end, q, k), None, None, size, size, device=end.device.type)


@lru_cache(maxsize=2)
def _flex(compiled: bool) -> Callable[..., Any]:
    """FlexAttention; unfused, it holds all scores."""
    function: Callable[..., Any] = flex_attention
    return torch.compile(function, dynamic=True) if compiled else function
