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
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from .errors import ConfigError

T = TypeVar("T")
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


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
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise ConfigError(f"{variable}={name!r}: allowed: {', '.join(known)}, package.module:Name, or file.py:Name")
    found = getattr(_module(variable, name, place), attribute, None)
    if not inspect.isclass(found):
        raise ConfigError(f"{variable}={name!r}: {place} has no class {attribute}")
    if not issubclass(found, base):
        raise ConfigError(f"{variable}={name!r}: {attribute} does not derive from {_path(base)}")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ConfigError(f"{variable}={name!r}: {attribute} has no method {missing[0]}, see {_path(base)}")
    return cast("type[T]", found)


def make(variable: str, name: str, kind: Callable[[Any], T], settings: Any) -> T:
    """An object of a class that ``load_class`` has found. Raises ConfigError where it cannot be made."""
    try:
        return kind(settings)
    except ConfigError:
        raise
    except Exception as error:  # whatever a user's class raises while it is made
        raise ConfigError(f"{variable}={name!r}: cannot be made ({_reason(error)})") from error


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

    Raises:
        ConfigError: a word is no such pair, a name is unknown, or a value has not the type of the field's default.
    """
    by_name = {f.name: f for f in _settings_fields(kind, variable)}
    values: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{variable}={text!r}: {error}; quote it as in a shell") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in by_name:
            allowed = " ".join(f"{known}={f.default!r}" for known, f in by_name.items()) or "nothing"
            raise ConfigError(f"{variable}: {word!r}: allowed: {allowed}")
        values[name] = parse_value(f"{variable}: {name}", value, type(by_name[name].default))
    return make(variable, text, lambda given: kind(**given), values)


def _settings_fields(kind: type, variable: str) -> tuple[Field[Any], ...]:
    if not is_dataclass(kind):
        raise ConfigError(f"{variable}: {_path(kind)} is no dataclass; its fields and their defaults are the settings")
    for f in fields(kind):
        if type(f.default) not in (bool, int, float, str):
            raise ConfigError(f"{variable}: {_path(kind)}.{f.name} needs a default: a bool, int, float or str")
    return fields(kind)


def parse_value(name: str, value: Any, kind: type) -> Any:
    """``value``, a string or typed already, as bool, int, float or str. Raises ConfigError, which names ``name``."""
    text = str(value).strip()
    if kind is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ConfigError(f"{name}={value!r}: allowed: 1 or 0")
    if kind is str:
        return str(value)
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{name}={value!r}: allowed: {kind_of_number(kind)}") from None


def kind_of_number(kind: type) -> str:
    return {int: "a whole number", float: "a number"}[kind]


@cache
def _module(variable: str, name: str, place: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _module_of_file(Path(place).expanduser())
        return importlib.import_module(place)
    except Exception as error:  # whatever a user's module raises while it is imported
        unknown = isinstance(error, ModuleNotFoundError) and error.name == place.partition(".")[0]
        remedy = "; add its folder to PYTHONPATH, or name the file, as my.py:Name" if unknown else ""
        raise ConfigError(f"{variable}={name!r}: {place} cannot be imported ({_reason(error)}){remedy}") from error


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    # Dataclasses and pickle look a class's module up by name.
    name = f"mem_agent_user_{path.stem}_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _path(base: type) -> str:
    return f"{base.__module__}.{base.__qualname__}"
