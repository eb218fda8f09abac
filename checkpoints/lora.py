"""Low-rank adapters (LoRA, arXiv 2106.09685) on the projections of attention and MLP of a megatron-core model.

Every projection has one of its own, as if it were a matrix by itself: q, k and v share a matrix W here, and so do gate
and up, but a row of W belongs to one of them. With rank r, p projections in W ``[out, in]`` and ``part[i]`` the
projection of row i::

    a [p * r, in]   random, U(-1/sqrt(in), 1/sqrt(in)) from the run's seed and the module's name
    b [out, r]      zeros, so that a new adapter changes nothing, bit for bit
    wide [out, p * r]   row i: b[i] in the columns of part[i], else 0
    y = W x + scale * wide (a x),    merged W' = W + scale * wide a,    scale = 2

An adapter is a module ``lora`` of the linear module, so that checkpoints carry it under the names below, with all that
a merge needs: whoever reads a checkpoint without a model (``torch_dist.ModelTensors``) sees merged weights. There
is no dropout: a prefix that rows share must be the same for each.

    decoder.layers.3.self_attention.linear_qkv.lora.{a, b, part, scale}
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import tensor_parallel
from torch import Tensor, nn

FIELDS = ("a", "b", "part", "scale")
SCALE = 2.0
"""Alpha over rank: of the usual alpha, twice the rank."""


def wide(b: Tensor, part: Tensor, columns: int) -> Tensor:
    """``b`` [out, r] as [out, columns], row i in the columns of projection ``part[i]`` and 0 in all others.

    r = 1, parts 0 1 0::

        b [[3], [4], [5]] -> [[3, 0], [0, 4], [5, 0]]
    """
    parts = columns // b.shape[1]
    own = part[:, None] == torch.arange(parts, device=part.device)
    return (b[:, None, :] * own[:, :, None]).reshape(len(b), columns)


def merged(weight: Tensor, a: Tensor, b: Tensor, part: Tensor, scale: Tensor) -> Tensor:
    """``weight + scale * wide(b) a``, in fp32."""
    return weight.float() + scale.float() * (wide(b.float(), part, len(a)) @ a.float())


class Adapter(nn.Module):
    """Its output is added to that of its linear module."""

    part: Tensor
    scale: Tensor

    def __init__(self, a: Tensor, part: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.a = nn.Parameter(a)
        self.b = nn.Parameter(a.new_zeros(len(part), rank))
        self.register_buffer("part", part)
        self.register_buffer("scale", a.new_tensor([scale]))
        self.on = True

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.linear(F.linear(x, self.a), wide(self.b, self.part, len(self.a)))


def add_adapters(model: Any, rank: int, seed_for: Callable[[str], int]) -> None:
    """Freeze ``model`` and give each of its projections an adapter, on its device.

    Args:
        seed_for: a seed of its own for each module's name.
    """
    model.requires_grad_(False)
    for name, linear, parts in _projections(model):
        generator = torch.Generator().manual_seed(seed_for(name))
        inputs = linear.weight.shape[1]
        a = torch.empty(len(set(parts)) * rank, inputs).uniform_(-1, 1, generator=generator) / math.sqrt(inputs)
        device = linear.weight.device
        linear.lora = Adapter(a.to(linear.weight), torch.tensor(parts, dtype=torch.uint8, device=device), rank, SCALE)
        for parameter in linear.lora.parameters():
            tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
        linear.register_forward_hook(_add_output)


def _add_output(linear: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor | None]) -> Any:
    return (output[0] + linear.lora(inputs[0]), output[1]) if linear.lora.on else output


def _projections(model: Any) -> Iterator[tuple[str, Any, list[int]]]:
    """(name, module, the projection of each row of its weight). Query, key and value alternate by group of heads."""
    config = model.config
    groups, head = config.num_query_groups, config.kv_channels
    queries = config.num_attention_heads // groups * head
    parts = {
        "self_attention.linear_qkv": ([0] * queries + [1] * head + [2] * head) * groups,
        "self_attention.linear_proj": [0] * config.hidden_size,
        "mlp.linear_fc1": [0] * config.ffn_hidden_size + [1] * config.ffn_hidden_size,
        "mlp.linear_fc2": [0] * config.hidden_size,
    }
    for layer, block in enumerate(model.decoder.layers):
        for name, of_rows in parts.items():
            yield f"decoder.layers.{layer}.{name}", block.get_submodule(name), of_rows


def adapters(model: Any) -> list[Adapter]:
    return [module for module in model.modules() if isinstance(module, Adapter)]


@contextlib.contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """The model as it was before it had any, for as long as the block lasts."""
    found = adapters(model)
    for adapter in found:
        adapter.on = False
    try:
        yield
    finally:
        for adapter in found:
            adapter.on = True


def merged_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a plain model that computes the same, one at a time."""
    for name, weight in model.named_parameters():
        if ".lora." in name:
            continue
        linear = model.get_submodule(name.rpartition(".")[0])
        adapter = getattr(linear, "lora", None) if name.endswith(".weight") else None
        yield name, merged(weight, adapter.a, adapter.b, adapter.part, adapter.scale) if adapter else weight
