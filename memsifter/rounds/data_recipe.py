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

import yaml
from pydantic import BaseModel, NonNegativeInt, ValidationError

from ...system.errors import MemAgentError

SPLITS = ("train", "test")


class RecipeError(MemAgentError):
    """The recipe cannot be used; one line with its file, the place and what is expected there."""


@dataclass(frozen=True, slots=True)
class DataRecipe:
    """Questions by data set, in the order of the file."""

    train: Mapping[str, int]
    test: Mapping[str, int]

    def of(self, split: str) -> Mapping[str, int]:
        return {"train": self.train, "test": self.test}[split]


class _Splits(BaseModel, extra="forbid"):
    train: dict[str, NonNegativeInt] | None = None
    test: dict[str, NonNegativeInt] | None = None


class _File(_Splits):
    memory_datasets: _Splits | None = None
    deepsearch_datasets: _Splits | None = None


def read_recipe(path: Path) -> DataRecipe:
    """Raises RecipeError."""
    try:
        content = _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise RecipeError(f"{path}: {place}: {first['msg']}, not {first['input']!r:.40}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RecipeError(f"{path}: {' '.join(str(error).split())[:160]}") from None
    found: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for part in (content.memory_datasets, content.deepsearch_datasets, content):
        for split in SPLITS:
            for name, count in (getattr(part, split, None) or {}).items():
                if found[split].setdefault(name, count) != count:
                    raise RecipeError(f"{path}: {split}.{name}: {count}, and {found[split][name]} before; leave one")
    train, test = ({name: count for name, count in found[split].items() if count} for split in SPLITS)
    if not train:
        raise RecipeError(f"{path}: no data set to train; expected one under memory_datasets.train, say")
    return DataRecipe(train, test)
