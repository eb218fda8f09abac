"""Long documents around raw questions: evaluation files of several lengths, and the questions of a training set.

    mem-agent synthesize --raw hotpot_dev_distractor_v1.json --output DIR --lengths "50 6400"

writes ``DIR/eval_<n>.json``, a list of one entry per question, all with the same questions in the same order::

    {"index": 0, "id": "5a8b...", "input": "Who ...?", "answers": ["Ann"], "num_docs": 50,
     "supporting": ["Ann"], "context": "Document 1:\\nAnn\\nAnn is. ..."}

``supporting`` names the titles of the gold documents, and is left out where the raw data marks none. Above 10,000
documents an entry has ``"documents": [3, 90, ...]`` in place of ``context``: lines of ``DIR/corpus.jsonl``, in
reading order (``numbered.Corpus`` gives the text).

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
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from tqdm import tqdm

from ..rewards.answers import AnswerKind, kind_of
from ..rewards.qa_metrics import normalise_squad
from ..system.command_line_types import positive_number, whole_number
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .lengths import INDEX_ONLY_ABOVE, LENGTHS, eval_name, parse_lengths
from .manifest import locked_manifest, sha256_of
from .numbered import CORPUS, published_ids
from .pool import Corpora, PoolQuestion, load_corpora
from .questions import Question, assemble
from .rows import DataError

FORMAT = 2
"""Raised whenever the same options would give other bytes. 2: HotpotQA's text has no blank before closing quotes."""
QUESTIONS = 128
_PUBLISHED_SHUFFLE = 4
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
        what = "paragraphs of its own (--published-layout)" if published else "gold documents"
        raise DataError(f"question {question.id} has {len(chosen)} {what}, more than the {length} asked for; choose a "
                        "greater length")
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
                        f"{len(chosen)} can be used (others hold its answer); give more raw files")
    (random.Random(_PUBLISHED_SHUFFLE) if published else rng).shuffle(chosen)
    return tuple(chosen)


def _without_answer(documents: Sequence[str], question: PoolQuestion) -> Callable[[int], bool]:
    """Whether a document holds none of the answers."""
    answers = [answer for answer in question.answers if kind_of(answer) is not AnswerKind.CHOICE]
    plain = [f" {form} " for answer in answers if (form := normalise_squad(answer))]
    # "The The" is all articles, of which the plain form has none.
    odd = [normalise_squad(answer, keep_articles=True) for answer in answers if not normalise_squad(answer)]
    articles = [f" {form} " for form in odd if form]

    def is_clean(number: int) -> bool:
        words = _words(documents[number])
        text = f" {normalise_squad(documents[number], keep_articles=True)} " if articles else ""
        return not any(form in words for form in plain) and not any(form in text for form in articles)

    return is_clean


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
@dataclass(frozen=True, slots=True)
class Selection:
    """Raw files, the questions chosen of them, and how documents are made."""

    raw: Sequence[Path]
    count: int
    """Not used where ``published`` names the questions."""
    seed: int
    closed_book: Path | None
    published: Path | None
    layout: str
    """``published-layout``, or nothing."""

    def description(self) -> dict[str, Any]:
        """For a manifest: changes whenever the questions or their documents might. Raises DataError."""
        which: dict[str, Any] = {"published": _digest(self.published)} if self.published else {"questions": self.count}
        which |= {"closed_book": _digest(self.closed_book)} if self.closed_book else {}
        return self.pool_description() | {"kind": "synthesis", "seed": self.seed} | which

    def pool_description(self) -> dict[str, Any]:
        """The same for the pool alone."""
        raw = [{"file": path.name, "sha256": _digest(path)} for path in self.raw]
        return {"kind": "pool", "format": FORMAT, "raw": raw} | ({"layout": self.layout} if self.layout else {})

    def read(self) -> Corpora:
        """The pool of all raw files with all questions. Raises DataError."""
        return load_corpora(self.raw, as_published=bool(self.layout))

    def chosen(self, corpora: Corpora) -> Corpora:
        """The chosen ones of all questions. Raises DataError."""
        if self.published:
            by_id = {question.id: question for question in corpora.questions}
            ids = published_ids(self.published, self.raw[0])
            if absent := set(ids) - by_id.keys():
                raise DataError(f"{self.raw[0]}: question {min(absent)} lacks a supporting document; fetch it again")
            return replace(corpora, questions=tuple(by_id[name] for name in ids))
        found = self.candidates(corpora, 1)
        if len(found.questions) < self.count:
            gone = f", without those dropped by {self.closed_book}" if self.closed_book else ""
            raise DataError(f"{self.count} questions asked for, but the raw files have {len(found.questions)}{gone}")
        return found

    def candidates(self, corpora: Corpora, times: int) -> Corpora:
        """Of all questions ``times`` as many as the chosen ones, or all there are."""
        dropped: set[str] = set()
        if self.closed_book:
            try:
                dropped = set(orjson.loads(self.closed_book.read_bytes())["dropped"])
            except (ValueError, KeyError, TypeError):
                raise DataError(f"{self.closed_book}: not a verdict of closed_book; let that finish first") from None
        left = [question for question in corpora.questions if question.id not in dropped]
        drawn = random.Random(f"{self.seed}/questions").sample(left, min(times * self.count, len(left)))
        return replace(corpora, questions=tuple(drawn))

    def numbers(self, corpora: Corpora, question: PoolQuestion, length: int) -> tuple[int, ...]:
        """The documents of one question, in reading order. Raises DataError."""
        return haystack(corpora.documents, question, length, self.seed, published=bool(self.layout))


def _digest(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return sha256_of(path)


def training_questions(
    selection: Selection, corpora: Corpora, lengths: Sequence[int], *, curriculum: bool
) -> Iterator[Question]:
    """A training question for each of ``corpora.questions``, of the length beside it. Raises DataError.

    ``curriculum``: rows are to be read in this order, and say so in their metadata.
    """
    for question, length in zip(corpora.questions, lengths, strict=True):
        extras: dict[str, Any] = {"id": question.id, "num_docs": length}
        extras |= {"supporting": question.supporting} if question.supporting else {}
        extras |= {"curriculum": True} if curriculum else {}
        context = assemble(corpora.documents[number] for number in selection.numbers(corpora, question, length))
        yield Question(question.question, question.answers, context, extras=extras)


# --- evaluation files ------------------------------------------------------------------------------------------------
def synthesise(selection: Selection, lengths: Sequence[int], output: Path, distant: bool) -> None:
    """Write what is missing, every length followed by its subsets.

    Raises:
        MemAgentError: raw data, lengths or folder are of no use, or a file there is another one; OSError: disk full.
    """
    with locked_manifest(output) as manifest:
        description, sources = selection.description(), dict[str, dict[str, Any]]()
        for n in lengths:
            source = description | {"documents": n, "index_only": n > INDEX_ONLY_ABOVE}
            sources[eval_name(n)] = source
            for d in [d for d in DISTANCES if distant and d < n]:
                subset = source | {"min_distance": d, "candidates": CANDIDATES}
                sources[eval_name(f"{n}_min_distance_{d}")] = subset
        pool_source = selection.pool_description()
        if any(source["index_only"] for source in sources.values()):
            sources = {CORPUS: pool_source} | sources
        missing = [name for name, source in sources.items() if not manifest.has(name, source)]
        for name in sources:
            if name not in missing and name != CORPUS:
                print(f"{output / name}: there")
        if not missing:
            return
        everything = selection.read()
        for reason, count in everything.skipped.items():
            print(f"left out: {count} questions {reason}")
        chosen = selection.chosen(everything)
        candidates = selection.candidates(everything, CANDIDATES) if distant else chosen
        if distant and not any(len(question.evidence) > 1 for question in candidates.questions):
            raise DataError("--distant-evidence: no question has two supporting facts in an order; give HotpotQA or "
                            "2WikiMultiHopQA as raw files")

        @cache
        def places(length: int) -> list[tuple[int, ...]]:
            """Where every candidate's evidence stands in its document."""
            return [places_of(question.evidence, selection.numbers(candidates, question, length))
                    for question in candidates.questions]

        for name in missing:
            source = sources[name]
            if name == CORPUS:
                with manifest.draft(name, source, documents=len(everything.documents)) as draft:
                    draft.writelines(orjson.dumps(text) + b"\n" for text in everything.documents)
            else:
                corpora, indices = chosen, list(range(len(chosen.questions)))
                if "min_distance" in source:
                    far = [index for index, found in enumerate(places(source["documents"]))
                           if is_far(found, source["min_distance"])]
                    corpora, indices = candidates, far[: len(indices)]
                if not indices:
                    print(f"{output / name}: not written, no question has its evidence that far apart")
                    continue
                corpus = {"file": CORPUS, "sha256": manifest.files[CORPUS]["sha256"]} if source["index_only"] else None
                with manifest.draft(name, source, **({"corpus": corpus} if corpus else {})) as draft:
                    _write(selection, corpora, source, indices, draft)
            entry = manifest.files[name]
            print(f"{output / name}: written, {entry['bytes'] / 1e6:.1f} MB, sha256 {entry['sha256'][:16]}")


def places_of(evidence: Sequence[int], numbers: Sequence[int]) -> tuple[int, ...]:
    """The place in ``numbers`` of every supporting fact's document."""
    place = {number: at for at, number in enumerate(numbers)}
    return tuple(place[number] for number in evidence)


def distance_of(places: Sequence[int]) -> int:
    """The least one between neighbours; 0 where there are no two."""
    return min((after - before for before, after in pairwise(sorted(places))), default=0)


def is_far(places: Sequence[int], distance: int) -> bool:
    """Whether a question belongs to the subset of this distance."""
    return all(before >= after for before, after in pairwise(places)) and distance_of(places) >= distance


def _write(
    selection: Selection, corpora: Corpora, source: dict[str, Any], indices: Sequence[int], draft: BinaryIO
) -> None:
    length = source["documents"]
    for place, index in enumerate(tqdm(indices, unit=" questions", disable=None)):  # None: silent unless a terminal
        stop_if_asked()
        question = corpora.questions[index]
        entry: dict[str, Any] = {"index": index, "id": question.id, "input": question.question,
                                 "answers": question.answers, "num_docs": length}
        if question.supporting:
            entry["supporting"] = question.supporting
        numbers = selection.numbers(corpora, question, length)
        if "min_distance" in source:
            places = places_of(question.evidence, numbers)
            entry |= {"evidence": places, "min_distance": distance_of(places)}
        if source["index_only"]:
            entry["documents"] = numbers
        else:
            entry["context"] = assemble(corpora.documents[number] for number in numbers)
        draft.write((b",\n" if place else b"[\n") + orjson.dumps(entry))
    draft.write(b"\n]\n")


# --- command line ----------------------------------------------------------------------------------------------------
def add_options(add: Callable[..., Any]) -> None:
    """Those of a selection, except the count, which every command names its own way."""
    add("--raw", type=Path, nargs="+", metavar="FILE", default=[], help="HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD")
    add("--seed", type=whole_number, default=42, help="choice of questions and documents (42)")
    add("--closed-book", type=Path, metavar="FILE", help="verdict.json: leave out what needs no document")
    add("--published-questions", type=Path, metavar="FILE",
        help="ask the questions of a published eval_<n>.json, which names rows of the raw file")
    add("--published-layout", dest="layout", action="store_const", const="published-layout", default="",
        help="place documents as the published generators do: all paragraphs of a question at the same places in "
        "every document of a length, others of any content, text as the data has it")


def selection_of(args: argparse.Namespace, count: int | None, default: int) -> Selection:
    """What the options select. Raises DataError: some choose questions that ``--published-questions`` names."""
    if not args.raw:
        raise DataError("--raw: name HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD files")
    if args.published_questions and (count is not None or args.closed_book or len(args.raw) > 1):
        raise DataError("--published-questions: name their one raw file, and neither a number nor --closed-book")
    return Selection(args.raw, count or default, args.seed, args.closed_book, args.published_questions, args.layout)


@one_line_errors("the same command continues with what is missing")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent synthesize", description="Write evaluation files of any length.")
    add = parser.add_argument
    add_options(add)
    add("--output", type=Path, required=True, metavar="DIR", help="folder of eval_<length>.json")
    add("--lengths", default=" ".join(map(str, LENGTHS)), help="numbers of documents")
    add("--questions", type=positive_number, help=f"questions in every file ({QUESTIONS})")
    add("--distant-evidence", action="store_true",
        help=f"as well files of questions whose evidence lies {DISTANCES} documents apart, the last fact first")
    args = parser.parse_args(argv)
    lengths = parse_lengths(args.lengths)
    if args.distant_evidence and (args.published_questions or max(lengths) <= DISTANCES[0]):
        raise DataError(f"--distant-evidence: not with --published-questions; for lengths above {DISTANCES[0]}")
    synthesise(selection_of(args, args.questions, QUESTIONS), lengths, args.output, args.distant_evidence)
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
