"""Low-rank adapters (LoRA, arXiv 2106.09685) on the linear layers of attention and MLP of a megatron-core model.

Each of a layer's four matrices W ``[out, in]`` has one: q, k, v stacked, o, gate and up stacked, down. With rank r::

    a [r, in]    random, U(-1/sqrt(in), 1/sqrt(in)) from the run's seed and the module's name
    b [out, r]   zeros, so that a new adapter changes nothing, bit for bit
    y = W x + 2 b (a x),    merged W' = W + 2 b a

An adapter is a module ``lora`` of the linear module, so that checkpoints carry it under the names below; whoever reads
a checkpoint without a model (``torch_dist.ModelTensors``) sees merged weights. There is no dropout: a prefix that rows
share must be the same for each.

    decoder.layers.3.self_attention.linear_qkv.lora.{a, b}
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

SCALE = 2.0
"""Alpha over rank: of the usual alpha, twice the rank."""
_LINEAR = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")


def merged(weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``weight + SCALE * b a``, in fp32."""
    return weight.float() + SCALE * (b.float() @ a.float())


class Adapter(nn.Module):
    """Its output is added to that of its linear module."""

    def __init__(self, a: Tensor, outputs: int) -> None:
        super().__init__()
        self.a = nn.Parameter(a)
        self.b = nn.Parameter(a.new_zeros(outputs, len(a)))
        self.on = True

    def forward(self, x: Tensor) -> Tensor:
        return SCALE * F.linear(F.linear(x, self.a), self.b)


def add_adapters(model: Any, rank: int, seed_for: Callable[[str], int]) -> None:
    """Freeze ``model`` and give each of its linear modules an adapter, on its device.

    Args:
        seed_for: a seed of its own for each module's name.
    """
    model.requires_grad_(False)
    for layer, block in enumerate(model.decoder.layers):
        for name in _LINEAR:
            linear = block.get_submodule(name)
            outputs, inputs = linear.weight.shape
            generator = torch.Generator().manual_seed(seed_for(f"decoder.layers.{layer}.{name}"))
            a = torch.empty(rank, inputs).uniform_(-1, 1, generator=generator) / math.sqrt(inputs)
            linear.lora = Adapter(a.to(linear.weight), outputs)
            for parameter in linear.lora.parameters():
                tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(parameter)
            linear.register_forward_hook(_add_output)


def _add_output(linear: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor | None]) -> Any:
    return (output[0] + linear.lora(inputs[0]), output[1]) if linear.lora.on else output


def adapters(model: Any) -> list[Adapter]:
    return [module for module in model.modules() if isinstance(module, Adapter)]


@contextlib.contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """The model as it was before it had any, for as long as the block lasts."""
    for adapter in adapters(model):
        adapter.on = False
    try:
        yield
    finally:
        for adapter in adapters(model):
            adapter.on = True


def merged_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a plain model that computes the same, one at a time."""
    parameters = dict(model.named_parameters())
    for name, weight in parameters.items():
        adapter = f"{name.removesuffix('.weight')}.lora"
        if f"{adapter}.a" in parameters:
            yield name, merged(weight, parameters[f"{adapter}.a"], parameters[f"{adapter}.b"])
        elif ".lora." not in name:
            yield name, weight
