"""Evaluation files: the same questions inside documents of several lengths.

    mem-agent synthesize --raw hotpot_dev_distractor_v1.json --output DIR --lengths "50 6400"

writes ``DIR/eval_<n>.json``, a list of one entry per question, all with the same questions in the same order::

    {"index": 0, "id": "5a8b...", "input": "Who ...?", "answers": ["Ann"], "num_docs": 50,
     "supporting": ["Ann"], "context": "Document 1:\\nAnn\\nAnn is. ..."}

``supporting`` names the titles of the gold documents, and is left out where the raw data marks none. Above 10,000
documents an entry has ``"documents": [3, 90, ...]`` in place of ``context``: lines of ``DIR/corpus.jsonl``, in
reading order. ``corpus_file.read_context`` gives the text of either kind.

``--distant-evidence "100 400"`` writes beside each ``eval_<n>.json`` the subsets ``eval_<n>_min_distance_<d>.json``
(``distant_evidence``), as far as ``d`` is below ``n`` and a question belongs to one; their entries have
``"evidence": [250, 10], "min_distance": 240`` as well: places of documents, counted from 0.

Invariants:
- equal raw files and options give equal bytes, whatever the number of processes;
- memory holds the pool and a few entries, never a file;
- a file appears whole, with its SHA-256 in ``DIR/manifest.json``. An interrupted run is continued by the same
  command: files that are there are verified and kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from tqdm import tqdm

from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .corpus_file import CORPUS
from .distant_evidence import CANDIDATES, DISTANCES, Places, places_of, subset_name
from .haystack import haystack
from .manifest import Manifest, locked_manifest
from .options import (
    INDEX_ONLY_ABOVE,
    LENGTHS,
    OptionError,
    add_options,
    check_published,
    eval_name,
    layout_of,
    parse_lengths,
)
from .pool import Corpora, Pool, PoolQuestion
from .questions import assemble
from .selection import Selection
from .workers import in_order

QUESTIONS = 128
_PUBLISHED_DISTANCES = "published"


class DistantEvidenceError(MemAgentError):
    """Subsets of distant evidence cannot be made of these raw files."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to write."""

    selection: Selection
    lengths: tuple[int, ...]
    processes: int
    index_only_above: int = INDEX_ONLY_ABOVE
    distances: tuple[int, ...] = ()
    """Of the subsets of distant evidence."""

    def is_index_only(self, length: int) -> bool:
        return length > self.index_only_above

    def subsets(self, length: int) -> list[int]:
        return [distance for distance in self.distances if distance < length]


def synthesise(order: Order, output: Path, say: Callable[[str], None] = print) -> None:
    """Write what is missing.

    Raises:
        MemAgentError: raw data, lengths or folder are of no use, or a file there is another one; OSError: disk full.
    """
    with locked_manifest(output) as manifest:
        files = _files(order)
        missing = [file for file in files if not manifest.has(file.name, file.source)]
        corpus_source = order.selection.pool_description()
        wants_corpus = any(map(order.is_index_only, order.lengths)) and not manifest.has(CORPUS, corpus_source)
        for file in files:
            if file not in missing:
                say(f"{output / file.name}: there")
        if not missing and not wants_corpus:
            return
        everything = order.selection.read()
        for reason, count in everything.skipped.items():
            say(f"left out: {count} questions {reason}")
        if wants_corpus:
            _write_corpus(everything.pool, manifest, corpus_source)
            say(_line(output / CORPUS, manifest))
        maker = _Maker(order, everything)
        for file in missing:
            indices = maker.indices(file)
            if not indices:
                say(f"{output / file.name}: not written, no question has its evidence that far apart")
                continue
            more = {}
            if order.is_index_only(file.length):
                more["corpus"] = {"file": CORPUS, "sha256": manifest.files[CORPUS]["sha256"]}
            with manifest.draft(file.name, file.source, **more) as draft:
                maker.write(file, indices, draft)
            say(_line(output / file.name, manifest))


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    length: int
    distance: int
    """0: not a subset."""
    source: dict[str, Any]


def _files(order: Order) -> list[_File]:
    """All that is asked for, every length followed by its subsets."""
    source, files = order.selection.description(), []
    for n in order.lengths:
        whole = source | {"documents": n, "index_only": order.is_index_only(n)}
        files.append(_File(eval_name(n), n, 0, whole))
        for d in order.subsets(n):
            files.append(_File(subset_name(n, d), n, d, whole | {"min_distance": d, "candidates": CANDIDATES}))
    return files


def _write_corpus(pool: Pool, manifest: Manifest, source: dict[str, Any]) -> None:
    with manifest.draft(CORPUS, source, documents=len(pool)) as draft:
        for number in range(len(pool)):
            draft.write(orjson.dumps(pool.texts[number], option=orjson.OPT_APPEND_NEWLINE))


def _line(path: Path, manifest: Manifest) -> str:
    entry = manifest.files[path.name]
    return f"{path}: written, {entry['bytes'] / 1e6:.1f} MB, sha256 {entry['sha256'][:16]}"


class _Maker:
    """Writes the files of one order; what it has found about a length it knows for the subsets of that length."""

    def __init__(self, order: Order, everything: Corpora) -> None:
        self._order = order
        self._corpora = order.selection.chosen(everything)
        self._candidates = everything
        if order.distances:
            self._candidates = order.selection.candidates(everything, CANDIDATES)
            if not any(len(question.evidence) > 1 for question in self._candidates.questions):
                raise DistantEvidenceError(
                    "--distant-evidence: no question has two supporting facts in an order; give HotpotQA or "
                    "2WikiMultiHopQA as raw files"
                )
        self._places: tuple[int, list[Places]] = (0, [])

    def indices(self, file: _File) -> list[int]:
        """Numbers of the questions of a file: of the chosen ones, or for a subset of the candidates."""
        if not file.distance:
            return list(range(len(self._corpora.questions)))
        if self._places[0] != file.length:
            self._places = file.length, self._all_places(file.length)
        far = [number for number, places in enumerate(self._places[1]) if places.belongs_to(file.distance)]
        return far[: len(self._corpora.questions)]

    def write(self, file: _File, indices: Sequence[int], draft: BinaryIO) -> None:
        def encoded(index: int) -> bytes:
            return orjson.dumps(self._entry(file, index))

        with in_order(encoded, indices, self._order.processes) as entries:
            shown = tqdm(entries, desc=file.name, total=len(indices), unit=" questions", disable=None)
            for number, entry in enumerate(shown):  # disable None: silent unless a terminal
                stop_if_asked()
                draft.write((b",\n" if number else b"[\n") + entry)
        draft.write(b"\n]\n")

    def _all_places(self, length: int) -> list[Places]:
        def places(index: int) -> Places:
            question = self._candidates.questions[index]
            return places_of(question.evidence, self._haystack(question, length))

        indices = range(len(self._candidates.questions))
        with in_order(places, indices, self._order.processes) as found:
            return list(found)

    def _haystack(self, question: PoolQuestion, length: int) -> tuple[int, ...]:
        selection = self._order.selection
        return haystack(self._corpora.pool, question, length, selection.seed, selection.layout)

    def _entry(self, file: _File, index: int) -> dict[str, Any]:
        question = (self._candidates if file.distance else self._corpora).questions[index]
        numbers = self._haystack(question, file.length)
        if self._order.is_index_only(file.length):
            document: dict[str, Any] = {"documents": numbers}
        else:
            document = {"context": assemble(self._corpora.pool.texts[number] for number in numbers)}
        fields = {
            "index": index, "id": question.id, "input": question.question, "answers": question.answers,
            "num_docs": file.length,
        }
        if question.supporting:
            fields["supporting"] = question.supporting
        if file.distance:
            places = places_of(question.evidence, numbers)
            fields |= {"evidence": places.places, "min_distance": places.distance}
        return fields | document


# --- command line ----------------------------------------------------------------------------------------------------
@one_line_errors("the same command continues with what is missing")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    check_published(args, args.questions, "--questions")
    lengths = parse_lengths(args.lengths)
    selection = Selection(
        tuple(args.raw), args.questions or QUESTIONS, args.seed, args.closed_book, args.published_questions,
        layout_of(args),
    )
    distances = _distances(args.distant_evidence, max(lengths), bool(selection.published))
    order = Order(selection, lengths, args.processes, args.index_only_above, distances)
    synthesise(order, args.output)
    return 0


def _distances(asked: str | None, longest: int, published: bool) -> tuple[int, ...]:
    """Those asked for; for ``_PUBLISHED_DISTANCES`` those of the paper that fit. Raises OptionError."""
    if asked is None:
        return ()
    if published:
        raise OptionError(
            "--distant-evidence chooses among more questions than --published-questions names; give one of the two"
        )
    distances = DISTANCES if asked == _PUBLISHED_DISTANCES else parse_lengths(asked)
    fit = tuple(distance for distance in distances if distance < longest)
    if not fit or (fit != distances and distances is not DISTANCES):
        far = next(distance for distance in distances if distance >= longest)
        raise OptionError(f"--distant-evidence {far}: there is no such distance in {longest} documents")
    return fit


def _parser() -> argparse.ArgumentParser:
    description = "Write evaluation files of several lengths."
    parser = argparse.ArgumentParser(prog="mem-agent synthesize", description=description)
    add_options(parser, raw_is_required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of eval_<length>.json")
    parser.add_argument("--lengths", default=" ".join(map(str, LENGTHS)), help="numbers of documents")
    parser.add_argument("--questions", type=positive_number, help=f"questions in every file ({QUESTIONS})")
    parser.add_argument("--distant-evidence", nargs="?", const=_PUBLISHED_DISTANCES, metavar="DISTANCES",
                        help="as well files of questions whose evidence lies at least so many documents apart, the "
                        f"last fact first; without numbers ReMemR1's ({' '.join(map(str, DISTANCES))})")
    parser.add_argument("--index-only-above", type=whole_number, default=INDEX_ONLY_ABOVE, metavar="N",
                        help=f"longer entries name their documents ({INDEX_ONLY_ABOVE})")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
