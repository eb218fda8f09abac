"""A table of one's own questions as training rows and held-out evaluation files, in one folder.

    mem-agent prepare --input questions.csv --output data/mine --lengths "own 10 50"

writes ``data/mine/train.jsonl`` and, of the questions held out, ``eval_own.json`` (each with its own document),
``eval_10.json`` and ``eval_50.json`` (with 10 and 50 documents: its own hidden among those of other held-out
questions). TRAIN_DATA=data/mine then names them all.

Which questions are held out: questions that share a question's text or a document go together, so neither is on both
sides; such groups are drawn by the seed as long as they fit into ``--held-out``::

    row   question   document        --held-out 2: {c, d} is drawn first and fits; {a, b} no longer fits
    a     Who?       Ann is ...      train.jsonl    a, b
    b     When?      Ann is ...      eval_own.json  c, d
    c     Where?     Bob is ...
    d     Where?     Eve is ...

A context that is one text is one document; paragraphs are a document each, and those that the data marks as no
evidence are a question's own distractors. How documents are hidden is said in ``synthesize``; with lengths, training
rows have the least of them, or ``--documents``.

Invariants: the result is a function of the rows, the options and the seed; a file that is there is never overwritten:
it stays if it came from the same rows and options, and is refused otherwise (``eval_files.Manifest``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from .document_store import DocumentStore, store_folder
from .eval_files import eval_name, locked_manifest, parse_lengths
from .questions import Paragraph, PoolQuestion, Question, assemble, pool_question, row_of, spaced_documents
from .rows import BadRow, DataError, as_json_list
from .synthesize import haystack, lengths_of, parse_curriculum

TRAIN, OWN = "train.jsonl", "own"


def split_questions(
    questions: Sequence[Question], held_out: float, seed: int
) -> tuple[list[Question], list[Question]]:
    """Those to train on and those held out, each in their order.

    Args:
        held_out: a number of questions, or below 1 their share.

    Raises:
        DataError: none can be held out, or none would be left.
    """
    most = round(held_out * len(questions)) if held_out < 1 else int(held_out)
    groups = _sharing_groups(questions)
    random.Random(f"{seed}/held out").shuffle(groups)
    drawn: set[int] = set()
    for group in groups:
        if len(drawn) + len(group) <= most:
            drawn.update(group)
    if most and not 0 < len(drawn) < len(questions):
        raise DataError(f"{len(questions)} questions in {len(groups)} groups that share no document: {most} cannot be "
                        "held out; choose another --held-out, or 0 and evaluate on a file of its own")
    sides: tuple[list[Question], list[Question]] = ([], [])
    for number, question in enumerate(questions):
        sides[number in drawn].append(question)
    return sides


def _sharing_groups(questions: Sequence[Question]) -> list[list[int]]:
    """Numbers of questions by group: two are in one if they share a question's text or a document."""
    group_of: dict[int, list[int]] = {}
    first: dict[str, int] = {}
    for number, question in enumerate(questions):
        group_of[number] = [number]
        for key in [question.question.strip().casefold(), *_documents(question)]:
            one, other = group_of[first.setdefault(key, number)], group_of[number]
            if one is not other:
                one += other
                group_of.update(dict.fromkeys(other, one))
    return list({id(group): sorted(group) for group in group_of.values()}.values())


def _documents(question: Question) -> list[str]:
    return [question.context] if question.context else [each.document for each in question.paragraphs]


def write_folder(
    folder: Path, questions: Sequence[Question], source: Mapping[str, Any], *,
    held_out: float, lengths: str = "", documents: str = "", seed: int = 42,
) -> None:
    """Write what is missing in ``folder``, and say what is there.

    Args:
        source: where the questions come from, for the manifest.
        lengths: of the evaluation files: numbers of documents, or ``own``; empty: ``own``.
        documents: of a training row: a curriculum (``synthesize``); empty: the least of ``lengths``, or its own.
    """
    names = dict.fromkeys(lengths.split() or [OWN])
    numbers = parse_lengths(" ".join(name for name in names if name != OWN)) if set(names) - {OWN} else ()
    documents = documents or (str(min(numbers)) if numbers else "")
    train, held = split_questions(questions, held_out, seed)
    rows = lengthened(train, documents, seed)  # what cannot be made is said before anything is written
    asked = {name: lengthened(held, "" if name == OWN else name, seed) for name in names if held}
    source = {**source, "held_out": held_out, "seed": seed}
    with locked_manifest(folder) as manifest:
        made = source | {"documents": documents}
        if not manifest.has(TRAIN, made):
            store = DocumentStore(store_folder(folder / TRAIN))
            with manifest.draft(TRAIN, made) as file:
                for row, document in map(row_of, rows):
                    file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                    if document is not None:
                        store.add(document)
        print(f"{folder / TRAIN}: {len(train)} rows{f' of {documents} documents' if documents else ''}")
        for name, entries in asked.items():
            made = source | {"length": name}
            if not manifest.has(eval_name(name), made):
                with manifest.draft(eval_name(name), made) as file:
                    file.writelines(as_json_list(map(_entry, range(len(held)), entries)))
            print(f"{folder / eval_name(name)}: {len(held)} questions")


def lengthened(questions: Sequence[Question], documents: str, seed: int) -> Iterator[Question]:
    """The questions, each with its own document, or with as many documents as the curriculum says.

    Raises DataError: so many documents cannot be found.
    """
    if not documents:
        return iter(questions)
    curriculum, pool = parse_curriculum(documents), dict[str, int]()
    numbered = [numbered_documents(question, pool) for question in questions]
    texts, lengths = tuple(pool), list(lengths_of(curriculum, len(questions)))
    drawn = [haystack(texts, one, length, seed) for one, length in zip(numbered, lengths, strict=True)]
    own = {"curriculum": True} if len(curriculum) > 1 else {}
    return (question._replace(context=assemble(texts[number] for number in found),
                              extras={**question.extras, "num_docs": len(found), **own})
            for question, found in zip(questions, drawn, strict=True))


def numbered_documents(question: Question, pool: dict[str, int]) -> PoolQuestion:
    """The question with its documents in the ``pool``. Raises BadRow: none of its own can be hidden among others."""
    if not (question.paragraphs or question.context):
        raise BadRow("context is missing, and longer documents are made of them")
    paragraphs = question.paragraphs or (Paragraph(None, (question.context,)),)
    return pool_question(question._replace(paragraphs=paragraphs), pool, as_published=False)


def _entry(index: int, question: Question) -> dict[str, Any]:
    """Of an evaluation file."""
    entry: dict[str, Any] = {
        "index": index, "id": question.id, "input": question.question, "answers": question.answers}
    entry |= {name: question.extras[name] for name in ("num_docs", "task") if name in question.extras}
    text = question.context or assemble(spaced_documents(question.paragraphs))
    more = {"supporting": question.supporting, "context": text}
    return entry | {name: value for name, value in more.items() if value}
