"""Texts out of the files of a checkout, which are parsed and never imported or run.

A place is a file and a name in it:

==============================  ==================================================================================
``TEMPLATE``                    Python: the text that is assigned to the name, or attribute, anywhere in the file
``NO_MEMORY_TOKENS()``          Python: the first argument of the call that is assigned to it
``TASKS/niah/template``         Python: an entry of the dictionary of literals that is assigned to it
``prompt_template/user_text``   YAML: an entry of the file
==============================  ==================================================================================
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...system.errors import MemAgentError
from ...system.links import real_path
from ...system.plain_python import LONGEST, NotPlain, parsed, plain_value
from ...system.plain_yaml import plain_yaml


class PublishedError(MemAgentError):
    """A checkout does not hold what is to be read out of it."""


def text_in(checkout: Path, file: str, name: str) -> str:
    """The text of that name.

    Raises:
        PublishedError: the file is missing or cannot be parsed, or has no such text, or several.
    """
    path, (first, *keys) = checkout / file, name.split("/")
    texts = {text for value in _values(checkout, file, first) if isinstance(text := _entry(value, keys), str)}
    if len(texts) != 1:
        raise PublishedError(f"{path}: has {'no text' if not texts else 'several texts'} {name}")
    return texts.pop()


def content_of(checkout: Path, file: str) -> str:
    """Of a file of the checkout itself, which holds little: the longest known one has 19,000 characters.

    Raises:
        OSError, ValueError: there is none, it is no regular file, it lies elsewhere, or is too long.
    """
    path = checkout / file
    if not real_path(path).is_relative_to(real_path(checkout)):
        raise ValueError("it is a link out of the checkout")
    if path.exists() and not path.is_file():
        raise ValueError("it is no regular file")
    with path.open("rb") as opened:
        content = opened.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise ValueError(f"more than {LONGEST} bytes")
    return content.decode()


def _values(checkout: Path, file: str, name: str) -> Iterator[Any]:
    """Plain values of all that is assigned to ``name``; what is none is left out."""
    path = checkout / file
    try:
        content = content_of(checkout, file)
        if path.suffix == ".py":
            yield from _assigned(parsed(content, "exec"), name)
        else:
            yield _entry(plain_yaml(content), [name])
    except FileNotFoundError:
        raise PublishedError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        kind = "" if isinstance(error, NotPlain) else f"{type(error).__name__}: "
        raise PublishedError(f"{path}: cannot be read: {kind}{' '.join(str(error).split())}") from None


def _assigned(tree: ast.AST, name: str) -> Iterator[Any]:
    name, call = name.removesuffix("()"), name.endswith("()")
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if not isinstance(node, ast.Assign | ast.AnnAssign) or name not in map(_called, targets):
            continue
        value = node.value
        if call:
            value = value.args[0] if isinstance(value, ast.Call) and value.args else None
        if value is not None:
            try:
                yield plain_value(value)
            except NotPlain:  # made by the code
                continue


def _called(target: ast.AST | None) -> str:
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def _entry(value: Any, keys: list[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
