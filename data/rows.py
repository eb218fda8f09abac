"""Rows of data files and Hugging Face datasets, a few at a time, and the count of those that cannot be used.

=========  ===========================================================================================
.jsonl     one object a line
.json      a list of objects, one object, one object a line, or an original SQuAD file (its questions)
.csv       the first line names the columns
.parquet   read in batches: write files of long documents with ``write_batch_size=16``
hub        a Hugging Face dataset, streamed
=========  ===========================================================================================

A row that cannot be read is yielded with the reason; whatever ends the reading is a DataError that names the file.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ijson
import orjson
from tqdm import tqdm

from ..system.errors import MemAgentError, reason_of
from ..system.text import one_line

BATCH_ROWS = 16
_LONGEST_CELL = 1 << 27
_LIST_COLUMNS = frozenset({"answers", "answer_aliases", "paragraphs", "haystack_session_ids", "haystack_dates",
                           "answer_session_ids"})
"""Columns of a CSV whose cells may hold a list as JSON; ``answer`` and ``context`` are always text."""
_SHOWN = 20
"""Bad rows that are named one by one."""


class DataError(MemAgentError):
    """Data or options that cannot be used; names the file or option and the remedy."""


class BadRow(MemAgentError, ValueError):
    """A row that cannot be used; says which field and why."""


class NoGoodRows(MemAgentError):
    """There is nothing to write."""


class NotJson(ValueError):
    """A list that is not JSON; says after which element."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    where: str
    """``row 3`` or ``line 3``, counted from 1."""
    fields: dict[str, Any] | None
    problem: str = ""
    """Why ``fields`` is None."""


@dataclass(frozen=True, slots=True)
class Source:
    rows: Iterator[SourceRow]
    total: int | None = None
    """Number of rows, where the format tells."""


def open_file(path: Path) -> Source:
    """The rows of a file. Raises DataError."""
    readers = {".jsonl": _json_rows, ".json": _json_rows, ".csv": _csv_rows}
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with _reading(path):
            parquet = pq.ParquetFile(path, pre_buffer=False)
        batches = parquet.iter_batches(batch_size=BATCH_ROWS)
        rows = (row for batch in batches for row in batch.to_pylist())
        return Source(_rows_of(path, _numbered(rows)), parquet.metadata.num_rows)
    if path.suffix not in readers:
        raise DataError(f"{path}: unknown kind of file {path.suffix!r}; allowed: .parquet, {', '.join(readers)}")
    return Source(_rows_of(path, readers[path.suffix](path)))


@contextmanager
def _reading(name: Path | str) -> Iterator[None]:
    try:
        yield
    except MemAgentError:
        raise
    except Exception as error:  # the readers and the hub client raise their own, HTTP, file and value errors alike
        raise DataError(f"{name}: cannot be read ({reason_of(error)})") from None


def _rows_of(name: Path | str, rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
    with _reading(name):
        yield from rows


def _row(where: str, value: Any) -> SourceRow:
    if isinstance(value, dict):
        return SourceRow(where, value)
    return SourceRow(where, None, f"expected an object, found {type(value).__name__}")


def _numbered(rows: Iterable[Any]) -> Iterator[SourceRow]:
    return (_row(f"row {number}", row) for number, row in enumerate(rows, start=1))


# --- JSON ------------------------------------------------------------------------------------------------------------
def _json_rows(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as file:
        start = file.read(4096).lstrip()
        file.seek(0)
        if path.suffix == ".jsonl" and not start.startswith((b"{\n", b"{\r", b"[\n", b"[\r")):
            yield from _line_rows(file)
        elif start.startswith(b"["):
            yield from _numbered(json_list(file))
        else:
            yield from _object_rows(file)


def _object_rows(file: BinaryIO) -> Iterator[SourceRow]:
    """One object, printed over many lines or not, or one a line."""
    try:
        whole = orjson.loads(file.read())
    except orjson.JSONDecodeError as error:
        file.seek(0)
        lines = _line_rows(file)
        first = next(lines, None)
        if first is None or first.fields is None:
            raise ValueError(f"neither one JSON value nor one a line: {error}") from None
        yield first
        yield from lines
        return
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        yield from (_row(f"article {number}", fields) for number, fields in squad_rows(whole["data"]))
    else:
        yield _row("row 1", whole)


def _line_rows(file: BinaryIO) -> Iterator[SourceRow]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                yield _row(f"line {number}", orjson.loads(line))
            except orjson.JSONDecodeError as error:
                yield SourceRow(f"line {number}", None, f"not valid JSON ({error}); mend or remove it")


def json_list(file: BinaryIO) -> Iterator[Any]:
    """The elements of one JSON list, one at a time in memory. Raises NotJson."""
    number = 0
    try:
        for element in ijson.items(file, "item", use_float=True):
            yield element
            number += 1
    except ijson.JSONError as error:
        raise NotJson(f"not JSON after {number} entries ({reason_of(error)})") from None


def squad_rows(articles: Iterable[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The questions of an original SQuAD file's ``data``, each with the number of its article. Raises ValueError."""
    for number, article in enumerate(articles, start=1):
        try:
            for paragraph in article["paragraphs"]:
                for qa in paragraph["qas"]:
                    texts = [] if qa.get("is_impossible") else [answer["text"] for answer in qa["answers"]]
                    yield number, {"id": qa.get("id"), "question": qa["question"], "answers": {"text": texts},
                                   "title": article.get("title"), "context": paragraph["context"]}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"article {number} is not as in SQuAD files ({reason_of(error)})") from None


# --- CSV -------------------------------------------------------------------------------------------------------------
def _csv_rows(path: Path) -> Iterator[SourceRow]:
    csv.field_size_limit(_LONGEST_CELL)
    with path.open(encoding="utf-8-sig", newline="") as text:
        rows = csv.DictReader(text, restkey="", strict=True)
        rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
        for fields in rows:
            where = f"line {rows.line_num}"
            if "" in fields or None in fields.values():
                yield SourceRow(where, None, f"not the {len(rows.fieldnames)} cells that the first line names")
            else:
                yield SourceRow(where, {name: _cell(name, cell) for name, cell in fields.items()})


def _cell(name: str, text: str) -> Any:
    """The text of a cell, or the list whose JSON text it is; None for an empty one."""
    if name in _LIST_COLUMNS and text.startswith("["):
        with suppress(ValueError):
            return orjson.loads(text)
    return text or None


# --- Hugging Face ----------------------------------------------------------------------------------------------------
def open_dataset(name: str, split: str, revision: str | None = None, config: str | None = None) -> Source:
    """The rows of one split of a Hugging Face dataset, of its only configuration unless one is named, streamed.

    Repositories that mix formats, such as parquet for training beside JSON for evaluation, cannot be loaded as a
    whole; of those, the files with the split's name as a word of their own name are read. Raises DataError.
    """
    where = f"{name}: split {split!r}"
    with _reading(where):
        return Source(_rows_of(where, _numbered(_dataset(name, split, revision, config))))


def _dataset(name: str, split: str, revision: str | None, config: str | None) -> Any:
    from datasets import load_dataset  # slow to import; local files do without

    try:
        return load_dataset(name, config, split=split, revision=revision, streaming=True)
    except ValueError as error:
        if "same data file format" not in str(error):
            raise
    for suffix in ("parquet", "jsonl", "json", "csv"):
        for pattern in (f"**/*[-_.]{split}[-_.]*{suffix}", f"**/{split}[-_.]*{suffix}"):
            with suppress(FileNotFoundError):
                return load_dataset(name, split=split, revision=revision, data_files={split: pattern}, streaming=True)
    raise DataError(f"{name}: no file is named after the split {split!r}")


# --- bad rows --------------------------------------------------------------------------------------------------------
class BadRows:
    """Skipped rows: the first 20 are named on standard error, all are counted by reason; ``strict`` ends at one."""

    def __init__(self, command: str, *, strict: bool) -> None:
        self._command, self._strict = command, strict
        self._reasons: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self._reasons.total()

    def add(self, text: str) -> None:
        """``text`` is ``where: reason (details); remedy``. Raises NoGoodRows under ``strict``."""
        text = one_line(text, 1000)
        if self._strict:
            raise NoGoodRows(f"{text} (--strict: nothing is written)")
        reason = text.partition(": ")[2].partition(" (")[0].partition(";")[0]
        self._reasons[reason] += 1
        if self.count <= _SHOWN:
            tqdm.write(f"{self._command}: bad row left out, {text}", file=sys.stderr)

    def tell_rest(self) -> None:
        """How many rows more than the shown ones there are, and how many of each reason in all."""
        if self.count > _SHOWN:
            reasons = ", ".join(f"{count} x {reason}" for reason, count in self._reasons.most_common(10))
            rest = f"{self.count - _SHOWN} more bad rows not shown"
            print(f"{self._command}: {rest}; in all: {reasons}", file=sys.stderr)
