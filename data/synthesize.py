"""Long documents around raw questions: evaluation files of several lengths, and the questions of a training set.

    mem-agent synthesize --raw hotpot_dev_distractor_v1.json --output DIR --lengths "50 6400"

writes ``DIR/eval_<n>.json``, a list of one entry per question, all with the same questions in the same order::

    {"index": 0, "id": "5a8b...", "input": "Who ...?", "answers": ["Ann"], "num_docs": 50,
     "supporting": ["Ann"], "context": "Document 1:\\nAnn\\nAnn is. ..."}

``supporting`` names the titles of the gold documents, and is left out where the raw data marks none. Above 10,000
documents an entry has ``"documents": [3, 90, ...]`` in place of ``context``: lines of ``DIR/corpus.jsonl``, in
reading order (``eval_files.Corpus`` gives the text).

Which questions: of all questions ``--questions``, drawn by the seed; with ``--closed-book`` those that need no
document are left out before; or, in place of both, those that a published file asks.

The documents of a question (``haystack``) are its gold ones hidden among distractors, in an order that tells nothing,
as numbers in reading order::

    haystack(documents, question with gold (7, 3), length=5, seed=42)  ->  (3, 90, 7, 12, 55)

Of them:
- every gold document is there once, every other document at most once, and there are exactly as many as asked for;
- no distractor holds an answer, as whole words in SQuAD form. Answers such as yes and no are not looked for: their
  words stand everywhere and prove nothing;
- distractors that came with the question are taken first, the rest at random from the whole pool;
- order and choice come from a generator of this question, length and seed alone: every position is equally likely for
  a gold document, and the result does not depend on other questions, nor on their number. The printed
  numbers count documents as they stand, so they say nothing that the order does not say.

``--published-layout`` gives up all of these but the first, to place documents as MemAgent's and ReMemR1's generators
do (MemAgent's different_docs_eval.py, ReMemR1's process_test.py): all paragraphs of the question, then strangers of
any content, and the list shuffled by ``random.Random(4)``. A question's k-th paragraph therefore stands at the same
place in every document of a length. The strangers are other ones than there: which ones the generators took hung on
how their worker processes were scheduled.

``--distant-evidence`` writes beside each ``eval_<n>.json`` ReMemR1's subsets ``eval_<n>_min_distance_<d>.json``, for
its distances d = 100, 200, 400, 800, 1600 below ``n`` and as far as a question belongs to one; their entries have
``"evidence": [250, 10], "min_distance": 240`` as well: places of documents, counted from 0. By ReMemR1's
process_test.py (``generate_input_output``, ``generate_dataset``) there is one place for every supporting fact, in the
facts' order; a question belongs to the subset of distance d if its places fall, and neighbours among them are d
documents apart or more. A worked example, for a document of 300::

    facts in the paragraphs B, A; A is the 11th document, B the 251st  ->  places (250, 10), falling, distance 240

The paper draws five times as many questions as a file is to have. As there, a question with two facts in one
paragraph has distance 0 and belongs to no subset.

Invariants:
- questions are a function of raw files, verdict or published file, count and seed alone, so every length has the same
  ones in the same order; equal raw files and options give equal bytes;
- memory holds the pool and a few entries, never a file;
- a file appears whole, with its SHA-256 in ``DIR/manifest.json``. An interrupted run is continued by the same
  command: files that are there are verified and kept.

Numbers of documents of a training set may be a curriculum::

    parse_curriculum("50:0.3 100:0.3 200:0.4")  ->  ((50, 0.3), (100, 0.3), (200, 0.4))
    lengths_of(that, rows=10)                   ->  3 x 50, 3 x 100, 4 x 200, in this order

Lengths without shares have equal ones. The rows of each are its share of all rows, rounded so that the sum is right.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import orjson
from tqdm import tqdm

from ..rewards.answers import AnswerKind, kind_of
from ..rewards.qa_metrics import normalise_squad
from ..system.cli import one_line_errors, positive_number, stop_if_asked, whole_number
from . import eval_files
from .eval_files import CORPUS, eval_name, sha256_of
from .questions import Corpora, PoolQuestion, Question, assemble, load_corpora
from .rows import DataError, as_json_lines, as_json_list

FORMAT = 2
"""Raised whenever the same options would give other bytes. 2: HotpotQA's text has no blank before closing quotes."""
DISTANCES = (100, 200, 400, 800, 1600)
"""Of the paper."""
CANDIDATES = 5
"""Questions looked at for each one that a subset may have."""


# --- documents of a question ----------------------------------------------------------------------------------------
def haystack(
    documents: Sequence[str], question: PoolQuestion, length: int, seed: int, published: bool = False
) -> tuple[int, ...]:
    """Numbers of ``length`` documents, in reading order. Raises DataError: more must be there, or fewer can be."""
    chosen = list(question.paragraphs if published else question.gold)
    if len(chosen) > length:
        raise DataError(f"question {question.id} has {len(chosen)} documents of its own, more than the {length} asked "
                        "for; choose a greater length")
    rng = random.Random(f"{seed}/{question.id}/{length}")
    is_clean = (lambda number: True) if published else _without_answer(documents, question)
    own = [number for number in question.own if number not in chosen and is_clean(number)]
    rng.shuffle(own)
    chosen += own[: length - len(chosen)]
    tried = {*question.gold, *question.own}
    strangers = (number for number in _permutation(rng, len(documents)) if number not in tried and is_clean(number))
    chosen += islice(strangers, length - len(chosen))
    if len(chosen) < length:
        raise DataError(f"question {question.id}: {length} documents asked for; of the {len(documents)} in the pool "
                        f"{len(chosen)} can be used (others hold its answer); choose a smaller length, or give more "
                        "documents")
    (random.Random(4) if published else rng).shuffle(chosen)
    return tuple(chosen)


def _without_answer(documents: Sequence[str], question: PoolQuestion) -> Callable[[int], bool]:
    """Whether a document holds none of the answers."""
    answers = [normalise_squad(answer) for answer in question.answers if kind_of(answer) is not AnswerKind.CHOICE]
    forms = [f" {answer} " for answer in answers if answer]
    return lambda number: not any(form in _words(documents[number]) for form in forms)


@cache
def _words(document: str) -> str:
    """In SQuAD form between blanks."""
    return f" {normalise_squad(document)} "


def _permutation(rng: random.Random, size: int) -> Iterator[int]:
    """All numbers below ``size`` in random order, at a cost of those taken only."""
    moved: dict[int, int] = {}
    for last in range(size - 1, -1, -1):
        at = rng.randrange(last + 1)
        yield moved.get(at, at)
        moved[at] = moved.get(last, last)


# --- which questions -------------------------------------------------------------------------------------------------
def chosen(args: argparse.Namespace, corpora: Corpora, times: int = 1) -> Corpora:
    """The chosen ones of all questions, or ``times`` as many if there are. Raises DataError."""
    if args.published_questions:
        by_id = {question.id: question for question in corpora.questions}
        ids = eval_files.published_ids(args.published_questions, args.raw[0])
        if absent := set(ids) - by_id.keys():
            raise DataError(f"{args.raw[0]}: question {min(absent)} lacks a supporting document; fetch it again")
        return corpora._replace(questions=tuple(by_id[name] for name in ids))
    dropped = set(orjson.loads(args.closed_book.read_bytes())["dropped"]) if args.closed_book else set()
    left = [question for question in corpora.questions if question.id not in dropped]
    if len(left) < args.count:
        gone = f", without those dropped by {args.closed_book}" if args.closed_book else ""
        raise DataError(f"{args.count} questions asked for, but the raw files have {len(left)}{gone}")
    drawn = random.Random(f"{args.seed}/questions").sample(left, min(times * args.count, len(left)))
    return corpora._replace(questions=tuple(drawn))


def _numbers(args: argparse.Namespace, corpora: Corpora, question: PoolQuestion, length: int) -> tuple[int, ...]:
    return haystack(corpora.documents, question, length, args.seed, published=bool(args.layout))


# --- a training set --------------------------------------------------------------------------------------------------
Curriculum = tuple[tuple[int, float], ...]


def parse_curriculum(text: str) -> Curriculum:
    """Raises DataError."""
    parts = [word.partition(":") for word in text.split()]
    try:
        found = tuple((int(length), float(share) if colon else 1 / len(parts)) for length, colon, share in parts)
    except ValueError:
        found = ()
    lengths, shares = {length for length, _ in found}, [share for _, share in found]
    if len(lengths) < max(1, len(parts)) or min(*lengths, *shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise DataError(f"documents {text!r}: allowed: different numbers, perhaps with shares that add up to 1, such "
                        "as 50:0.5 200:0.5")
    return found


def lengths_of(curriculum: Curriculum, rows: int) -> list[int]:
    """The number of documents of every row."""
    counts = [int(share * rows) for _, share in curriculum]
    by_rest = sorted(range(len(counts)), key=lambda i: counts[i] - curriculum[i][1] * rows)
    for i in by_rest[: rows - sum(counts)]:
        counts[i] += 1
    return [length for (length, _), count in zip(curriculum, counts, strict=True) for _ in range(count)]


def training_questions(args: argparse.Namespace, corpora: Corpora, curriculum: Curriculum) -> Iterator[Question]:
    """The chosen questions in this order, each with its document. Where there are several lengths, rows are to be read
    in this order, and say so in their metadata. Raises DataError."""
    for question, length in zip(corpora.questions, lengths_of(curriculum, len(corpora.questions)), strict=True):
        extras: dict[str, Any] = {"id": question.id, "num_docs": length}
        extras |= {"supporting": question.supporting} if question.supporting else {}
        extras |= {"curriculum": True} if len(curriculum) > 1 else {}
        context = assemble(corpora.documents[number] for number in _numbers(args, corpora, question, length))
        yield Question(question.question, question.answers, context, extras=extras)


# --- evaluation files ------------------------------------------------------------------------------------------------
def _sources(args: argparse.Namespace, lengths: Sequence[int]) -> dict[str, dict[str, Any]]:
    """What each file is made from: changes whenever its questions or their documents might."""
    raw = [{"file": path.name, "sha256": sha256_of(path)} for path in args.raw]
    pool = {"kind": "pool", "format": FORMAT, "raw": raw} | ({"layout": args.layout} if args.layout else {})
    asked = pool | {"kind": "synthesis", "seed": args.seed}
    if args.published_questions:
        asked["published"] = sha256_of(args.published_questions)
    else:
        asked["questions"] = args.count
    if args.closed_book:
        asked["closed_book"] = sha256_of(args.closed_book)
    sources: dict[str, dict[str, Any]] = {CORPUS: pool} if max(lengths) > eval_files.INDEX_ONLY_ABOVE else {}
    for n in lengths:
        source = asked | {"documents": n, "index_only": n > eval_files.INDEX_ONLY_ABOVE}
        sources[eval_name(n)] = source
        for d in [d for d in DISTANCES if args.distant_evidence and d < n]:
            sources[eval_name(f"{n}_min_distance_{d}")] = source | {"min_distance": d, "candidates": CANDIDATES}
    return sources


def _entries(args: argparse.Namespace, corpora: Corpora, source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of an evaluation file, or of a subset as many as there are."""
    length, distance = source["documents"], source.get("min_distance")
    for index, question in enumerate(tqdm(corpora.questions, unit=" questions", disable=None)):
        stop_if_asked()
        numbers = _numbers(args, corpora, question, length)
        place = {number: at for at, number in enumerate(numbers)}
        places = [place[number] for number in question.evidence]
        apart = min((before - after for before, after in pairwise(places)), default=0)
        if distance and apart < distance:
            continue
        entry: dict[str, Any] = {"index": index, "id": question.id, "input": question.question,
                                 "answers": question.answers, "num_docs": length}
        if question.supporting:
            entry["supporting"] = question.supporting
        if distance:
            entry |= {"evidence": places, "min_distance": apart}
        if source["index_only"]:
            entry["documents"] = numbers
        else:
            entry["context"] = assemble(corpora.documents[number] for number in numbers)
        yield entry


# --- command line ----------------------------------------------------------------------------------------------------
def add_options(add: Callable[..., Any], *, required: bool) -> None:
    """Those that choose questions, except their count, which every command names its own way."""
    add("--raw", type=Path, nargs="+", metavar="FILE", default=[], required=required,
        help="HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD")
    add("--seed", type=whole_number, default=42, help="choice of questions and documents (42)")
    add("--closed-book", type=Path, metavar="FILE", help="verdict.json: leave out what needs no document")
    add("--published-questions", type=Path, metavar="FILE",
        help="ask the questions of a published eval_<n>.json, which names rows of the raw file")
    add("--published-layout", dest="layout", action="store_const", const="published-layout", default="",
        help="place documents as the published generators do: all paragraphs of a question at the same places in "
        "every document of a length, others of any content, text as the data has it")


@one_line_errors("the same command continues with what is missing")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent synthesize", description="Write evaluation files of any length.")
    add = parser.add_argument
    add_options(add, required=True)
    add("--output", type=Path, required=True, metavar="DIR", help="folder of eval_<length>.json")
    add("--lengths", default=" ".join(map(str, eval_files.LENGTHS)), help="numbers of documents")
    add("--questions", dest="count", type=positive_number, default=128, help="questions in every file (128)")
    add("--distant-evidence", action="store_true",
        help=f"as well files of questions whose evidence lies {DISTANCES} documents apart, the last fact first")
    args = parser.parse_args(argv)
    sources = _sources(args, eval_files.parse_lengths(args.lengths))
    with eval_files.locked_manifest(args.output) as manifest:
        missing = {name: source for name, source in sources.items() if not manifest.has(name, source)}
        for name in sources:
            if name not in missing and name != CORPUS:
                print(f"{args.output / name}: there")
        if not missing:
            return 0
        everything = load_corpora(args.raw, as_published=bool(args.layout))
        for reason, count in everything.skipped.items():
            print(f"left out: {count} questions {reason}")
        every = chosen(args, everything)
        candidates = chosen(args, everything, CANDIDATES) if args.distant_evidence else every
        for name, source in missing.items():
            more: dict[str, Any] = {}
            if name == CORPUS:
                rows, more["documents"] = as_json_lines(everything.documents), len(everything.documents)
            else:
                entries = _entries(args, candidates if "min_distance" in source else every, source)
                first = next(entries, None)
                if first is None:
                    print(f"{args.output / name}: not written, no question has its evidence that far apart")
                    continue
                rows = as_json_list(islice(chain([first], entries), len(every.questions)))
                if source["index_only"]:
                    more["corpus"] = {"file": CORPUS, "sha256": manifest.files[CORPUS]["sha256"]}
            with manifest.draft(name, source, **more) as draft:
                draft.writelines(rows)
            entry = manifest.files[name]
            print(f"{args.output / name}: written, {entry['bytes'] / 1e6:.1f} MB, sha256 {entry['sha256'][:16]}")
    return 0
