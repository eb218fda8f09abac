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
- memory holds some histories, not a file; a JSON list is read entry by entry.

Exit codes: 0 rows were written, 1 no good row (or a bad one under --strict), 2 the input cannot be used, or the
output not written, 130 interrupted.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from ..sessions.records import HistoryQuestion, Language
from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError
from ..system.files import replacing
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .asked import Asked, BadQuestion, LeftOut
from .locomo import read_locomo
from .longmemeval import read_longmemeval
from .personamem import SESSION_TURNS, read_personamem
from .rows import BadRows, DataError, NoGoodRows
from .session_file import SessionFile
from .session_rows import read_rows

_TRAIN, _TEST = "train", "test"
_FORMATS = ("locomo", "longmemeval", "personamem", "rows")
Reader = Callable[[Sequence[Path]], Iterator[Asked]]


@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    print(_run(args))
    return 0


def _run(args: argparse.Namespace) -> str:
    _check(args)
    read = _reader(args)
    split_of = _split(read, args)
    bad, left_out, written = BadRows("prepare_sessions", strict=args.strict), Counter[str](), set[str]()
    with ExitStack() as stack:
        # All are made before any is put in its place.
        files = {split: SessionFile(stack.enter_context(replacing(path))) for split, path in _outputs(args).items()}
        for file in files.values():
            stack.callback(file.abandon)
        for asked in tqdm(read(args.input), unit=" questions", disable=None):  # None: silent unless a terminal
            stop_if_asked()
            target = files.get(split_of(asked))
            if target is None or (args.limit and target.count >= args.limit):
                if args.limit and all(each.count >= args.limit for each in files.values()):
                    break
                continue
            try:
                if asked.id in written:
                    raise BadQuestion(f"question_id {asked.id!r:.60} is that of a row before; give each its own")
                target.add(_question(asked, args))
                written.add(asked.id)
            except BadQuestion as error:
                bad.add(f"{asked.where}: {error}")
            except LeftOut as reason:
                left_out[str(reason)] += 1
        bad.tell_rest()
        if empty := [split for split, file in files.items() if not file.count]:
            told = f"no row for {' and '.join(empty)}; {_told(bad, left_out)}"
            raise NoGoodRows(f"{args.input[0]}: {told}; nothing is written")
        for file in files.values():
            file.close()
    lines = [f"{path}: {files[split].count} rows" for split, path in _outputs(args).items()]
    return "\n".join([*lines, _told(bad, left_out)])


def _told(bad: BadRows, left_out: Counter[str]) -> str:
    reasons = [f"{count} {reason}" for reason, count in [*left_out.most_common(), ("bad", bad.count)] if count]
    return f"left out: {bad.count + left_out.total()} rows" + (f" ({'; '.join(reasons)})" if reasons else "")


def _question(asked: Asked, args: argparse.Namespace) -> HistoryQuestion:
    """The question in the language that is asked for. Raises BadQuestion, LeftOut."""
    question = asked.build()
    if args.with_gold and not question.gold:
        raise LeftOut("without a gold session")
    return replace(question, language=Language(args.language)) if args.language else question


def _outputs(args: argparse.Namespace) -> dict[str, Path]:
    divided = args.test_share is not None or args.test_rows is not None
    splits = [args.split] if args.split else [_TRAIN, _TEST] if divided else [_TEST]
    return {split: args.output_dir / args.dataset / f"{split}.parquet" for split in splits}


def _check(args: argparse.Namespace) -> None:
    """Raises DataError, DataError."""
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
    if args.format == "locomo":
        return partial(read_locomo, adversarial=args.adversarial)
    if args.format == "personamem":
        return partial(read_personamem, contexts=args.contexts, size=args.size, session_turns=args.session_turns)
    return {"longmemeval": read_longmemeval, "rows": read_rows}[args.format]


def _split(read: Reader, args: argparse.Namespace) -> Callable[[Asked], str]:
    """Which split a question is in. Raises DataError."""
    if args.test_share is None and args.test_rows is None:
        return lambda asked: args.split or _TEST
    source = [args.split_order] if args.split_order else args.input
    entries = (asked for asked in read(source) if args.test_rows is None or _is_kept(asked, args))
    units = list(dict.fromkeys(asked.history if args.by_history else asked.id for asked in entries))
    trains = int(len(units) * (1 - args.test_share) + 1e-9) if args.test_share else len(units) - args.test_rows
    test = len(units) - trains
    if not 0 < test < len(units):
        raise DataError(f"{test} of {len(units)} to the test: both splits need some")
    random.Random(args.seed).shuffle(units)
    trained, tested = set(units[: len(units) - test]), set(units[len(units) - test :])

    def split_of(asked: Asked) -> str:
        unit = asked.history if args.by_history else asked.id
        if unit in tested:
            return _TEST
        if args.split_order and unit not in trained:
            raise DataError(f"--split-order {args.split_order}: it lacks {unit!r:.60}, which the input has")
        return _TRAIN

    return split_of


def _is_kept(asked: Asked, args: argparse.Namespace) -> bool:
    stop_if_asked()
    with suppress(BadQuestion, LeftOut):
        return bool(_question(asked, args))
    return False


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
