"""Core attention for megatron-core's local layer spec, on torch's scaled_dot_product_attention.

The stock module refuses packed sequences and builds its causal mask on CUDA. Shapes, with n query heads, g key/value
heads and d channels per head on this tensor-parallel rank:

* packed ("thd"): query ``[t, n, d]``, key and value ``[t, g, d]``, sequence i at ``cu_seqlens[i]:cu_seqlens[i + 1]``,
  result ``[t, n * d]``; or tries, with ``tree_attention.TreeSeqParams``;
* padded ("sbhd"): query ``[s, b, n, d]``, result ``[s, b, n * d]``; padding must come last, as the mask is causal.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from .tree_attention import TreeSeqParams, tree_attention


class SDPACoreAttention(MegatronModule):
    """Causal grouped-query attention without dropout; the constructor is that of mcore's DotProductAttention."""

    def __init__(
        self, config: TransformerConfig, layer_number: int, attn_mask_type: AttnMaskType, attention_type: str,
        softmax_scale: float | None = None, **_: Any,
    ) -> None:
        super().__init__(config=config)
        assert attn_mask_type == AttnMaskType.causal and config.attention_dropout == 0.0
        self.softmax_scale = softmax_scale

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
        attn_mask_type: AttnMaskType | None = None, attention_bias: Tensor | None = None,
        packed_seq_params: PackedSeqParams | None = None,
    ) -> Tensor:
        assert attention_mask is None and attention_bias is None, "the mask is causal, nothing else"
        if packed_seq_params is None:
            context = self._attend(*(x.permute(1, 2, 0, 3) for x in (query, key, value)))
            return context.permute(2, 0, 1, 3).flatten(2)
        if isinstance(packed_seq_params, TreeSeqParams):
            return tree_attention(query, key, value, packed_seq_params, self.softmax_scale)
        # One call per sequence: a block-diagonal mask over the pack would cost the square of its length.
        sizes = packed_seq_params.cu_seqlens_q.diff().tolist()
        parts = [
            self._attend(*(x.transpose(0, 1).unsqueeze(0) for x in qkv))
            for qkv in zip(*(x.split(sizes) for x in (query, key, value)), strict=True)
        ]
        return torch.cat([part.squeeze(0).transpose(0, 1) for part in parts]).flatten(1)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """All ``[b, heads, s, d]``."""
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=self.softmax_scale, enable_gqa=True
        )
