"""YAML as plain values, whoever wrote it: the one way in which the pack reads settings, prompts and recipes.

PyYAML's safe loader runs nothing, and a file can still hurt: lists in lists end in a RecursionError, nine lines of
aliases stand for a billion values, ``1:1:1:...`` is a number that takes hours, and its own tags raise what their code
happens to raise (``!!int ''`` an IndexError). Here all of that is one line::

    plain_yaml("a: [1, 2]")                  {"a": [1, 2]}
    plain_yaml("a: &t text\\nb: *t")          {"a": "text", "b": "text"}
    plain_yaml("a: &t [text]\\nb: *t")        NotYaml: an alias of more than one value ...
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
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias = self.check_event(yaml.AliasEvent)
        if self._depth == DEEPEST:
            raise NotYaml(f"nested deeper than {DEEPEST}")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and not isinstance(node, yaml.ScalarNode):
            raise NotYaml("an alias of more than one value; write it out")
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise NotYaml(f"a number of {len(node.value)} digits")
        return node
