"""A weight with its adapter merged, from tensors alone (``lora.py`` says what they are)."""

from __future__ import annotations

import re

import torch
from torch import Tensor

_NAME = re.compile(r"(.+)\.lora\.(a|b|part|scale)")
Shape = tuple[int, ...]
_PROJECTIONS = 3
"""That a weight holds at most: query, key and value."""
FIELDS = ("a", "b", "part", "scale")


def adapted_weight(name: str) -> str | None:
    """The weight that tensor ``name`` of a checkpoint adapts; None for tensors of no adapter."""
    match = _NAME.fullmatch(name)
    return f"{match[1]}.weight" if match else None


def adapter_names(weight: str) -> dict[str, str]:
    """The tensors of the adapter of ``weight``, by field."""
    return {field: f"{weight.removesuffix('.weight')}.lora.{field}" for field in FIELDS}


def fits(weight: Shape, a: Shape, b: Shape, part: Shape, scale: Shape) -> bool:
    """Whether these are the shapes of a weight and of an adapter of it: ``b`` [out, r], ``a`` [p * r, in]."""
    if not len(weight) == len(b) == 2 or b[1] == 0 or scale not in ((), (1,)):
        return False
    (out, columns), rank = weight, b[1]
    return b[0] == out and part == (out,) and a in [(p * rank, columns) for p in range(1, _PROJECTIONS + 1)]


def merged(weight: Tensor, a: Tensor, b: Tensor, part: Tensor, scale: Tensor) -> Tensor:
    """``weight + scale * wide(b) a``, in fp32."""
    return weight.float() + scale * (wide(b, part, len(a)) @ a)


def wide(b: Tensor, part: Tensor, columns: int) -> Tensor:
    """``b`` [out, r] as [out, columns], row i in the columns of projection ``part[i]`` and 0 in all others.

    r = 1, parts 0 1 0::

        b [[3], [4], [5]] -> [[3, 0], [0, 4], [5, 0]]
    """
    rank = b.shape[1]
    parts = columns // rank
    own = part[:, None] == torch.arange(parts, device=part.device)
    return (b[:, None, :] * own[:, :, None]).reshape(len(b), columns)
