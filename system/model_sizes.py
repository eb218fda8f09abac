"""What a model's ``config.json`` counts, looked at before a library reads it.

Transformers makes lists of all layers and all labels before it can be asked how many there are, those of a model
inside a model as well: ``text_config``, ``vision_config``. So every object in the file is looked at::

    {"model_type": "gemma3", "text_config": {"num_hidden_layers": 20000000}}   a list that takes minutes
    {"num_labels": 5000000}                                                    3 GB of names
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .model_json import read_object

_FILE = "config.json"
_LAYERS = 2**10
_COUNTS = {
    "num_hidden_layers": _LAYERS, "num_attention_heads": 2**12, "num_key_value_heads": 2**12, "head_dim": 2**16,
    "hidden_size": 2**20, "intermediate_size": 2**20, "vocab_size": 2**24, "max_position_embeddings": 2**30,
}
"""With what no model comes near. Of the model itself these are numbers or absent; of one inside it some are lists."""
_MORE = {
    **_COUNTS, "num_labels": 2**16, "num_classes": 2**16, "n_layer": _LAYERS, "first_k_dense_replace": _LAYERS,
    "attention_types": _LAYERS, "out_indices": _LAYERS,
}
_OF_LAYERS = re.compile(r"(^|_)(layers|blocks|depths?)$")
"""Other names of such a list, as ``n_layers``, ``encoder_layers`` and ``num_nextn_predict_layers``."""


def model_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of the model in ``folder``, whose counts are counts. Raises ConfigError."""
    path = folder / _FILE
    content = read_object(path)
    for key, most in _COUNTS.items():
        if (value := content.get(key)) is not None and (type(value) is not int or not 0 <= value <= most):
            raise ConfigError(f"{path}: {key} is {value!r:.40}, not a number up to {most}")
    for where, value, most in _counted(content):
        if not value <= most:
            raise ConfigError(f"{path}: {where:.80} is {value!r:.40}, not a number up to {most}")
    return content


def check_sizes(folder: Path) -> None:
    """Raises ConfigError as ``model_config`` does; a folder without the file is told by whoever reads it."""
    if (folder / _FILE).is_file():
        model_config(folder)


def _counted(content: dict[str, Any]) -> Iterator[tuple[str, int | float, int]]:
    """(its place, a number, its bound) for each number of a bounded name, however deep it lies."""
    left: list[tuple[str, Any, int | None]] = [("", content, None)]
    while left:
        where, value, most = left.pop()
        if isinstance(value, dict):
            left += [(f"{where[:80]}.{key}" if where else key, held, _bound(key)) for key, held in value.items()]
        elif isinstance(value, list):
            left += [(where, held, most) for held in value]
        elif most is not None and isinstance(value, int | float):
            yield where, value, most


def _bound(key: str) -> int | None:
    return _MORE.get(key) or (_LAYERS if _OF_LAYERS.search(key) else None)
