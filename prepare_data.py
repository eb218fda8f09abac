"""Writes training data: question answering rows in, one JSON object per line out.

    mem-agent prepare --hf-dataset BytedTsinghua-SIA/hotpotqa --output train.jsonl
    mem-agent prepare --input own_questions.csv --output train.jsonl
    mem-agent prepare --synthesize --raw hotpot_train_v1.1.json --documents 200 --output train.jsonl

``python prepare_data.py`` is the same command. The last one makes the documents: every question's gold ones hidden
among others (data/haystack.py), of one length or, with ``--documents "50:0.3 100:0.3 200:0.4"``, of several in that
order.

The first two take rows with ``question``, ``answer`` (or ``answers``) and ``context``, which is a text, a list of
texts or a list of paragraphs; rows of the known data sets; and rows that this command has written: data/questions.py
shows them all. Each line written has the fields slime and vime expect::

    {"prompt": "Who ...?", "label": "Ann", "metadata": {"ground_truth": ["Ann", "Ann Lee"], "context": "Document ..."}}

``label`` is the first gold, ``metadata.ground_truth`` all of them; ``id``, ``level``, ``type``, ``supporting_facts``
and ``task`` are carried along in the metadata; ``supporting`` has the titles of the gold documents where the data
marks them otherwise. Synthesised rows have ``id``, ``num_docs`` and ``supporting``. Documents longer than
``--inline-context-chars`` go to ``<output>.docs`` (see document_store.py), and their rows hold ``context_id`` in place
of ``context``; with ``--no-context`` rows may have neither.

Invariants:
- Rows stream: memory does not grow with the input.
- The output appears whole by one rename. After an error the files of an earlier run are as they were.
- Every row left out is reported on stderr (the first 20 one by one) and counted.
- Synthesised rows are a function of raw files and options; a broken raw row ends the run.

Exit codes: 0 rows were written, 1 no good row (or a bad one under --strict), 2 the input cannot be used, or the
output not written, 130 interrupted. HF_ENDPOINT and its like are left to the Hugging Face libraries.
"""

from __future__ import annotations

if not __package__:
    from _bootstrap import run_in_package

    run_in_package(__file__)

import argparse
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from tqdm import tqdm

from .data.bad_rows import BadRows, NoGoodRows
from .data.document_store import DocumentStore, DocumentWriter, store_folder
from .data.options import Layout, add_options, check_published, layout_of
from .data.questions import BadRow
from .data.sources import Source, SourceError, open_dataset, open_file
from .data.training_rows import COLUMNS, Conversion, Schema, UnknownSchema, row_of
from .system.command_line_types import positive_number, whole_number
from .system.errors import MemAgentError
from .system.files import replacing
from .system.one_line_errors import one_line_errors
from .system.signals import stop_if_asked, stop_on_signals

INLINE_CONTEXT_CHARS = 20_000
SYNTHETIC_ROWS, SYNTHETIC_DOCUMENTS = 32_768, "200"


@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    inputs = [args.input] if args.input else args.raw or []
    if args.output.exists() and any(path.exists() and path.samefile(args.output) for path in inputs):
        raise SourceError(f"{args.output} is also an input; choose another --output")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    print(_synthesize(args) if args.synthesize else _run(args))
    return 0


def _run(args: argparse.Namespace) -> str:
    if args.published_questions or layout_of(args) is not Layout.CLEAN:
        raise SourceError("--published-questions and layouts of documents are for --synthesize, which makes documents")
    source = (open_file(args.input, COLUMNS) if args.input
              else open_dataset(args.hf_dataset, args.hf_split, args.hf_revision, COLUMNS))
    with DocumentWriter(store_folder(args.output)) as documents, replacing(args.output) as out:
        counts = _write_rows(source, args, documents, out)
        if not counts["written"]:
            name = args.input or args.hf_dataset
            if counts["rows"] and counts["unknown"] == counts["rows"]:
                raise SourceError(f"{name}: {UnknownSchema()}")
            raise NoGoodRows(f"{name}: no good row among {counts['rows']}; {args.output} is not written")
        documents.commit()  # before the rows that refer to it
    return f"{_written(args.output, counts['written'], counts['stored'])}; {counts['bad']} bad rows left out"


def _synthesize(args: argparse.Namespace) -> str:
    from .data.selection import Selection  # a plain conversion does without the synthesiser
    from .data.training_set import lengths_of, parse_curriculum, training_questions

    if not args.raw or args.limit:
        raise SourceError("--synthesize needs --raw FILE..., and --rows in place of --limit")
    check_published(args, args.rows, "--rows")
    curriculum, layout = parse_curriculum(args.documents), layout_of(args)
    rows = args.rows or SYNTHETIC_ROWS
    corpora = Selection(tuple(args.raw), rows, args.seed, args.closed_book, args.published_questions, layout).load()
    rows = len(corpora.questions)
    lengths = lengths_of(curriculum, rows, args.mixed, args.seed)
    questions = training_questions(corpora, lengths, args.seed, args.processes, layout)
    stored = 0
    with DocumentWriter(store_folder(args.output)) as documents, replacing(args.output) as out, closing(questions):
        for question in tqdm(questions, total=rows, unit=" rows", disable=None):
            stop_if_asked()
            row, document = row_of(question, args.inline_context_chars)
            _write(row, document, documents, out)
            stored += document is not None
        documents.commit()  # before the rows that refer to it
    return f"{_written(args.output, rows, stored)}; {corpora.skipped.total()} questions left out"


def _written(output: Path, rows: int, stored: int) -> str:
    documents = f", {stored} of them with documents in {store_folder(output)}" if stored else ""
    return f"{output}: {rows} rows{documents}"


def _write_rows(source: Source, args: argparse.Namespace, documents: DocumentWriter, out: BinaryIO) -> Counter[str]:
    """Counts: rows read, written, stored (documents in the store), bad, unknown (bad rows of no known schema)."""
    store = DocumentStore(store_folder(args.input)) if args.input else None
    conversion = Conversion(args.schema and Schema(args.schema), not args.no_context, args.inline_context_chars, store)
    counts: Counter[str] = Counter()
    bad = BadRows("prepare_data", strict=args.strict)
    for row in tqdm(source.rows, total=source.total, unit=" rows", disable=None):  # None: silent unless a terminal
        counts["rows"] += 1
        try:
            if row.fields is None:
                raise BadRow(row.problem)
            training_row, document = conversion.row(row.fields)
            _write(training_row, document, documents, out)
        except BadRow as error:
            counts["unknown"] += isinstance(error, UnknownSchema)
            bad.add(f"{row.where}: {error}")
            continue
        counts["written"] += 1
        counts["stored"] += document is not None
        if counts["written"] == args.limit:
            break
    bad.tell_rest()
    counts["bad"] = bad.count
    return counts


def _write(row: dict[str, Any], document: str | None, documents: DocumentWriter, out: BinaryIO) -> None:
    try:
        line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError as error:  # a date or bytes of a table
        raise BadRow(f"cannot be written as JSON ({error})") from None
    if document is not None:
        documents.add(document)  # not before: a row that cannot be written leaves no document behind
    out.write(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent prepare", description="Write training data as JSONL.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--hf-dataset", metavar="ID", help="Hugging Face dataset, streamed")
    source.add_argument("--input", type=Path, metavar="FILE", help=".parquet, .csv, .jsonl or .json (a list) file")
    source.add_argument("--synthesize", action="store_true", help="make long documents from --raw files")
    parser.add_argument("--hf-split", default="train", help="split of the dataset (train)")
    parser.add_argument("--hf-revision", help="branch, tag or commit of the dataset")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSONL file to write")
    parser.add_argument("--schema", choices=[*Schema], help="layout of the rows (default: by its fields)")
    parser.add_argument("--no-context", action="store_true", help="take questions without a document as well")
    parser.add_argument("--inline-context-chars", type=whole_number, default=INLINE_CONTEXT_CHARS, metavar="N",
                        help=f"documents up to N characters stay in their row ({INLINE_CONTEXT_CHARS})")
    parser.add_argument("--limit", type=positive_number, metavar="N", help="stop after N rows written")
    parser.add_argument("--strict", action="store_true", help="end at the first bad row, writing nothing")
    made = parser.add_argument_group("with --synthesize")
    add_options(made, raw_is_required=False)
    made.add_argument("--documents", default=SYNTHETIC_DOCUMENTS, metavar="CURRICULUM",
                      help=f"documents per row, perhaps several with their shares ({SYNTHETIC_DOCUMENTS})")
    made.add_argument("--rows", type=positive_number, help=f"rows ({SYNTHETIC_ROWS})")
    made.add_argument("--mixed", action="store_true", help="several lengths in random order")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
