"""``--spec mem_agent.rehearsal.layer_spec layers``: Megatron's decoder layer without Transformer Engine.

Module by module and name by name it is Transformer Engine's: the RMSNorm in front of a column-parallel layer is a
weight of that layer (``linear_qkv.layer_norm_weight``). So the hosts' tables of Hugging Face names, and torch_dist
checkpoints written on a cluster, fit as they are. Attention is that of the embedded host.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import ColumnParallelLinear
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from ..checkpoints.attention import SDPACoreAttention


class RMSNorm(torch.nn.RMSNorm):
    """RMSNorm whose weight is marked where, with sequence parallelism, each rank's gradient is only a part."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps, dtype=config.params_dtype)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


class NormColumnParallelLinear(ColumnParallelLinear):
    """RMSNorm, then a column-parallel layer."""

    def __init__(self, input_size: int, output_size: int, *, config: TransformerConfig, **options: Any) -> None:
        super().__init__(input_size, output_size, config=config, **options)
        self.layer_norm_weight = RMSNorm(config, input_size).weight

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Any:
        normed = F.rms_norm(x, x.shape[-1:], self.layer_norm_weight, self.config.layernorm_epsilon)
        return super().forward(normed, *args, **options)


def layers(args: Any, config: TransformerConfig, vp_stage: int | None = None) -> TransformerBlockSubmodules:
    """The decoder layers of this pipeline stage and the norm behind the last one."""
    spec = get_gpt_layer_local_spec()
    layer, attention = spec.submodules, spec.submodules.self_attention.submodules
    layer.input_layernorm = layer.pre_mlp_layernorm = IdentityOp
    layer.sharded_state_dict_keys_map = {}  # that of norms in front of the layers
    attention.linear_qkv = layer.mlp.submodules.linear_fc1 = NormColumnParallelLinear
    attention.core_attention = SDPACoreAttention
    attention.q_layernorm = attention.k_layernorm = RMSNorm if args.qk_layernorm else IdentityOp
    return TransformerBlockSubmodules(
        layer_specs=[spec] * get_num_layers_to_build(config, vp_stage), layer_norm=RMSNorm
    )
