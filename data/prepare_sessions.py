"""Questions about chat histories to the files that the sifter reads: ``mem-agent prepare-sessions``.

    mem-agent prepare-sessions --format locomo --input locomo10.json --dataset locomo --test-rows 400
    mem-agent prepare-sessions --format longmemeval --input longmemeval_m.json --dataset longmemeval_m \\
        --test-share 0.3 --split-order longmemeval_s.json
    mem-agent prepare-sessions --format personamem --input questions_32k.csv --contexts shared_contexts_32k.jsonl \\
        --dataset personamem_32k
    mem-agent prepare-sessions --format rows --input perltqa_zh.jsonl --dataset zh4o

Writes ``{output-dir}/{dataset}/{split}.parquet``. Without a test share every row goes to one split, ``test`` unless
named. With one, rows are divided: in the input's order, shuffled by the seed, the first 1 - share train (MemSifter's
split of LongMemEval: 0.3, seed 42). ``--test-rows`` divides the rows that are written, so that the test has exactly
as many.

Invariants:
- an output is the whole of its rows or does not change;
- every row that is not written is counted with its reason; bad ones are shown on stderr (the first 20 one by one);
- the split is a function of the ids, their order and the seed; with a share, rows left out do not move others;
- memory holds some histories, not a file: a JSON list is read entry by entry. The contexts of PersonaMem's version 1,
  which many questions share, are read whole.

Exit codes: 0 rows were written, 1 no good row, 2 the input cannot be used, or the
output not written, 130 interrupted.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ..rewards.sessions import HistoryQuestion, row_of
from ..system.cli import one_line_errors, positive_number, run_main, stop_if_asked, whole_number
from ..system.errors import MemAgentError, reason_of
from ..system.files import replacing
from .histories import Reader, Skipped, personamem_reader, read_locomo, read_longmemeval, read_rows
from .rows import BadRow, BadRows, DataError, NoGoodRows, open_file

_TRAIN, _TEST = "train", "test"
_READERS: dict[str, Reader] = {"locomo": read_locomo, "longmemeval": read_longmemeval, "rows": read_rows}
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
    """Rows of ``rewards.sessions`` for one file, which the caller opens and puts in its place.

    Columns that no stage reads travel along; those of the first rows decide which there are, and of which type.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[dict[str, Any]] = []
        self.count = 0

    def add(self, asked: HistoryQuestion) -> None:
        self._rows.append(row_of(asked))
        self.count += 1
        if len(self._rows) >= _ROWS or sum(len(row["haystack_sessions"]) for row in self._rows) >= _CHARACTERS:
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
        self._rows = []

    def close(self) -> None:
        """Lets go of the file while it can still be written."""
        if self._writer is not None:
            self._writer.close()


def _own_columns(rows: list[dict[str, Any]]) -> dict[str, pa.DataType]:
    names = dict.fromkeys(name for row in rows for name in row if name not in _COLUMNS)
    types = {name: pa.infer_type([row.get(name) for row in rows]) for name in names}
    return {name: _TEXT if pa.types.is_null(kind) else _TEXTS if kind == pa.list_(pa.null()) else kind
            for name, kind in types.items()}


Found = tuple[str, str, HistoryQuestion | ValueError | Skipped]
"""Where a question stands, its id, and the question or why there is none."""


def _entries(paths: Sequence[Path], args: argparse.Namespace) -> Iterator[Found]:
    """Raises DataError."""
    read = personamem_reader(args.contexts, args.size) if args.format == "personamem" else _READERS[args.format]
    for path in paths:
        for number, row in enumerate(open_file(path)):
            stop_if_asked()
            where = f"{path.name}: {row.where}"
            try:
                for id, build in read(f"{path.stem}_{number}", row.fields):
                    yield f"{where} ({id})", id, _built(build, args.with_gold)
            except BadRow as error:
                yield where, where, error


def _built(build: Callable[[], HistoryQuestion], with_gold: bool) -> HistoryQuestion | ValueError | Skipped:
    try:
        question = build()
    except (ValueError, Skipped) as reason:
        return reason
    return question if question.gold or not with_gold else Skipped("without a gold session")


@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    divided = args.test_share is not None or args.test_rows is not None
    splits = [args.split] if args.split else [_TRAIN, _TEST] if divided else [_TEST]
    outputs = {split: args.output_dir / args.dataset / f"{split}.parquet" for split in splits}
    if divided and args.split not in (None, _TRAIN, _TEST):
        raise DataError(f"--split {args.split}: rows are divided into {_TRAIN} and {_TEST}; name one, or neither")
    for path in outputs.values():
        if path.exists() and any(path.samefile(source) for source in args.input if source.exists()):
            raise DataError(f"{path}: is the input as well; choose another --dataset or --split")
        path.parent.mkdir(parents=True, exist_ok=True)
    tested = _tested(args) if divided else {}
    bad, skipped, written = BadRows("prepare_sessions"), Counter[str](), set[str]()
    with ExitStack() as stack:
        # All are made before any is put in its place.
        files = {split: SessionFile(stack.enter_context(replacing(path))) for split, path in outputs.items()}
        for file in files.values():
            stack.callback(file.close)
        for where, id, question in tqdm(_entries(args.input, args), unit=" questions", disable=None):
            if args.split_order and id not in tested:
                raise DataError(f"--split-order {args.split_order}: it lacks {id!r:.60}, which the input has")
            target = files.get((_TEST if tested.get(id) else _TRAIN) if divided else splits[0])
            if args.limit and all(file.count >= args.limit for file in files.values()):
                break
            if target is None or target.count == args.limit:
                continue
            if isinstance(question, Skipped):
                skipped[str(question)] += 1
            elif isinstance(question, ValueError):
                bad.add(f"{where}: {question}")
            elif id in written:
                bad.add(f"{where}: question_id {id!r:.60} is that of a row before; give each its own")
            else:
                target.add(question)
                written.add(id)
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


def _tested(args: argparse.Namespace) -> dict[str, bool]:
    """Whether each id is in the test. Raises DataError."""
    entries = _entries([args.split_order] if args.split_order else args.input, args)
    order = list(dict.fromkeys(id for _, id, question in entries
                               if args.test_share or isinstance(question, HistoryQuestion)))
    trains = int(len(order) * (1 - args.test_share) + 1e-9) if args.test_share else len(order) - args.test_rows
    if not 0 < trains < len(order):
        raise DataError(f"{len(order) - trains} of {len(order)} to the test: both splits need some")
    random.Random(args.seed).shuffle(order)
    return {id: place >= trains for place, id in enumerate(order)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent prepare-sessions", description="Write histories for the sifter.")
    add = parser.add_argument
    add("--format", required=True, choices=(*_READERS, "personamem"), help="of the input; rows: the sifter's own")
    add("--input", required=True, type=Path, nargs="+", metavar="FILE", help="questions: JSON, CSV or parquet")
    add("--contexts", type=Path, metavar="PATH",
        help="personamem: its shared_contexts .jsonl, or the folder of version 2's histories")
    add("--size", default="32k", choices=("32k", "128k"), help="personamem, version 2: which histories (32k)")
    add("--output-dir", type=Path, default=Path("data"), metavar="DIR", help="(data)")
    add("--dataset", required=True, metavar="NAME", help="folder below it")
    add("--split", metavar="NAME", help="the file's name (test; both where rows are divided)")
    share = parser.add_mutually_exclusive_group()
    share.add_argument("--test-share", type=float, metavar="S", help="divide rows: this share is the test")
    share.add_argument("--test-rows", type=positive_number, metavar="N", help="divide rows: so many are the test")
    add("--seed", type=whole_number, default=42, help="of that division (42)")
    add("--split-order", type=Path, metavar="FILE", help="take ids and their order from this file")
    add("--with-gold", action="store_true", help="leave out questions without a gold session")
    add("--limit", type=positive_number, metavar="N", help="at most N rows in a file")
    return parser


if __name__ == "__main__":
    run_main(main)
