"""The JSON files of a model's folder, as transformers reads them: with ``NaN`` and ``Infinity``, which some have.

A library takes its settings from any object of such a file, those of a model inside the model as well. So what is
refused is looked for in all of them::

    {"model_type": "llava", "text_config": {"auto_map": {...}}}     objects_in: the whole, text_config, auto_map
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .bounded_json import TooDeep, loads_as_python
from .errors import ConfigError


def read_json(file: Path) -> Any:
    """Raises ConfigError: there is no such file, or it cannot be read, or is no JSON, or is nested too deep."""
    if not file.is_file():
        raise ConfigError(f"{file}: no such file")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    try:
        return loads_as_python(content)
    except TooDeep as error:
        raise ConfigError(f"{file} is {error}") from None
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None


def read_object(file: Path) -> dict[str, Any]:
    """Raises ConfigError, as ``read_json`` does, also for JSON of another kind."""
    content = read_json(file)
    if not isinstance(content, dict):
        raise ConfigError(f"{file} is not a JSON object")
    return content


def objects_in(content: Any) -> Iterator[dict[str, Any]]:
    """``content``, if it is an object, and each one that it holds, however deep."""
    left = [content]
    while left:
        here = left.pop()
        if isinstance(here, dict):
            yield here
            left += here.values()
        elif isinstance(here, list):
            left += here
