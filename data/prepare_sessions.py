"""Questions about chat histories to the files that the sifter reads: ``mem-agent prepare-sessions``.

    mem-agent prepare-sessions --format locomo --input locomo10.json --dataset locomo --test-rows 400
    mem-agent prepare-sessions --format longmemeval --input longmemeval_m.json --dataset longmemeval_m \\
        --test-share 0.3 --split-order longmemeval_s.json
    mem-agent prepare-sessions --format personamem --input questions_32k.csv --contexts shared_contexts_32k.jsonl \\
        --dataset personamem_32k
    mem-agent prepare-sessions --format rows --input perltqa_zh.jsonl --dataset zh4o --split test --language zh

Writes ``{output-dir}/{dataset}/{split}.parquet``. Without a test share every row goes to one split, ``test`` unless
named. With one, rows are divided: in the input's order, shuffled by the seed, the first 1 - share train (MemSifter's
split of LongMemEval: 0.3, seed 42). ``--test-rows`` divides the rows that are written, so that the test has exactly
as many. ``--by-history`` divides histories in place of questions, so that no history of
the test was trained on.

Invariants:
- an output is the whole of its rows or does not change;
- every row that is not written is counted with its reason; bad ones are shown on stderr (the first 20 one by one);
- the split is a function of the ids, their order and the seed; with a share, rows left out do not move others;
- memory holds some histories, not a file: a JSON list is read entry by entry. The contexts of PersonaMem's version 1,
  which many questions share, are read whole.

Exit codes: 0 rows were written, 1 no good row (or a bad one under --strict), 2 the input cannot be used, or the
output not written, 130 interrupted.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ..sessions.records import HistoryQuestion, Language, row_of
from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError, reason_of
from ..system.files import replacing
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .histories import BadQuestion, Entry, Reader, Skipped, read_entries, read_rows
from .locomo import read_locomo
from .longmemeval import read_longmemeval
from .personamem import SESSION_TURNS, personamem_reader
from .rows import BadRows, DataError, NoGoodRows

_TRAIN, _TEST = "train", "test"
_FORMATS = ("locomo", "longmemeval", "personamem", "rows")
_TEXT, _TEXTS = pa.string(), pa.list_(pa.string())
_COLUMNS = {
    "question_id": _TEXT, "question": _TEXT, "answer": _TEXT, "answers": _TEXTS,
    "haystack_sessions": pa.large_string(), "haystack_session_ids": _TEXTS, "haystack_dates": _TEXTS,
    "answer_session_ids": _TEXTS, "question_type": _TEXT, "question_date": _TEXT, "all_options": _TEXTS,
    "language": _TEXT,
}
_ROWS, _CHARACTERS = 64, 32 << 20
"""Of a row group, at most about: a reader needs no more memory than that."""
_PAGE_ROWS = 4
"""Rows that are encoded together: a page is unpacked whole, and a history has millions of characters."""


class SessionFile:
    """Rows of ``sessions.records`` for one file, which the caller opens and puts in its place.

    Columns that no stage reads travel along; those of the first rows decide which there are, and of which type.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[dict[str, Any]] = []
        self._characters = 0
        self.count = 0

    def add(self, asked: HistoryQuestion) -> None:
        self._rows.append(row_of(asked))
        self._characters += len(self._rows[-1]["haystack_sessions"])
        self.count += 1
        if len(self._rows) >= _ROWS or self._characters >= _CHARACTERS:
            self.write()

    def write(self) -> None:
        """What is not yet in the file. Raises MemAgentError."""
        try:
            if self._writer is None:
                schema = pa.schema(_own_columns(self._rows) | _COLUMNS)
                self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", write_batch_size=_PAGE_ROWS)
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._writer.schema))
        except pa.ArrowException as error:
            raise MemAgentError(f"a column has values of several types ({reason_of(error)}); make them one, or remove "
                                "the column from the input") from None
        self._rows, self._characters = [], 0

    def close(self) -> None:
        """Lets go of the file while it can still be written."""
        if self._writer is not None:
            self._writer.close()


def _own_columns(rows: list[dict[str, Any]]) -> dict[str, pa.DataType]:
    names = dict.fromkeys(name for row in rows for name in row if name not in _COLUMNS)
    types = {name: pa.infer_type([row.get(name) for row in rows]) for name in names}
    return {name: _TEXT if pa.types.is_null(kind) else _TEXTS if kind == pa.list_(pa.null()) else kind
            for name, kind in types.items()}


@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    _check(args)
    reader = _reader(args)
    split_of = _split(reader, args)
    bad, skipped, written = BadRows("prepare_sessions", strict=args.strict), Counter[str](), set[str]()
    outputs = _outputs(args)
    with ExitStack() as stack:
        # All are made before any is put in its place.
        files = {split: SessionFile(stack.enter_context(replacing(path))) for split, path in outputs.items()}
        for file in files.values():
            stack.callback(file.close)
        for entry in tqdm(read_entries(args.input, reader), unit=" questions", disable=None):
            stop_if_asked()
            target = files.get(split_of(entry))
            if target is None or (args.limit and target.count >= args.limit):
                if args.limit and all(file.count >= args.limit for file in files.values()):
                    break
                continue
            try:
                if entry.id in written:
                    raise BadQuestion(f"question_id {entry.id!r:.60} is that of a row before; give each its own")
                target.add(_question(entry, args))
                written.add(entry.id)
            except BadQuestion as error:
                bad.add(f"{entry.where}: {error}")
            except Skipped as reason:
                skipped[str(reason)] += 1
        bad.tell_rest()
        reasons = [f"{count} {reason}" for reason, count in [*skipped.most_common(), ("bad", bad.count)] if count]
        left_out = f"left out: {bad.count + skipped.total()} rows" + (f" ({'; '.join(reasons)})" if reasons else "")
        if empty := [split for split, file in files.items() if not file.count]:
            raise NoGoodRows(f"{args.input[0]}: no row for {' and '.join(empty)}; {left_out}; nothing is written")
        for file in files.values():
            file.write()
            file.close()
    print(*(f"{path}: {files[split].count} rows" for split, path in outputs.items()), left_out, sep="\n")
    return 0


def _question(entry: Entry, args: argparse.Namespace) -> HistoryQuestion:
    """In the language that is asked for. Raises BadQuestion, Skipped."""
    if isinstance(entry.question, Exception):
        raise entry.question
    if args.with_gold and not entry.question.gold:
        raise Skipped("without a gold session")
    return replace(entry.question, language=Language(args.language)) if args.language else entry.question


def _outputs(args: argparse.Namespace) -> dict[str, Path]:
    divided = args.test_share is not None or args.test_rows is not None
    splits = [args.split] if args.split else [_TRAIN, _TEST] if divided else [_TEST]
    return {split: args.output_dir / args.dataset / f"{split}.parquet" for split in splits}


def _check(args: argparse.Namespace) -> None:
    """Raises DataError."""
    for name in (args.dataset, args.split or _TEST):
        if not name.strip() or set(name) & set("/ \\\t") or name.startswith("."):
            raise DataError(f"{name!r}: a name of a file, without blanks and slashes")
    divided = args.test_share is not None or args.test_rows is not None
    if divided and args.split not in (None, _TRAIN, _TEST):
        raise DataError(f"--split {args.split}: rows are divided into {_TRAIN} and {_TEST}; name one, or neither")
    if (args.by_history or args.split_order) and not divided:
        raise DataError("--by-history and --split-order divide rows: give --test-share or --test-rows as well")
    if args.by_history and args.test_rows is not None:
        raise DataError("--by-history takes a --test-share of the histories, not a number of rows")
    if args.adversarial and args.format != "locomo":
        raise DataError("--adversarial keeps questions of --format locomo")
    if args.contexts and args.format != "personamem":
        raise DataError("--contexts belongs to --format personamem")
    for path in [*args.input, *([args.split_order] if args.split_order else [])]:
        if not path.is_file():
            raise DataError(f"{path}: no such file")
    for path in _outputs(args).values():
        if path.exists() and any(path.samefile(source) for source in args.input):
            raise DataError(f"{path}: is the input as well; choose another --dataset or --split")
        path.parent.mkdir(parents=True, exist_ok=True)


def _reader(args: argparse.Namespace) -> Reader:
    if args.format == "personamem":
        return personamem_reader(args.contexts, size=args.size, session_turns=args.session_turns)
    if args.format == "locomo":
        return partial(read_locomo, adversarial=args.adversarial)
    return {"longmemeval": read_longmemeval, "rows": read_rows}[args.format]


def _split(reader: Reader, args: argparse.Namespace) -> Callable[[Entry], str]:
    """Which split a question is in. Raises DataError."""
    if args.test_share is None and args.test_rows is None:
        return lambda entry: args.split or _TEST
    units: dict[str, None] = {}
    for entry in read_entries([args.split_order] if args.split_order else args.input, reader):
        stop_if_asked()
        if args.test_rows is None or _is_kept(entry, args):
            units[entry.history if args.by_history else entry.id] = None
    order = list(units)
    trains = int(len(order) * (1 - args.test_share) + 1e-9) if args.test_share else len(order) - args.test_rows
    if not 0 < trains < len(order):
        raise DataError(f"{len(order) - trains} of {len(order)} to the test: both splits need some")
    random.Random(args.seed).shuffle(order)
    tested = set(order[trains:])

    def split_of(entry: Entry) -> str:
        unit = entry.history if args.by_history else entry.id
        if args.split_order and unit not in units:
            raise DataError(f"--split-order {args.split_order}: it lacks {unit!r:.60}, which the input has")
        return _TEST if unit in tested else _TRAIN

    return split_of


def _is_kept(entry: Entry, args: argparse.Namespace) -> bool:
    return isinstance(entry.question, HistoryQuestion) and bool(entry.question.gold or not args.with_gold)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a share is a number between 0 and 1")
    return share


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mem-agent prepare-sessions", description="Write questions about chat histories for the sifter."
    )
    parser.add_argument("--format", required=True, choices=_FORMATS, help="shape of the input; rows: the sifter's own")
    parser.add_argument("--input", required=True, type=Path, nargs="+", metavar="FILE",
                        help="the questions: .json, .jsonl, .csv or .parquet")
    parser.add_argument("--contexts", type=Path, metavar="PATH",
                        help="personamem: its shared_contexts .jsonl, or the folder of version 2's histories")
    parser.add_argument("--size", default="32k", choices=("32k", "128k"),
                        help="personamem, version 2: which histories (32k)")
    parser.add_argument("--session-turns", type=positive_number, default=SESSION_TURNS, metavar="N",
                        help=f"personamem: messages of a session, where no history says ({SESSION_TURNS})")
    parser.add_argument("--adversarial", action="store_true", help="locomo: keep the questions without an answer")
    parser.add_argument("--output-dir", type=Path, default=Path("data"), metavar="DIR", help="(data)")
    parser.add_argument("--dataset", required=True, metavar="NAME", help="folder below it")
    parser.add_argument("--split", metavar="NAME", help="the file's name (test; both where rows are divided)")
    share = parser.add_mutually_exclusive_group()
    share.add_argument("--test-share", type=_share, metavar="S", help="divide rows: this share is the test")
    share.add_argument("--test-rows", type=positive_number, metavar="N", help="divide rows: so many are the test")
    parser.add_argument("--seed", type=whole_number, default=42, help="of that division (42)")
    parser.add_argument("--split-order", type=Path, metavar="FILE", help="take ids and their order from this file")
    parser.add_argument("--by-history", action="store_true", help="divide histories, not questions")
    parser.add_argument("--with-gold", action="store_true", help="leave out questions without a gold session")
    parser.add_argument("--language", choices=tuple(map(str, Language)), help="of all rows (found for each)")
    parser.add_argument("--limit", type=positive_number, metavar="N", help="at most N rows in a file")
    parser.add_argument("--strict", action="store_true", help="end at the first bad row, writing nothing")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
