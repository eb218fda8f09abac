"""``--spec mem_agent.rehearsal.layer_spec layers``: Megatron's decoder layer without Transformer Engine.

Module by module and name by name it is Transformer Engine's: the RMSNorm in front of a column-parallel layer is a
weight of that layer (``linear_qkv.layer_norm_weight``). So the hosts' tables of Hugging Face names, and torch_dist
checkpoints written on a cluster, fit as they are. Attention is that of the embedded host.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch import Tensor

from ..checkpoints.attention import SDPACoreAttention


class RMSNorm(torch.nn.Module):
    """RMSNorm whose weight is marked where, with sequence parallelism, each rank's gradient is only a part."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        self.eps = eps
        self.weight = _norm_weight(config, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


class NormColumnParallelLinear(ColumnParallelLinear):
    """RMSNorm, then a column-parallel layer."""

    def __init__(self, input_size: int, output_size: int, *, config: TransformerConfig, **options: Any) -> None:
        super().__init__(input_size, output_size, config=config, **options)
        self.layer_norm_weight = _norm_weight(config, input_size)

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Any:
        normed = F.rms_norm(x, x.shape[-1:], self.layer_norm_weight, self.config.layernorm_epsilon)
        return super().forward(normed, *args, **options)


def _norm_weight(config: TransformerConfig, size: int) -> torch.nn.Parameter:
    assert config.normalization == "RMSNorm", config.normalization
    weight = torch.nn.Parameter(torch.ones(size, dtype=config.params_dtype))
    weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return weight


def layers(args: Any, config: TransformerConfig, vp_stage: int | None = None) -> TransformerBlockSubmodules:
    """The decoder layers of this pipeline stage and the norm behind the last one."""
    qk_norm = RMSNorm if args.qk_layernorm else IdentityOp
    attention = SelfAttentionSubmodules(
        linear_qkv=NormColumnParallelLinear,
        core_attention=SDPACoreAttention,
        linear_proj=RowParallelLinear,
        q_layernorm=qk_norm,
        k_layernorm=qk_norm,
    )
    causal = {"attn_mask_type": AttnMaskType.causal}
    layer = TransformerLayerSubmodules(
        self_attention=ModuleSpec(module=SelfAttention, params=causal, submodules=attention),
        self_attn_bda=get_bias_dropout_add,
        mlp=ModuleSpec(
            module=MLP, submodules=MLPSubmodules(linear_fc1=NormColumnParallelLinear, linear_fc2=RowParallelLinear)
        ),
        mlp_bda=get_bias_dropout_add,
    )
    count = get_num_layers_to_build(config, vp_stage)
    return TransformerBlockSubmodules(
        layer_specs=[ModuleSpec(module=TransformerLayer, submodules=layer)] * count, layer_norm=RMSNorm
    )
