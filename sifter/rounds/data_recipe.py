"""Which data sets a round trains and is tested on, and with how many questions each.

::

    memory_datasets:
      train: {locomo: 500, zh4o: 500}
      test: {locomo: 60}
    deepsearch_datasets:
      train: {HotpotQA: 750}

``train`` and ``test`` may also stand by themselves, as in older recipes of MemSifter, whose code at 92f0eae reads both
(``data/rl_train_data_propare.py``). 0 leaves a data set out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...system.errors import MemAgentError
from ...system.plain_yaml import read_plain_yaml

SPLITS = ("train", "test")
_KINDS = ("memory_datasets", "deepsearch_datasets")


class RecipeError(MemAgentError):
    """The recipe cannot be used; one line with its file, the place and what is expected there."""


@dataclass(frozen=True, slots=True)
class DataRecipe:
    """Questions by data set, in the order of the file."""

    train: Mapping[str, int]
    test: Mapping[str, int]

    def of(self, split: str) -> Mapping[str, int]:
        return {"train": self.train, "test": self.test}[split]


def read_recipe(path: Path) -> DataRecipe:
    """Raises RecipeError."""
    try:
        content = read_plain_yaml(path)
    except (OSError, ValueError) as error:
        raise RecipeError(f"{path}: {' '.join(str(error).split())[:160]}") from None
    if not isinstance(content, dict):
        raise RecipeError(f"{path}: expected a mapping with {' or '.join(_KINDS)}, each with train and test")
    if strange := [key for key in content if key not in (*_KINDS, *SPLITS)]:
        raise RecipeError(f"{path}: unknown key {strange[0]!r}; allowed: {', '.join((*_KINDS, *SPLITS))}")
    found: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for kind in _KINDS:
        part = content.get(kind) or {}
        if not isinstance(part, dict) or (strange := [key for key in part if key not in SPLITS]):
            raise RecipeError(f"{path}: {kind}: expected {' and '.join(SPLITS)}, each a mapping of data sets")
        for split in SPLITS:
            _add(path, f"{kind}.{split}", part.get(split), found[split])
    for split in SPLITS:
        _add(path, split, content.get(split), found[split])
    if not found["train"]:
        raise RecipeError(f"{path}: no data set to train; expected one under memory_datasets.train, say")
    return DataRecipe(found["train"], found["test"])


def _add(path: Path, place: str, counts: Any, found: dict[str, int]) -> None:
    if counts is None:
        return
    if not isinstance(counts, dict):
        raise RecipeError(f"{path}: {place}: expected data sets with a number of questions each, not {counts!r:.40}")
    for name, count in counts.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise RecipeError(f"{path}: {place}: {name!r:.40} is no name of a data set")
        if type(count) is not int or count < 0:
            raise RecipeError(f"{path}: {place}.{name}: expected a number of questions, not {count!r:.40}")
        if found.get(name, count) != count:
            raise RecipeError(f"{path}: {place}.{name}: {count}, and {found[name]} elsewhere; leave one")
        if count:
            found[name] = count
