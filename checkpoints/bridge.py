"""Hugging Face <-> megatron-core: model configuration, parameter names and weight layouts, built on mbridge.

Supported: Qwen2, Qwen3 and Llama (which SmolLM2 is), tied or untied. mbridge does the mapping; this module gives it
the local layer spec, which needs neither CUDA nor Transformer Engine, and refuses what that spec cannot express rather
than train a slightly different model.

* All parameters have one number format, the norms' as well.
* The local spec names its norms ``input_layernorm.weight`` and ``pre_mlp_layernorm.weight``; on disk, and here in
  ``expected_tensors``, they carry the names of fused layers, as checkpoints of slime and vime do.
* The vocabulary is padded to a multiple of the tensor-parallel size. What the padded rows hold never matters: the
  loss gives them probability 0 and exports cut them off.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from mbridge.core import LLMBridge
from mbridge.core.parallel_states import ParallelStates
from mbridge.models import LLaMABridge, Qwen2Bridge, Qwen3Bridge
from megatron.core import tensor_parallel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.spec_utils import ModuleSpec
from transformers import PretrainedConfig

from .attention import SDPACoreAttention
from .hf_folder import hf_shapes, trainable_config
from .megatron_cpu import device, device_mode


class LocalBridge(LLMBridge):
    """What all three architectures share; goes before the stock mbridge class in the bases."""

    _DIRECT_MAPPING: dict[str, str]
    _ATTENTION_MAPPING: dict[str, list[str]]
    _MLP_MAPPING: dict[str, list[str]]

    def __init__(self, hf_config: PretrainedConfig, states: ParallelStates, dtype: torch.dtype) -> None:
        # mbridge writes the entry of a tied output layer into its class dictionary.
        self._DIRECT_MAPPING = dict(self._DIRECT_MAPPING)
        self._MLP_MAPPING = self._MLP_MAPPING | {
            "pre_mlp_layernorm.weight": ["model.layers.{layer_number}.post_attention_layernorm.weight"]
        }
        self._OTHER_MAPPING = {"input_layernorm.weight": ["model.layers.{layer_number}.input_layernorm.weight"]}
        super().__init__(hf_config, dtype, states, make_vocab_size_divisible_by=states.tp_size)
        self.vocab_size = hf_config.vocab_size
        self.padded_vocab_size = -(-self.vocab_size // states.tp_size) * states.tp_size

    def _adjust_mapping_for_shared_weights(self) -> None:
        if self.hf_config.tie_word_embeddings:
            self._DIRECT_MAPPING["output_layer.weight"] = "model.embed_tokens.weight"

    def _build_base_config(self, text_config_key: str | None = None, **kwargs: Any) -> Any:
        return super()._build_base_config(
            text_config_key, **kwargs, use_cpu_initialization=True, calculate_per_token_loss=True,
            sequence_parallel=False,  # torch's RMSNorm does not support it
            attention_dropout=0.0, hidden_dropout=0.0, masked_softmax_fusion=False, bias_activation_fusion=False,
            bias_dropout_fusion=False, gradient_accumulation_fusion=False,
        )

    def _get_transformer_layer_spec(self, vp_stage: int | None = None) -> ModuleSpec:
        self.has_vp_stage = False
        spec = get_gpt_layer_local_spec(qk_layernorm=self.config.qk_layernorm, normalization="RMSNorm")
        spec.submodules.self_attention.submodules.core_attention = SDPACoreAttention
        return spec

    def _get_gptmodel_args(self) -> dict[str, Any]:
        rope = self.hf_config.rope_parameters
        args = {"vocab_size": self.hf_config.vocab_size, "position_embedding_type": "rope",
                "max_sequence_length": self.hf_config.max_position_embeddings, "rotary_base": rope["rope_theta"]}
        if rope["rope_type"] == "llama3":
            args |= {"rope_scaling": True, "rope_scaling_factor": rope["factor"]}
        return args


_STOCK = {"qwen2": Qwen2Bridge, "qwen3": Qwen3Bridge, "llama": LLaMABridge}
_BRIDGES: dict[str, Any] = {kind: type(f"Local{kind}", (LocalBridge, stock), {}) for kind, stock in _STOCK.items()}


def build_bridge(
    hf_dir: str | Path, parallel_states: ParallelStates | None = None, *, dtype: torch.dtype = torch.float32
) -> LocalBridge:
    """The bridge for a Hugging Face folder; without ``parallel_states`` it maps whole, unsharded tensors.

    Raises:
        CheckpointError: it is no model that trains exactly here.
    """
    hf_config = trainable_config(Path(hf_dir))
    if getattr(hf_config, "head_dim", None) is None:
        hf_config.head_dim = hf_config.hidden_size // hf_config.num_attention_heads
    states = parallel_states or ParallelStates(vpp_size=None)
    bridge: LocalBridge = _BRIDGES[hf_config.model_type](hf_config, states, dtype)
    return bridge


def build_model(bridge: LocalBridge) -> GPTModel:
    """A fresh model on this rank's device; its weights are random until loaded."""
    with device_mode():
        model = bridge._model_provider([])(pre_process=True, post_process=True)
        for param in model.parameters():
            tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(param)
        return model.to(device(), bridge.dtype)  # the local norms are float32 otherwise


def expected_tensors(bridge: LocalBridge) -> dict[str, tuple[int, ...]]:
    """Unsharded, unpadded shape of every tensor a checkpoint of this model holds, layer by layer.

    ``decoder.layers.3.self_attention.linear_qkv.weight`` stacks q, k and v: ``[q + k + v rows, hidden]``.
    """
    shapes = hf_shapes(bridge.hf_config)
    per_layer = [key for key in (*bridge._ATTENTION_MAPPING, *bridge._MLP_MAPPING) if "pre_mlp" not in key]
    names = ["embedding.word_embeddings.weight", "decoder.final_layernorm.weight", "output_layer.weight"]
    names += [f"decoder.layers.{i}.{key}" for i in range(bridge.config.num_layers) for key in per_layer]
    expected = {}
    for name in names:
        hf_names = bridge._weight_name_mapping_mcore_to_hf(name)
        if all(hf_name in shapes for hf_name in hf_names):
            parts = [shapes.pop(hf_name) for hf_name in hf_names]
            expected[name] = (sum(part[0] for part in parts), *parts[0][1:])
    assert not shapes, f"no megatron-core tensor maps to {sorted(shapes)}"
    return expected


def to_hf(bridge: LocalBridge, name: str, tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Hugging Face names and tensors of one unsharded megatron-core tensor (vocabulary padding already cut)."""
    return list(zip(*bridge._weight_to_hf_format(name, tensor), strict=True))


def from_hf(bridge: LocalBridge, name: str, read: Callable[[str], torch.Tensor]) -> torch.Tensor:
    """The opposite of ``to_hf``; several tensors become one in float32, which holds every supported number exactly."""
    tensors = [read(hf_name) for hf_name in bridge._weight_name_mapping_mcore_to_hf(name)]
    return tensors[0] if len(tensors) == 1 else bridge._weight_to_mcore_format(name, tensors)
