"""Evaluation files: the same questions inside documents of several lengths.

    mem-agent synthesize --raw hotpot_dev_distractor_v1.json --output DIR --lengths "50 6400"

writes ``DIR/eval_<n>.json``, a list of one entry per question, all with the same questions in the same order::

    {"index": 0, "id": "5a8b...", "input": "Who ...?", "answers": ["Ann"], "num_docs": 50,
     "supporting": ["Ann"], "context": "Document 1:\\nAnn\\nAnn is. ..."}

``supporting`` names the titles of the gold documents, and is left out where the raw data marks none. Above 10,000
documents an entry has ``"documents": [3, 90, ...]`` in place of ``context``: lines of ``DIR/corpus.jsonl``, in
reading order. ``corpus_file.read_context`` gives the text of either kind.

Invariants:
- equal raw files and options give equal bytes, whatever the number of processes;
- memory holds the pool and a few entries, never a file;
- a file appears whole, with its SHA-256 in ``DIR/manifest.json``. An interrupted run is continued by the same
  command: files that are there are verified and kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tqdm import tqdm

from ..system.command_line_types import positive_number, whole_number
from ..system.forked_map import in_order
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .corpus_file import CORPUS
from .haystack import haystack
from .manifest import Draft, Manifest, locked_manifest
from .options import LENGTHS, add_options, eval_name, parse_lengths
from .pool import Corpora
from .questions import assemble
from .selection import Selection

INDEX_ONLY_ABOVE = 10_000


@dataclass(frozen=True, slots=True)
class Order:
    """What to write."""

    selection: Selection
    lengths: tuple[int, ...]
    processes: int
    index_only_above: int = INDEX_ONLY_ABOVE

    def is_index_only(self, length: int) -> bool:
        return length > self.index_only_above


def synthesise(order: Order, output: Path, say: Callable[[str], None] = print) -> None:
    """Write what is missing.

    Raises:
        MemAgentError: raw data, lengths or folder are of no use, or a file there is another one; OSError: disk full.
    """
    source = order.selection.description()
    with locked_manifest(output) as manifest:
        sources = {n: source | {"documents": n, "index_only": order.is_index_only(n)} for n in order.lengths}
        missing = [n for n in order.lengths if not manifest.has(eval_name(n), sources[n])]
        corpus_source = {"kind": "pool", "raw": source["raw"], "format": source["format"]}
        wants_corpus = any(map(order.is_index_only, order.lengths)) and not manifest.has(CORPUS, corpus_source)
        for n in order.lengths:
            if n not in missing:
                say(f"{output / eval_name(n)}: there")
        if not missing and not wants_corpus:
            return
        corpora = order.selection.load()
        for reason, count in corpora.skipped.items():
            say(f"left out: {count} questions {reason}")
        if wants_corpus:
            with manifest.draft(CORPUS, corpus_source, documents=len(corpora.pool)) as draft:
                for number in range(len(corpora.pool)):
                    draft.write(orjson.dumps(corpora.pool.texts[number], option=orjson.OPT_APPEND_NEWLINE))
            say(_line(output / CORPUS, manifest))
        for n in missing:
            corpus = {"corpus": _corpus_entry(manifest)} if order.is_index_only(n) else {}
            with manifest.draft(eval_name(n), sources[n], **corpus) as draft:
                _write_entries(corpora, n, order, draft)
            say(_line(output / eval_name(n), manifest))


def _corpus_entry(manifest: Manifest) -> dict[str, str]:
    return {"file": CORPUS, "sha256": manifest.files[CORPUS]["sha256"]}


def _line(path: Path, manifest: Manifest) -> str:
    entry = manifest.files[path.name]
    return f"{path}: written, {entry['bytes'] / 1e6:.1f} MB, sha256 {entry['sha256'][:16]}"


def _write_entries(corpora: Corpora, length: int, order: Order, draft: Draft) -> None:
    seed, index_only = order.selection.seed, order.is_index_only(length)

    def encoded(index: int) -> bytes:
        return orjson.dumps(_entry(corpora, index, length, seed, index_only))

    indices = range(len(corpora.questions))
    with in_order(encoded, indices, order.processes) as entries:
        for number, entry in enumerate(_progress(entries, length, len(indices))):
            stop_if_asked()
            draft.write((b",\n" if number else b"[\n") + entry)
    draft.write(b"\n]\n")


def _progress(entries: Iterable[bytes], length: int, total: int) -> Iterable[bytes]:
    # None: silent unless a terminal.
    return tqdm(entries, desc=eval_name(length), total=total, unit=" questions", disable=None)


def _entry(corpora: Corpora, index: int, length: int, seed: int, index_only: bool) -> dict[str, Any]:
    question = corpora.questions[index]
    numbers = haystack(corpora.pool, question, length, seed)
    if index_only:
        document: dict[str, Any] = {"documents": numbers}
    else:
        document = {"context": assemble(corpora.pool.texts[number] for number in numbers)}
    fields = {
        "index": index, "id": question.id, "input": question.question, "answers": question.answers, "num_docs": length,
    }
    return fields | ({"supporting": question.supporting} if question.supporting else {}) | document


# --- command line ----------------------------------------------------------------------------------------------------
@one_line_errors("the same command continues with what is missing")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    selection = Selection(tuple(args.raw), args.questions, args.seed, args.closed_book)
    order = Order(selection, parse_lengths(args.lengths), args.processes, args.index_only_above)
    synthesise(order, args.output)
    return 0


def _parser() -> argparse.ArgumentParser:
    description = "Write evaluation files of several lengths."
    parser = argparse.ArgumentParser(prog="mem-agent synthesize", description=description)
    add_options(parser, raw_is_required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of eval_<length>.json")
    parser.add_argument("--lengths", default=" ".join(map(str, LENGTHS)), help="numbers of documents")
    parser.add_argument("--questions", type=positive_number, default=128, help="questions in every file (128)")
    parser.add_argument("--index-only-above", type=whole_number, default=INDEX_ONLY_ABOVE, metavar="N",
                        help=f"longer entries name their documents ({INDEX_ONLY_ABOVE})")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
