"""Writes training data: question answering rows in, one JSON object per line out.

    mem-agent prepare --hf-dataset BytedTsinghua-SIA/hotpotqa --output train.jsonl
    mem-agent prepare --input own_questions.csv --output train.jsonl
    mem-agent prepare --input own_questions.csv --output data/own      with held-out questions (data/own_questions.py)
    mem-agent prepare --synthesize --raw hotpot_train_v1.1.json --documents 200 --output train.jsonl
    mem-agent prepare --babilong qa1,qa2 --background novel.txt --tokenizer MODEL --output data/babilong

``python prepare_data.py`` is the same command; data/babilong.py tells of --babilong. --synthesize makes the documents:
every question's gold ones hidden among others (data/synthesize.py), of one length or, with ``--documents "50:0.3
100:0.3 200:0.4"``, of several in that order: such a curriculum says so in its rows (``metadata.curriculum``) and is
trained on in the file's order unless ROLLOUT_SHUFFLE=1.

The first two take rows with ``question``, ``answer`` (or ``answers``) and ``context``, which is a text, a list of
texts or a list of paragraphs; and rows of the known data sets: data/questions.py shows them all. Each line written has
the fields slime and vime expect::

    {"prompt": "Who ...?", "label": "Ann", "metadata": {"ground_truth": ["Ann", "Ann Lee"], "context": "Document ..."}}

``label`` is the first gold, ``metadata.ground_truth`` all of them; ``id``, ``level``, ``type``, ``supporting_facts``
and ``task`` are carried along in the metadata; ``supporting`` has the titles of the gold documents where the data
marks them otherwise. Synthesised rows have ``id``, ``num_docs`` and ``supporting``. Documents longer than 20,000
characters go to ``<output>.docs`` (data/document_store.py), and their rows hold ``context_id`` in place of
``context``; rows without any document are taken as long as none before has one.

Invariants:
- Rows stream: memory does not grow with the input.
- The output appears whole by one rename. After an error the files of an earlier run are as they were.
- Every skipped row is reported on stderr (the first 20 one by one) and counted by its reason. Rows that repeat the id
  of another one are kept when they are converted; where documents are made for them they are skipped.
- Synthesised rows are a function of raw files and options.

Exit codes: 0 rows were written, 1 no good row, 2 the input cannot be used, or the
output not written, 130 interrupted. HF_ENDPOINT and its like are left to the Hugging Face libraries.
"""

from __future__ import annotations

if not __package__:
    from __init__ import run_in_package

    run_in_package(__file__)

import argparse
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
from tqdm import tqdm

from .checkpoints.hf_model import load_vocabulary, local_folder
from .data import babilong
from .data.babilong import Count, write_babilong
from .data.document_store import DocumentStore, store_folder
from .data.eval_files import sha256_of
from .data.own_questions import numbered_documents, write_folder
from .data.questions import Question, load_corpora, read_question, row_of
from .data.rows import BadRow, BadRows, DataError, NoGoodRows, open_dataset, open_file
from .data.synthesize import add_options, chosen, parse_curriculum, training_questions
from .system.cli import one_line_errors, positive_number, stop_if_asked
from .system.errors import MemAgentError
from .system.files import replacing

ROWS, DOCUMENTS = 32_768, "200"
"""Of a synthesised training set."""
HELD_OUT, MOST_HELD_OUT = 0.2, 200
"""Share and number of the questions that a folder keeps for evaluation."""
_DOCUMENT = frozenset({"context", "context_id"})
Written = tuple[bytes, str | None]
"""A line of the output, and its document if that is not inline."""


@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    output: Path = args.output
    if args.babilong:
        write_babilong(args, _counter(args.tokenizer))
        return 0
    if output.exists() and any(path.exists() and path.samefile(output) for path in [*args.raw, args.input] if path):
        raise DataError(f"{output} is also an input; choose another --output")
    if (output.is_dir() or not output.suffix) and not args.synthesize:
        return _write_folder(args)
    if args.held_out is not None or args.lengths or (args.documents and not args.synthesize):
        raise DataError(f"--held-out, --lengths and --documents are for a folder; {output} is a file")
    output.parent.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    converted = (written for _, written in _good_rows(args, counts))
    rows = _synthesized(args, counts) if args.synthesize else converted
    documents = DocumentStore(store_folder(output))
    with replacing(output) as out, closing(rows):
        for line, document in rows:
            stop_if_asked()
            if document is not None:
                documents.add(document)
            out.write(line)
            counts["stored"] += document is not None
    stored = f", {counts['stored']} of them with documents in {store_folder(output)}" if counts["stored"] else ""
    left_out = f"{counts['left out']} {'questions' if args.synthesize else 'bad rows'} left out"
    print(f"{output}: {counts['written']} rows{stored}; {left_out}")
    return 0


def _counter(model: str | None) -> Count:
    """What counts a text's tokens as ``model`` has them. Raises DataError, ConfigError."""
    if not model:
        raise DataError("--babilong: name the model whose tokens are counted, as --tokenizer FOLDER")
    vocabulary = load_vocabulary(local_folder(model, "--tokenizer", weights=False))
    return lambda text: len(vocabulary.encode_text(text))


def _write_folder(args: argparse.Namespace) -> int:
    """Training rows and held-out evaluation files."""
    counts: Counter[str] = Counter()
    questions = [question for question, _ in _good_rows(args, counts)]
    source = {"kind": "own", "limit": args.limit, "dataset": args.hf_dataset, "split": args.hf_split}
    if args.input:
        source |= {"file": args.input.name, "sha256": sha256_of(args.input)}
    held_out = min(HELD_OUT, MOST_HELD_OUT / len(questions)) if args.held_out is None else args.held_out
    write_folder(args.output, questions, source, held_out=held_out, lengths=args.lengths,
                 documents=args.documents or "", seed=args.seed)
    print(f"{counts['left out']} bad rows left out; TRAIN_DATA={args.output} names rows and evaluation files")
    return 0


def _good_rows(args: argparse.Namespace, counts: Counter[str]) -> Iterator[tuple[Question, Written]]:
    """The rows of a file or dataset; counts those written and left out."""
    if args.published_questions or args.layout:
        raise DataError("--published-questions and --published-layout are for --synthesize, which makes documents")
    name = args.input or args.hf_dataset
    rows = open_file(name) if args.input else open_dataset(name, args.hf_split)
    bad = BadRows("prepare_data")

    def read(fields: dict[str, Any]) -> tuple[Question, bytes, str | None, dict[str, Any]]:
        row, document = row_of(question := read_question(fields))
        if args.lengths or args.documents:
            numbered_documents(question, {})
        if counts["with documents"] and _DOCUMENT.isdisjoint(row["metadata"]):
            raise BadRow("context is missing, which the rows before have")
        return question, _line(row), document, row["metadata"]

    for question, line, document, metadata in bad.sift(rows, read):
        counts["with documents"] += not _DOCUMENT.isdisjoint(metadata)
        counts["written"] += 1
        yield question, (line, document)
        if counts["written"] == args.limit:
            break
    bad.tell_rest()
    counts["left out"] = bad.count
    if not counts["written"]:
        raise NoGoodRows(f"{name}: no good row among {bad.count}; {args.output} is not written")
    if not counts["with documents"]:
        print("prepare_data: no row has a document (field `context`): they are for AGENT=chat alone", file=sys.stderr)


def _synthesized(args: argparse.Namespace, counts: Counter[str]) -> Generator[Written, None, None]:
    """Training rows with made documents; counts those written, and the questions left out."""
    if args.limit or not args.raw:
        raise DataError("--synthesize takes --raw FILE..., and --rows in place of --limit")
    curriculum = parse_curriculum(args.documents or DOCUMENTS)
    corpora = chosen(args, load_corpora(args.raw, as_published=bool(args.layout)))
    counts.update({"written": len(corpora.questions), "left out": corpora.skipped.total()})
    questions = training_questions(args, corpora, curriculum)
    for question in tqdm(questions, total=counts["written"], unit=" rows", disable=None):
        row, document = row_of(question)
        yield _line(row), document


def _line(row: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError as error:  # a date or bytes of a table
        raise BadRow(f"cannot be written as JSON ({error})") from None


def _held_out(text: str) -> float:
    if not 0 <= float(text) or not (float(text) < 1 or float(text).is_integer()):
        raise ValueError
    return float(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent prepare", description="Write training data as JSONL.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--hf-dataset", metavar="ID", help="Hugging Face dataset, streamed")
    source.add_argument("--input", type=Path, metavar="FILE", help=".parquet, .csv, .jsonl or .json file")
    source.add_argument("--babilong", metavar="TASKS", help="BABILong's tasks, such as qa1,qa2,qa3,qa4,qa5")
    source.add_argument("--synthesize", action="store_true", help="make long documents from --raw files")
    add = parser.add_argument
    add("--hf-split", default="train", help="split of the dataset (train)")
    add("--output", type=Path, required=True, metavar="FILE",
        help="JSONL file to write, or a folder for rows and evaluation files")
    add("--limit", type=positive_number, metavar="N", help="stop after N rows written")
    add("--documents", metavar="CURRICULUM",
        help="documents per row, perhaps several with their shares, trained on in this order "
        f"(with --synthesize {DOCUMENTS}; in a folder the least of --lengths, or a row's own)")
    folder = parser.add_argument_group("with --output FOLDER").add_argument
    folder("--held-out", type=_held_out, metavar="N", help="number or share of the questions for evaluation "
           f"({HELD_OUT}, at most {MOST_HELD_OUT} questions)")
    folder("--lengths", default="", help="an evaluation file for each: numbers of documents, or `own` (own)")
    made = parser.add_argument_group("with --synthesize").add_argument
    add_options(made, required=False)
    made("--rows", dest="count", type=positive_number, default=ROWS, help=f"rows, of --babilong too ({ROWS})")
    babilong.add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
