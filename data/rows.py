"""Rows of data files and Hugging Face datasets, a few at a time, and the count of those that cannot be used.

=========  ===========================================================================================
.jsonl     one object a line
.json      a list of objects, one object, one object a line, or an original SQuAD file (its questions)
.csv       the first line names the columns
.parquet   read in batches: write files of long documents with ``write_batch_size=16``
hub        a Hugging Face dataset, streamed
=========  ===========================================================================================

A row that cannot be read says so when its fields are asked for; what ends the reading is a DataError with the file.
"""

from __future__ import annotations

import ast
import csv
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import ijson
import orjson
from tqdm import tqdm

from ..system.cli import stop_if_asked
from ..system.errors import MemAgentError, reason_of
from ..system.text import one_line

T = TypeVar("T")
BATCH_ROWS = 16
_LIST_COLUMNS = frozenset({"answers", "answer_aliases", "golden_answers", "paragraphs"})
"""Columns of a CSV whose cells may hold a list as JSON; ``context`` is always text."""
_ANSWERS = frozenset({"answer", "answers", "answer_aliases", "golden_answers"})
"""Columns whose cells may hold a list of texts in Python's form."""
_LIST = re.compile(r"""\s*(?:
    (?:array\()? \[ \s* [uU]?['"]                 # ['Paris', "Rome"], numpy's ['Paris' 'Rome'], one that was cut
    | \( \s* [uU]?['"] .* ['"] \s* , .* \) \s*$    # ('Paris', 'Rome'), not ("Heroes")
    | \{ \s* [uU]?['"] .* ['"] \s* \} \s*$        # {'Paris', 'Rome'}
    | \{ \s* ['"]text['"] \s* :                    # SQuAD's {'text': ['Paris'], 'answer_start': [0]}
    | \[ .* [^\W\d_]{2} .* , .* \] \s*$             # [Paris, Rome]; [0, 1] is an interval
    | \[ \s* \] \s*$)""", re.DOTALL | re.VERBOSE)
"""What of an answer looks like a list of texts."""
_STRING, _STRINGS_SIDE_BY_SIDE = re.compile(tokenize.String), re.compile(r"'\s*'\s*'")
_SHOWN = 20
"""Bad rows that are named one by one."""


class DataError(MemAgentError):
    """Data or options that cannot be used; names the file or option and the remedy."""


class BadRow(MemAgentError, ValueError):
    """A row that cannot be used; says which field and why."""


class NoGoodRows(MemAgentError):
    """There is nothing to write."""


class SourceRow(NamedTuple):
    where: str
    """``row 3`` or ``line 3``, counted from 1."""
    value: Any
    """Its object, or the BadRow that says why there is none."""

    @property
    def fields(self) -> dict[str, Any]:
        """Raises BadRow."""
        if isinstance(self.value, BadRow):
            raise self.value
        if not isinstance(self.value, dict):
            raise BadRow(f"expected an object, found {type(self.value).__name__}")
        return self.value


def open_file(path: Path) -> Iterator[SourceRow]:
    """The rows of a file. Raises DataError."""
    readers = {".parquet": _parquet_rows, ".csv": _csv_rows, ".jsonl": _json_rows, ".json": _json_rows}
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix not in readers:
        raise DataError(f"{path}: unknown kind of file {path.suffix!r}; allowed: {', '.join(readers)}")
    return _read(str(path), readers[path.suffix](path))


def open_dataset(name: str, split: str, config: str | None = None) -> Iterator[SourceRow]:
    """The rows of one split of a Hugging Face dataset, of its only configuration unless one is named, streamed.

    Repositories that mix formats, such as parquet for training beside JSON for evaluation, cannot be loaded as a
    whole; of those, the files with the split's name as a word of their own name are read. Raises DataError.
    """
    return _read(f"{name}: split {split!r}", _hub_rows(name, split, config))


def _read(name: str, rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
    try:
        yield from rows
    except Exception as error:  # the readers and the hub client raise their own, HTTP, file and value errors alike
        raise DataError(f"{name}: cannot be read ({reason_of(error)})") from None


def _numbered(rows: Iterable[Any]) -> Iterator[SourceRow]:
    return (SourceRow(f"row {number}", row) for number, row in enumerate(rows, start=1))


def _parquet_rows(path: Path) -> Iterator[SourceRow]:
    import pyarrow.parquet as pq

    batches = pq.ParquetFile(path, pre_buffer=False).iter_batches(BATCH_ROWS)
    yield from _numbered(row for batch in batches for row in batch.to_pylist())


def _hub_rows(name: str, split: str, config: str | None) -> Iterator[SourceRow]:
    from datasets import load_dataset  # slow to import; local files do without

    load = partial(load_dataset, name, split=split, streaming=True)
    try:
        found = load(name=config)
    except ValueError as error:
        if "same data file format" not in str(error):
            raise
        found = _named_after(split, load)
    yield from _numbered(found)


def _named_after(split: str, load: Callable[..., Any]) -> Any:
    for suffix in ("parquet", "jsonl", "json", "csv"):
        for pattern in (f"**/*[-_.]{split}[-_.]*{suffix}", f"**/{split}[-_.]*{suffix}"):
            with suppress(FileNotFoundError):
                return load(data_files={split: pattern})
    raise FileNotFoundError("no file is named after the split")


# --- JSON ------------------------------------------------------------------------------------------------------------
def _json_rows(path: Path) -> Iterator[SourceRow]:
    with path.open("rb") as file:
        first = next(filter(None, map(bytes.strip, file)), b"")
        file.seek(0)
        if first.startswith(b"["):
            yield from _numbered(json_list(file))
        elif first.endswith((b"{", b"[", b",")):  # one value printed over several lines
            yield from _json_row("row 1", file.read())
        else:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield from _json_row(f"line {number}", line)


def _json_row(where: str, text: bytes) -> Iterator[SourceRow]:
    """The row of a JSON text; of an original SQuAD file its questions."""
    value: Any
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        value = BadRow(f"not valid JSON ({error}); mend or remove it")
    articles = value.get("data") if isinstance(value, dict) else None
    if not isinstance(articles, list):
        yield SourceRow(where, value)
        return
    for number, article in enumerate(articles, start=1):
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                texts = [] if qa.get("is_impossible") else [answer["text"] for answer in qa["answers"]]
                yield SourceRow(f"article {number}", {
                    "id": qa.get("id"), "question": qa["question"], "answers": {"text": texts},
                    "title": article.get("title"), "context": paragraph["context"],
                })


def json_list(file: BinaryIO) -> Iterator[Any]:
    """The elements of one JSON list, one at a time in memory. Raises ijson.JSONError."""
    return ijson.items(file, "item", use_float=True)


def as_json_lines(rows: Iterable[Any]) -> Iterator[bytes]:
    return (orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def as_json_list(entries: Iterable[Any]) -> Iterator[bytes]:
    """One list, an entry a line."""
    for number, entry in enumerate(entries):
        yield (b",\n" if number else b"[\n") + orjson.dumps(entry)
    yield b"\n]\n"


# --- CSV -------------------------------------------------------------------------------------------------------------
def _csv_rows(path: Path) -> Iterator[SourceRow]:
    csv.field_size_limit(1 << 27)  # documents are longer than csv's own limit
    with path.open(encoding="utf-8-sig", newline="") as text:
        rows = csv.DictReader(text, strict=True)
        for fields in rows:
            value: Any = BadRow("not as many cells as the first line names")
            if None not in fields and None not in fields.values():
                try:
                    value = {name.strip(): _cell(name.strip(), cell) for name, cell in fields.items()}
                except BadRow as error:
                    value = error
            yield SourceRow(f"line {rows.line_num}", value)


def _cell(name: str, text: str) -> Any:
    """The text of a cell, or the list that it holds as JSON, or as pandas writes one; None for an empty cell.

    ::

        ["Paris", "City of Paris"]     a list
        ['Paris', 'City of Paris']     a list
        ['Paris' 'City of Paris']      numpy's form, which Python would read as one text: a bad row
    """
    if name in _LIST_COLUMNS and text.startswith("["):
        with suppress(ValueError):
            return orjson.loads(text)
    return (listed(name, text) if name in _ANSWERS else text) or None


def listed(name: str, text: str) -> Any:
    """The list that an answer holds as pandas or Python write one; the text itself where it looks like none.

    Raises:
        BadRow: it looks like a list and cannot be read.
    """
    if not _LIST.match(text):
        return text
    found = literal(text)
    if isinstance(found, list | tuple | set) and not _STRINGS_SIDE_BY_SIDE.search(_STRING.sub("''", text)):
        return sorted(found) if isinstance(found, set) else list(found)
    if isinstance(found, dict) and "text" in found:
        return found
    raise BadRow(f"{name} looks like a list and cannot be read; write it as JSON: [\"Paris\", \"City of Paris\"]")


def literal(value: Any) -> Any:
    """The list or object that a text writes as JSON or as Python does; ``value`` itself where it writes none."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{", "(")):
        for read in (orjson.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError):
                return read(value.strip())
    return value


# --- bad rows --------------------------------------------------------------------------------------------------------
class BadRows:
    """Skipped rows: the first 20 are named on standard error, all are counted by reason."""

    def __init__(self, command: str) -> None:
        self._command, self._reasons = command, Counter[str]()
        self.count = 0

    def add(self, text: str) -> None:
        """``text`` is ``where: reason (details); remedy``."""
        text = one_line(text, 1000)
        self._reasons[text.partition(": ")[2].partition(" (")[0].partition(";")[0]] += 1
        self.count += 1
        if self.count <= _SHOWN:
            tqdm.write(f"{self._command}: bad row left out, {text}", file=sys.stderr)

    def sift(self, rows: Iterable[SourceRow], read: Callable[[dict[str, Any]], T]) -> Iterator[T]:
        """What ``read`` makes of each row; those of which it makes BadRow are added."""
        for row in tqdm(rows, unit=" rows", disable=None):  # None: silent unless a terminal
            stop_if_asked()
            try:
                found = read(row.fields)
            except BadRow as error:
                self.add(f"{row.where}: {error}")
            else:
                yield found

    def tell_rest(self) -> None:
        """How many rows more than the shown ones there are, and how many of each reason in all."""
        if self.count > _SHOWN:
            reasons = ", ".join(f"{count} x {reason}" for reason, count in self._reasons.most_common(10))
            rest = f"{self.count - _SHOWN} more bad rows not shown"
            print(f"{self._command}: {rest}; in all: {reasons}", file=sys.stderr)
