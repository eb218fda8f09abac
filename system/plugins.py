"""Classes by name: the pack's own, or a user's from PYTHONPATH or from a file.

    AGENT=memagent                    one of the pack's table
    AGENT=my_package.notes:Notebook   a class of a module that Python can import
    AGENT=/home/ann/notes.py:Notebook a class in a file

A user's class derives from the base class of its kind, and its settings are a frozen dataclass with defaults::

    NOTES_ARGS='most=5 style="short and plain"'   read into   class Settings: most: int = 3; style: str = ""

Whatever is wrong is a ConfigError of one line that names the variable.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from .errors import ConfigError, reason_of

T = TypeVar("T")


@dataclass(frozen=True)
class NoSettings:
    """Of a class that has none."""


def load_class(variable: str, name: str, known: Mapping[str, type[T]], base: type[Any]) -> type[T]:
    """The class that ``variable=name`` means, ready to be made.

    Raises:
        ConfigError: it is not there, cannot be imported, is no ``base``, or lacks a method of it.
    """
    if name in known:
        return known[name]
    place, _, attribute = name.rpartition(":")
    if not place:
        raise ConfigError(f"{variable}={name!r}: allowed: {', '.join(known)}, package.module:Name, or file.py:Name")
    try:
        found = getattr(_module(place), attribute)
    except Exception as error:  # whatever a user's module raises while it is imported
        remedy = "" if place.endswith(".py") else "; add its folder to PYTHONPATH, or name the file, as my.py:Name"
        raise ConfigError(f"{variable}={name!r}: cannot be imported ({reason_of(error)}){remedy}") from error
    wanted = f"{base.__module__}.{base.__qualname__}"
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise ConfigError(f"{variable}={name!r}: {attribute} is no class that derives from {wanted}")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ConfigError(f"{variable}={name!r}: {attribute} has no method {missing[0]}, see {wanted}")
    return cast("type[T]", found)


def absolute_name(name: str) -> str:
    """``name`` with the path of its file made absolute: workers have other working directories."""
    path, attribute = _file_of(name)
    return f"{path.absolute()}:{attribute}" if path else name


def name_by_content(name: str) -> str:
    """``name`` with a digest of its file in place of the path: the same class wherever it lies, another if edited."""
    path, attribute = _file_of(name)
    if not path or not path.is_file():
        return name
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}:{attribute}"


def _file_of(name: str) -> tuple[Path | None, str]:
    place, _, attribute = name.strip().rpartition(":")
    return (Path(place).expanduser() if place.endswith(".py") else None), attribute


def parse_settings(kind: type[T], text: str, variable: str) -> T:
    """The dataclass ``kind`` from words ``name=value``, quoted as in a shell.

    Values are read by the fields' annotations, as pydantic reads texts ("1", "yes", "on" are true), so bounds and
    choices may stand there: ``most: Annotated[int, Field(ge=1)] = 3``, ``style: Literal["short", "long"] = "short"``.

    Raises:
        ConfigError: a word is no such pair, a name is unknown, or a value is not allowed.
    """
    words = shell_words(variable, text)
    known = {f.name: f.default for f in fields(cast("Any", kind))}
    for word in words:
        if "=" not in word or word.partition("=")[0] not in known:
            allowed = " ".join(f"{name}={default!r}" for name, default in known.items()) or "nothing"
            raise ConfigError(f"{variable}: {word!r}: allowed: {allowed}")
    try:
        return cast("T", TypeAdapter(kind).validate_python(dict(word.split("=", 1) for word in words)))
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")  # of a __post_init__
        place = f"{variable}: {first['loc'][0]}={first['input']!r}" if first["loc"] else f"{variable}={text!r}"
        raise cause if isinstance(cause, ConfigError) else ConfigError(f"{place}: {cause or first['msg']}") from None


def shell_words(variable: str, text: str) -> list[str]:
    """Raises ConfigError where a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{variable}={text!r}: {error}; quote it as in a shell") from None


@cache
def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place).expanduser()
    # Dataclasses and pickle look a class's module up by name.
    name = f"mem_agent_user_{path.stem}_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

