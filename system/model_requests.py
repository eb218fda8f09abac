"""What the settings of a model ask a library for beside the model itself, looked at before a library reads them.

Transformers and sentence-transformers take arguments of their own from a model's files, so that these can name another
model, by a path or a hub id, or a library's kernels, which are code::

    config.json     {"attn_implementation": "somebody/kernel"}       code from the hub, where ``kernels`` is installed
    config.json     {"quantization_config": {"quant_method": ...}}   another library, or kernels from the hub
    config.json     {"transformers_weights": "other.bin"}            weights that nobody has looked at
    adapter_config.json {"base_model_name_or_path": "/any/path"}     another model, where ``peft`` is installed
    processor_config.json {"audio_tokenizer": {...}}                 another model, by its name
    model.safetensors.index.json {"weight_map": {"w": "/any/file"}}  another model's weights
    config.json     {"model_type": "dpt", "backbone": "any/name"}    another model's config.json, from the hub

The last is asked for as soon as the file is read, be it for the tokenizer or the shapes alone, with the user's key and
though nothing was to be downloaded. So ``refuse_other_models`` stands before whatever reads a ``config.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .model_json import objects_in, read_json

_NEVER = {
    "quantization_config": "quantized weights, which other libraries read; name the model that is not quantized",
    "transformers_weights": "weights by a name of their own; call them model.safetensors",
    "audio_tokenizer": "another model by its name",
}
_IMPLEMENTATIONS = (
    "attn_implementation", "_attn_implementation", "_attn_implementation_internal",
    "experts_implementation", "_experts_implementation", "_experts_implementation_internal",
)
"""Of transformers' own, which have plain names; a hub id has a slash."""
_CONFIG = "config.json"
_SETTINGS = (_CONFIG, "processor_config.json", "preprocessor_config.json")
_ADAPTER = "adapter_config.json"
_INDEXES = {"model.safetensors.index.json": re.compile(r"[^/]+\.safetensors"),
            "pytorch_model.bin.index.json": re.compile(r"pytorch_model[^/]*\.bin")}
"""With what the parts of a model are called, which lie beside it."""
_OF_BACKBONES = ("backbone", "backbone_kwargs")
"""Of models that see, some forty kinds of which take another's settings from the hub by that name."""
_BY_DEFAULT = "edgetam"
"""Kinds of models that ask the hub for settings of timm's unless they have their own."""


def refuse_other_models(folder: Path) -> None:
    """Raises ConfigError where reading the ``config.json`` in ``folder`` asks for another model, or other folders."""
    for here in _objects_in(folder / _CONFIG):
        for key, value in here.items():
            if asked := _asked_at_once(key, value, here):
                raise ConfigError(f"{folder / _CONFIG}: {key:.40} asks for {asked}")


def refuse_requests(folder: Path) -> None:
    """Raises ConfigError where the model in ``folder`` asks for another one, or for code; as ``refuse_other_models``
    does, and where its weights would be somebody else's, or quantized.
    """
    if (folder / _ADAPTER).exists():
        raise ConfigError(f"{folder / _ADAPTER} names another model, to which this one is added; merge the two first")
    refuse_other_models(folder)
    for name, part in _INDEXES.items():
        for here in _objects_in(folder / name):
            for file in _values_of(here.get("weight_map")):
                if not isinstance(file, str) or not part.fullmatch(file):
                    raise ConfigError(f"{folder / name} names {file!r:.80}, which is no part of a model beside it")
    for name in _SETTINGS:
        for here in _objects_in(folder / name):
            for key, value in here.items():
                if asked := _asked(key, value):
                    raise ConfigError(f"{folder / name}: {key:.40} asks for {asked}")


def _asked_at_once(key: str, value: Any, here: dict[str, Any]) -> str:
    """In words, of an entry of ``here``; empty for nothing."""
    if key in _OF_BACKBONES and value:
        return f"another model, {value!r:.80}"
    if key == "use_timm_backbone" and value is not None and not here.get("backbone_config"):
        return "another model, as there is no backbone_config"
    if key == "model_type" and str(value).startswith(_BY_DEFAULT):
        return "another model, of timm's"
    if (key == "model_type" and value == "rag") or (key == "tokenizer_class" and str(value).startswith("Rag")):
        return "tokenizers in folders of their own"
    return ""


def _asked(key: str, value: Any) -> str:
    """In words; empty for nothing."""
    if key in _NEVER and value:
        return _NEVER[key]
    if key in _IMPLEMENTATIONS and any(isinstance(name, str) and not name.isidentifier() for name in _leaves(value)):
        return f"code from the hub, {value!r:.80}; take the entry out"
    if key == "model_type" and str(value).startswith("timm"):
        return "a model of timm's, by any name of the hub"
    return ""


def _objects_in(file: Path) -> Iterator[dict[str, Any]]:
    """None where there is no such file."""
    return objects_in(read_json(file) if file.is_file() else {})


def _values_of(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else ()


def _leaves(value: Any) -> Iterator[Any]:
    """Of a name, or of names by part of the model."""
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, dict):
            left += here.values()
        elif isinstance(here, list):
            left += here
        else:
            yield here
