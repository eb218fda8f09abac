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

``--distant-evidence "100 400"`` writes beside each ``eval_<n>.json`` ReMemR1's subsets
``eval_<n>_min_distance_<d>.json``, as far as ``d`` is below ``n`` and a question belongs to one; their entries have
``"evidence": [250, 10], "min_distance": 240`` as well: places of documents, counted from 0. By ReMemR1's
process_test.py (``generate_input_output``, ``generate_dataset``) there is one place for every supporting fact, in the
facts' order; a question belongs to the subset of distance d if its places fall, and neighbours among them are d
documents apart or more. A worked example, for a document of 300::

    facts in the paragraphs B, A; A is the 11th document, B the 251st  ->  places (250, 10), falling, distance 240

The paper uses d = 100, 200, 400, 800, 1600, and draws five times as many questions as a file is to have. As there, a
question with two facts in one paragraph has distance 0 and belongs to no subset.

Invariants:
- questions are a function of raw files, verdict or published file, count and seed alone, so every length has the same
  ones in the same order; equal raw files and options give equal bytes, whatever the number of processes;
- memory holds the pool and a few entries, never a file;
- a file appears whole, with its SHA-256 in ``DIR/manifest.json``. An interrupted run is continued by the same
  command: files that are there are verified and kept.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from tqdm import tqdm

from ..system.command_line_types import positive_number, whole_number
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .haystack import Layout, haystack
from .lengths import INDEX_ONLY_ABOVE, LENGTHS, eval_name, parse_lengths
from .manifest import Manifest, locked_manifest, sha256_of
from .numbered import CORPUS, published_ids
from .pool import Corpora, PoolQuestion, load_corpora
from .questions import Question, assemble
from .rows import DataError
from .workers import in_order

FORMAT = 2
"""Raised whenever the same options would give other bytes. 2: HotpotQA's text has no blank before closing quotes."""
QUESTIONS = 128
DISTANCES = (100, 200, 400, 800, 1600)
"""Of the paper."""
CANDIDATES = 5
"""Questions looked at for each one that a subset may have."""
_PUBLISHED_DISTANCES = "published"


# --- which questions -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Selection:
    """Raw files, the questions chosen of them, and how documents are made."""

    raw: tuple[Path, ...]
    count: int
    """Not used where ``published`` names the questions."""
    seed: int
    closed_book: Path | None = None
    published: Path | None = None
    layout: Layout = Layout.CLEAN
    processes: int = 1
    strict: bool = False

    def description(self) -> dict[str, Any]:
        """For a manifest: changes whenever the questions or their documents might. Raises DataError."""
        which: dict[str, Any] = {"published": _digest(self.published)} if self.published else {"questions": self.count}
        which |= {"closed_book": _digest(self.closed_book)} if self.closed_book else {}
        layout = {} if self.layout is Layout.CLEAN else {"layout": str(self.layout)}
        return self.pool_description() | {"kind": "synthesis", "seed": self.seed} | which | layout

    def pool_description(self) -> dict[str, Any]:
        """The same for the pool alone."""
        raw = [{"file": path.name, "sha256": _digest(path)} for path in self.raw]
        as_published = {"layout": str(self.layout)} if self.layout is Layout.PUBLISHED else {}
        return {"kind": "pool", "format": FORMAT, "raw": raw} | as_published

    def read(self) -> Corpora:
        """The pool of all raw files with all questions. Raises DataError."""
        return load_corpora(self.raw, as_published=self.layout is Layout.PUBLISHED, strict=self.strict)

    def chosen(self, corpora: Corpora) -> Corpora:
        """The chosen ones of all questions. Raises DataError."""
        if self.published:
            by_id = {question.id: question for question in corpora.questions}
            ids = published_ids(self.published, self.raw[0])
            if absent := [name for name in ids if name not in by_id]:
                raise DataError(f"{self.raw[0]}: question {absent[0]} lacks a supporting document; fetch the file "
                                "again")
            return replace(corpora, questions=tuple(by_id[name] for name in ids))
        found = self.candidates(corpora, 1)
        if len(found.questions) < self.count:
            gone = len(corpora.questions) - len(found.questions)
            without = f" ({gone} more were dropped by {self.closed_book})" if gone else ""
            raise DataError(f"{self.count} questions asked for, but the raw files have {len(found.questions)}{without}"
                            "; give more raw files or ask for fewer")
        return found

    def candidates(self, corpora: Corpora, times: int) -> Corpora:
        """Of all questions ``times`` as many as the chosen ones, or all there are."""
        dropped: set[str] = set()
        if self.closed_book:
            try:
                dropped = set(orjson.loads(self.closed_book.read_bytes())["dropped"])
            except (OSError, ValueError, KeyError, TypeError):
                raise DataError(f"{self.closed_book}: not a verdict of closed_book; let that finish first") from None
        left = [question for question in corpora.questions if question.id not in dropped]
        rng = random.Random(f"{self.seed}/questions")
        return replace(corpora, questions=tuple(rng.sample(left, min(times * self.count, len(left)))))

    def numbers(self, corpora: Corpora, question: PoolQuestion, length: int) -> tuple[int, ...]:
        """The documents of one question, in reading order. Raises DataError."""
        return haystack(corpora.pool, question, length, self.seed, self.layout)


def _digest(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    return sha256_of(path)


def training_questions(
    selection: Selection, corpora: Corpora, lengths: Sequence[int], *, curriculum: bool
) -> Generator[Question, None, None]:
    """A training question for each of ``corpora.questions``, of the length beside it. Raises DataError.

    ``curriculum``: rows are to be read in this order, and say so in their metadata.
    """

    def context(task: tuple[PoolQuestion, int]) -> str:
        return assemble(corpora.pool[number] for number in selection.numbers(corpora, *task))

    tasks = zip(corpora.questions, lengths, strict=True)
    with in_order(context, tasks, selection.processes) as contexts:
        for question, length, text in zip(corpora.questions, lengths, contexts, strict=True):
            extras: dict[str, Any] = {"id": question.id, "num_docs": length}
            extras |= {"supporting": question.supporting} if question.supporting else {}
            extras |= {"curriculum": True} if curriculum else {}
            yield Question(question.question, question.answers, text, extras=extras)


# --- evaluation files ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _File:
    name: str
    length: int
    distance: int
    """0: not a subset."""
    source: dict[str, Any]

    @property
    def index_only(self) -> bool:
        return self.source["index_only"]


def synthesise(
    selection: Selection, lengths: Sequence[int], output: Path, *, distances: Sequence[int] = (),
    index_only_above: int = INDEX_ONLY_ABOVE,
) -> None:
    """Write what is missing, every length followed by its subsets.

    Raises:
        MemAgentError: raw data, lengths or folder are of no use, or a file there is another one; OSError: disk full.
    """
    with locked_manifest(output) as manifest:
        files = []
        description = selection.description()
        for n in lengths:
            source = description | {"documents": n, "index_only": n > index_only_above}
            files.append(_File(eval_name(n), n, 0, source))
            files += [_File(f"eval_{n}_min_distance_{d}.json", n, d,
                            source | {"min_distance": d, "candidates": CANDIDATES}) for d in distances if d < n]
        missing = [file for file in files if not manifest.has(file.name, file.source)]
        pool_source = selection.pool_description()
        wants_corpus = any(file.index_only for file in files) and not manifest.has(CORPUS, pool_source)
        for file in files:
            if file not in missing:
                print(f"{output / file.name}: there")
        if not missing and not wants_corpus:
            return
        everything = selection.read()
        for reason, count in everything.skipped.items():
            print(f"left out: {count} questions {reason}")
        if wants_corpus:
            with manifest.draft(CORPUS, pool_source, documents=len(everything.pool)) as draft:
                for number in range(len(everything.pool)):
                    draft.write(orjson.dumps(everything.pool[number], option=orjson.OPT_APPEND_NEWLINE))
            _tell(manifest, CORPUS)
        subsets = _Subsets(selection, everything) if distances else None
        chosen = selection.chosen(everything)
        for file in missing:
            corpora, indices = chosen, list(range(len(chosen.questions)))
            if subsets and file.distance:
                corpora, indices = subsets.candidates, subsets.far(file)[: len(indices)]
            if not indices:
                print(f"{output / file.name}: not written, no question has its evidence that far apart")
                continue
            corpus = {"file": CORPUS, "sha256": manifest.files[CORPUS]["sha256"]} if file.index_only else None
            with manifest.draft(file.name, file.source, **({"corpus": corpus} if corpus else {})) as draft:
                _write(selection, corpora, file, indices, draft)
            _tell(manifest, file.name)


def _tell(manifest: Manifest, name: str) -> None:
    entry = manifest.files[name]
    print(f"{manifest.folder / name}: written, {entry['bytes'] / 1e6:.1f} MB, sha256 {entry['sha256'][:16]}")


class _Subsets:
    """Which questions belong to the subsets of distant evidence."""

    def __init__(self, selection: Selection, everything: Corpora) -> None:
        """Raises DataError: none can."""
        self._selection = selection
        self.candidates = selection.candidates(everything, CANDIDATES)
        self._places: tuple[int, list[tuple[int, ...]]] = (0, [])  # of one length, for all its subsets
        if not any(len(question.evidence) > 1 for question in self.candidates.questions):
            raise DataError("--distant-evidence: no question has two supporting facts in an order; give HotpotQA or "
                            "2WikiMultiHopQA as raw files")

    def far(self, file: _File) -> list[int]:
        """Numbers of the candidates that belong to a file."""
        def places(question: PoolQuestion) -> tuple[int, ...]:
            return places_of(question.evidence, self._selection.numbers(self.candidates, question, file.length))

        if self._places[0] != file.length:
            with in_order(places, self.candidates.questions, self._selection.processes) as found:
                self._places = file.length, list(found)
        return [number for number, each in enumerate(self._places[1]) if is_far(each, file.distance)]


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


def _write(selection: Selection, corpora: Corpora, file: _File, indices: Sequence[int], draft: BinaryIO) -> None:
    def entry(index: int) -> bytes:
        question = corpora.questions[index]
        numbers = selection.numbers(corpora, question, file.length)
        fields: dict[str, Any] = {"index": index, "id": question.id, "input": question.question,
                                  "answers": question.answers, "num_docs": file.length}
        if question.supporting:
            fields["supporting"] = question.supporting
        if file.distance:
            places = places_of(question.evidence, numbers)
            fields |= {"evidence": places, "min_distance": distance_of(places)}
        if file.index_only:
            return orjson.dumps(fields | {"documents": numbers})
        return orjson.dumps(fields | {"context": assemble(corpora.pool[number] for number in numbers)})

    with in_order(entry, indices, selection.processes) as entries:
        shown = tqdm(entries, desc=file.name, total=len(indices), unit=" questions", disable=None)
        for number, content in enumerate(shown):  # disable None: silent unless a terminal
            stop_if_asked()
            draft.write((b",\n" if number else b"[\n") + content)
    draft.write(b"\n]\n")


# --- command line ----------------------------------------------------------------------------------------------------
def add_options(parser: argparse._ActionsContainer, raw_is_required: bool) -> None:
    """Those of a selection, except the count, which every command names its own way."""
    parser.add_argument("--raw", type=Path, nargs="+", metavar="FILE", required=raw_is_required, default=[],
                        help="HotpotQA, 2WikiMultiHopQA, MuSiQue or SQuAD files (.json, .jsonl, .parquet)")
    parser.add_argument("--seed", type=whole_number, default=42, help="choice of questions and documents (42)")
    parser.add_argument("--closed-book", type=Path, metavar="FILE",
                        help="verdict.json of closed_book: leave out what needs no document")
    parser.add_argument("--published-questions", type=Path, metavar="FILE",
                        help="ask the questions of a published eval_<n>.json, which names rows of the raw file")
    layouts = parser.add_mutually_exclusive_group()
    layouts.add_argument(f"--{Layout.KEEP_OWN}", dest="layout", action="store_const", const=Layout.KEEP_OWN,
                         default=Layout.CLEAN,
                         help="keep all paragraphs of a question, also other ones that hold its answer")
    layouts.add_argument(f"--{Layout.PUBLISHED}", dest="layout", action="store_const", const=Layout.PUBLISHED,
                         help="place documents as the published generators do: all paragraphs of a question at the "
                         "same places in every document of a length, others of any content, text as the data has it")
    parser.add_argument("--processes", type=positive_number, default=len(os.sched_getaffinity(0)), metavar="N",
                        help="worker processes (one per core)")


def selection_of(args: argparse.Namespace, count: int | None, default: int, strict: bool = False) -> Selection:
    """What the options select. Raises DataError: some choose questions that ``--published-questions`` names."""
    if args.published_questions and (count is not None or args.closed_book):
        raise DataError("--published-questions names the questions: leave out their number, and --closed-book")
    if args.published_questions and len(args.raw) > 1:
        raise DataError("--published-questions names rows of one file; give hotpot_dev_distractor_v1.json alone")
    return Selection(tuple(args.raw), count or default, args.seed, args.closed_book, args.published_questions,
                     args.layout, args.processes, strict)


@one_line_errors("the same command continues with what is missing")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent synthesize", description="Write evaluation files of any length.")
    add_options(parser, raw_is_required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of eval_<length>.json")
    parser.add_argument("--lengths", default=" ".join(map(str, LENGTHS)), help="numbers of documents")
    parser.add_argument("--questions", type=positive_number, help=f"questions in every file ({QUESTIONS})")
    parser.add_argument("--distant-evidence", nargs="?", const=_PUBLISHED_DISTANCES, metavar="DISTANCES",
                        help="as well files of questions whose evidence lies at least so many documents apart, the "
                        f"last fact first; without numbers ReMemR1's ({' '.join(map(str, DISTANCES))})")
    parser.add_argument("--index-only-above", type=whole_number, default=INDEX_ONLY_ABOVE, metavar="N",
                        help=f"longer entries name their documents ({INDEX_ONLY_ABOVE})")
    args = parser.parse_args(argv)
    selection, lengths = selection_of(args, args.questions, QUESTIONS), parse_lengths(args.lengths)
    synthesise(selection, lengths, args.output, distances=_distances(args, max(lengths)),
               index_only_above=args.index_only_above)
    return 0


def _distances(args: argparse.Namespace, longest: int) -> tuple[int, ...]:
    """Those asked for; without numbers those of the paper that fit. Raises DataError."""
    if args.distant_evidence is None:
        return ()
    if args.published_questions:
        raise DataError("--distant-evidence chooses among more questions than --published-questions names; give one "
                        "of the two")
    of_the_paper = args.distant_evidence == _PUBLISHED_DISTANCES
    distances = DISTANCES if of_the_paper else parse_lengths(args.distant_evidence)
    fit = tuple(distance for distance in distances if distance < longest)
    if not fit or (fit != distances and not of_the_paper):
        far = next(distance for distance in distances if distance >= longest)
        raise DataError(f"--distant-evidence {far}: there is no such distance in {longest} documents")
    return fit


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
