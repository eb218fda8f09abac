"""YAML as plain values, whoever wrote it: the one way in which the pack reads settings, prompts and recipes.

PyYAML's safe loader runs nothing, and a file can still hurt: lists in lists end in a RecursionError, nine lines of
aliases stand for a billion values, ``1:1:1:...`` is a number that takes hours, ``"\\uD800"`` is half a character that
can neither be written nor tokenised, and its own tags raise what their code happens to raise (``!!int ''`` an
IndexError). Here all of that is one line::

    plain_yaml("a: [1, 2]")                             {"a": [1, 2]}
    plain_yaml("a: &t [text]\\nb: *t")                  {"a": ["text"], "b": ["text"]}
    plain_yaml("a: 2026-11-23\\nb:", as_written=True)   {"a": "2026-11-23", "b": None}
    plain_yaml("a: &t [*t]")                            YamlBound: an alias of what it stands in

Invariant: what is read, with its aliases written out, has at most _MOST_REPEATED characters more than the file, and is
nowhere deeper than DEEPEST.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

DEEPEST = 32
_LONGEST = 2**20
"""Characters; the loader takes ten seconds for as many."""
_LONGEST_NUMBER = 64
_HALF = re.compile("[\ud800-\udfff]")
_MOST_REPEATED = 2**20
"""Characters that aliases stand for."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NO_TEXTS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")


class NotYaml(ValueError):
    """One line."""


class YamlBound(NotYaml):
    """Of a file that may be YAML, and is more than is read; the line repeats nothing of its text."""


def plain_yaml(text: str, *, as_written: bool = False) -> Any:
    """``as_written``: numbers, dates and words such as yes are texts. Raises NotYaml."""
    if len(text) > _LONGEST:
        raise YamlBound(f"more than {_LONGEST} characters")
    try:
        return yaml.load(text, Loader=_AsWritten if as_written else _Loader)
    except NotYaml:
        raise
    except Exception as error:  # of a tag that does not fit its value, what its code happens to raise
        said = str(error) if isinstance(error, yaml.YAMLError) else f"{type(error).__name__}: {error}"
        raise NotYaml(" ".join(said.split())) from None


def read_plain_yaml(path: str | Path, *, as_written: bool = False) -> Any:
    """Of a file in UTF-8, of which no more is read than the bound. Raises NotYaml, OSError, UnicodeDecodeError."""
    with Path(path).open("rb") as file:
        content = file.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise YamlBound(f"more than {_LONGEST} bytes")
    return plain_yaml(content.decode(), as_written=as_written)


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._within: list[yaml.Node | None] = []
        self._repeated = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias = self.check_event(yaml.AliasEvent)
        depth = len(self._within)
        if depth == DEEPEST:
            raise YamlBound(f"nested deeper than {DEEPEST}")
        self._within.append(parent)
        node: Any = super().compose_node(parent, index)
        if is_alias:
            self._repeat(node, depth)
        self._within.pop()
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise YamlBound(f"a number of {len(node.value)} digits")
        if isinstance(node, yaml.ScalarNode) and (half := _HALF.search(node.value)):
            raise NotYaml(f"half a character, {half[0]!a}, which no text can hold; write the whole one")
        return node

    def _repeat(self, node: yaml.Node, depth: int) -> None:
        """Count what an alias stands for, as if it were written out."""
        self._repeated += 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if self._repeated > _MOST_REPEATED:
            raise YamlBound(f"aliases of more than {_MOST_REPEATED} characters; write out those that are needed")
        if depth == DEEPEST:
            raise YamlBound(f"nested deeper than {DEEPEST}")
        if node in self._within:
            raise YamlBound("an alias of what it stands in")
        for child in _children(node):
            self._repeat(child, depth + 1)


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return chain.from_iterable(node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else ()


class _AsWritten(_Loader):
    yaml_implicit_resolvers = {
        letter: [(tag, form) for tag, form in known if tag in _NO_TEXTS]
        for letter, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
