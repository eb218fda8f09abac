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
from ..data.training_file import DataSource
from ..tasks.qa import QuestionAnswering
from .reader import question_of, task_of
from .sample import Sample, gold_answers

MOST_ROWS = 1000


def row_problems(config: Config, source: DataSource, vocabulary: Vocabulary | None = None) -> list[str]:
    """One line for each kind of fault among the first MOST_ROWS rows; lengths are seen with a ``vocabulary``."""
    faults: dict[str, list[int]] = {}
    rows = range(min(len(source), MOST_ROWS))
    for number in rows:
        row = source.raw(number)
        sample = Sample(row["prompt"], row.get("label"), row["metadata"])
        for fault in _faults(config, sample, vocabulary):
            faults.setdefault(fault, []).append(number + 1)
    first = "the first " if len(rows) < len(source) else ""
    return [f"{source.path}: {len(found)} of {first}{len(rows)} rows have {fault}; the first is row {found[0]}"
            for fault, found in faults.items()]


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
    if isinstance(task, QuestionAnswering) and not any(map(str.strip, gold_answers(sample))):
        yield "no answer (label, or metadata.ground_truth)"
    reads = task.needs_document and agent_class(config).needs_document
    if reads and sample.metadata.keys().isdisjoint(("context", "context_id")):
        yield "no document (metadata.context)"
