"""What training rows lack, seen before anything starts: one line for each kind of fault, by the first row of it.

::

    data/train.jsonl: 3 of the first 1000 rows have no answer (label, or metadata.ground_truth); the first is row 17
"""

from __future__ import annotations

from collections.abc import Iterator

from ..agents import agent_class
from ..agents.records import TurnFailed
from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..data.training_file import DataSource, row_slice
from ..tasks.qa import QuestionAnswering
from .reader import question_of, task_of
from .sample import Sample, gold_answers

MOST_ROWS = 1000


def row_problems(
    config: Config, source: DataSource, vocabulary: Vocabulary | None = None
) -> tuple[list[str], list[str]]:
    """One line for each kind of fault among the first MOST_ROWS rows that TRAIN_DATA means: those that every row has,
    so that nothing can be trained, and those of some rows, which fail alone.

    Args:
        vocabulary: with which the questions' lengths are seen.
    """
    faults: dict[str, list[int]] = {}
    meant = range(len(source))[row_slice(config.train_data)]
    rows = meant[:MOST_ROWS]
    for number in rows:
        row = source.raw(number)
        sample = Sample(row["prompt"], row.get("label"), row["metadata"])
        for fault in _faults(config, sample, vocabulary):
            faults.setdefault(fault, []).append(number + 1)
    first, told = "the first " if len(rows) < len(meant) else "", dict[bool, list[str]]({True: [], False: []})
    for fault, found in faults.items():
        told[len(found) == len(rows)].append(
            f"{source.path}: {len(found)} of {first}{len(rows)} rows have {fault}; the first is row {found[0]}")
    return told[True], told[False]


def _faults(config: Config, sample: Sample, vocabulary: Vocabulary | None) -> Iterator[str]:
    try:
        task, question = task_of(config, sample), question_of(sample)
    except TurnFailed as error:
        yield f"a fault ({error})"
        return
    if not question:
        yield "no question"
    elif vocabulary and len(vocabulary.encode_text(question)) > config.mem_max_question:
        yield f"a question of more than MEM_MAX_QUESTION={config.mem_max_question} tokens"
    says = config.supervised and "replies" in sample.metadata
    if isinstance(task, QuestionAnswering) and not says and not any(map(str.strip, gold_answers(sample))):
        yield "no answer (label, or metadata.ground_truth)"
    reads = task.needs_document and agent_class(config).needs_document
    if reads and sample.metadata.keys().isdisjoint(("context", "context_id")):
        yield "no document (metadata.context)"
