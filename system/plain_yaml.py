"""YAML as plain values, whoever wrote it: the one way in which the pack reads settings, prompts and recipes.

PyYAML's safe loader runs nothing, and a file can still hurt: lists in lists end in a RecursionError, nine lines of
aliases stand for a billion values, ``1:1:1:...`` is a number that takes hours, and its own tags raise what their code
happens to raise (``!!int ''`` an IndexError). Here all of that is one line, and an alias counts as what it stands for,
in length and in depth, as if that were written out::

    plain_yaml("a: [1, 2]")                           {"a": [1, 2]}
    plain_yaml("a: &t [text]\\nb: *t")                 {"a": ["text"], "b": ["text"]}
    plain_yaml("a: &t [text]\\nb: &u [*t, *t] ...")    NotYaml: aliases that stand for more than 1048576 characters
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEEPEST = 32
_LONGEST = 2**20
"""Characters; the loader takes ten seconds for as many."""
_LONGEST_NUMBER = 64
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class NotYaml(ValueError):
    """One line."""


def plain_yaml(text: str) -> Any:
    """Raises NotYaml."""
    if len(text) > _LONGEST:
        raise NotYaml(f"more than {_LONGEST} characters")
    try:
        return yaml.load(text, Loader=_Loader)
    except Exception as error:  # of a tag that does not fit its value, what its code happens to raise
        said = str(error) if isinstance(error, NotYaml | yaml.YAMLError) else f"{type(error).__name__}: {error}"
        raise NotYaml(" ".join(said.split())) from None


def read_plain_yaml(path: str | Path) -> Any:
    """Of a file in UTF-8, of which no more is read than the bound. Raises NotYaml, OSError, UnicodeDecodeError."""
    with Path(path).open("rb") as file:
        content = file.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise NotYaml(f"more than {_LONGEST} bytes")
    return plain_yaml(content.decode())


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._lowest = 0
        """Of the node that is read, and of the lowest in it so far."""
        self._length = 0
        self._anchored: dict[yaml.Node, tuple[int, int]] = {}
        """How far a whole node reaches down, and its length."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, lowest_before, length_before = self.peek_event(), self._lowest, self._length
        self._depth += 1
        self._lowest = self._depth
        self._check_depth()
        node = super().compose_node(parent, index)
        assert node is not None
        if isinstance(event, yaml.AliasEvent):
            self._add(node)
        else:
            self._length += 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if event.anchor:
            self._anchored[node] = self._lowest - self._depth, self._length - length_before
        self._depth -= 1
        self._lowest = max(lowest_before, self._lowest)
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise NotYaml(f"a number of {len(node.value)} digits")
        return node

    def _add(self, node: yaml.Node) -> None:
        """What an alias stands for."""
        if node not in self._anchored:
            raise NotYaml("an alias within what it stands for")
        depth, length = self._anchored[node]
        self._lowest += depth
        self._length += length
        self._check_depth()
        if self._length > _LONGEST:
            raise NotYaml(f"aliases that stand for more than {_LONGEST} characters; write fewer")

    def _check_depth(self) -> None:
        if self._lowest > DEEPEST:
            raise NotYaml(f"nested deeper than {DEEPEST}")
