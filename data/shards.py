"""The files that TRAIN_DATA means: one, or the shards of one set of rows.

::

    data/train.jsonl                           that file
    data/v1121-0/train_0.parquet               that shard alone
    data/v1121-0                               its train_*.parquet
    data/v1121-0/train_*.parquet               those that match
    ["data/v1121-0/train_2.parquet", ...]      those, in this order: MemSifter's TRAIN_FILE

Shards of a folder come in the order of their numbers, 9 before 10. They are parquet files of one folder, and share one
store of documents (``document_store``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from ..system.errors import MemAgentError

SHARDS = "train_*.parquet"
_NUMBERS = re.compile("([0-9]+)")


class ShardError(MemAgentError):
    """TRAIN_DATA leads to no files that belong together; names what it says and what would do."""


def training_files(train_data: str | Path) -> tuple[Path, ...]:
    """The files, at least one. A single file is not looked for. Raises ShardError."""
    text, path = str(train_data), Path(train_data)
    if named := _named(text):
        if absent := [file for file in named if not file.is_file()]:
            raise ShardError(f"TRAIN_DATA={text!r:.120}: {absent[0]}: no such file")
        if len({file.parent.resolve() for file in named}) > 1 or len(set(named)) < len(named):
            raise ShardError(f"TRAIN_DATA={text!r:.120}: expected different files of one folder, which share its "
                             "documents; move them together")
        return _one_set(text, named)
    if path.is_dir():
        return _shards(text, list(path.glob(SHARDS)), f"is a folder without {SHARDS}")
    if "*" in text and not path.exists():
        return _shards(text, list(path.parent.glob(path.name)), "no file matches")
    return (path,)


def is_sharded(train_data: str | Path) -> bool:
    """Whether it is written as anything but one file."""
    text, path = str(train_data), Path(train_data)
    return bool(_named(text)) or path.is_dir() or ("*" in text and not path.exists())


def shard_folder(train_data: str | Path) -> Path:
    """The folder of the files, whether they are there or not."""
    first = next(iter(_named(str(train_data))), Path(train_data))
    return first if first.is_dir() else first.parent


def _named(text: str) -> tuple[Path, ...]:
    """The files of a list; none of any other text. Raises ShardError."""
    if not text.startswith("["):
        return ()
    try:
        return tuple(map(Path, yaml.safe_load(text)))
    except (yaml.YAMLError, TypeError):
        raise ShardError(f'TRAIN_DATA={text!r:.120}: expected a list of files, ["a/train_0.parquet", ...]') from None


def _shards(text: str, files: Sequence[Path], nothing: str) -> tuple[Path, ...]:
    if not files:
        raise ShardError(f"TRAIN_DATA={text!r}: {nothing}; make them with mem-agent prepare-rl-data")
    return _one_set(text, sorted(files, key=_by_number))


def _one_set(text: str, files: Sequence[Path]) -> tuple[Path, ...]:
    if len(files) > 1 and (odd := [file for file in files if file.suffix != ".parquet"]):
        raise ShardError(f"TRAIN_DATA={text!r:.120}: {odd[0].name} is no parquet file; several files are shards in "
                         "parquet, rows in JSON lines go into one file")
    return tuple(files)


def _by_number(path: Path) -> list[str | int]:
    return [int(part) if _NUMBERS.fullmatch(part) else part for part in _NUMBERS.split(path.name)]
