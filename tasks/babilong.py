"""``TASK=babilong``: facts of bAbI hidden in books, scored as the published benchmark does.

    question "Where is Mary?", gold office    reply "office"                       right
                                              reply "Mary is in the office. ..."   right: up to the first period
                                              reply "The office or the kitchen"    wrong: two places

Source: BABILong (Kuratov et al. 2024, arXiv 2406.10149); the rule is that of its code (booydar/babilong 7a6efee,
``metrics.py``): of the task's labels that stand in the reply, those in the question do not count, and the target has
to be the only one left. Labels are found as they are spelled, inside other words too.

A row names its bAbI task (``metadata.babi``, qa1 to qa5), and for LOSS=sft its facts (``metadata.facts``), from which
a rule makes what the memory should say after each section (``rewards.babi.Notes``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..rewards.babi import GIVERS, PLACES, THINGS, Notes, read_fact
from .interface import Task, TaskRow

LABELS: dict[str, tuple[str, ...]] = {**dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), PLACES), "qa5": GIVERS + THINGS}
"""What a task's answers may be."""


def is_right(target: str, output: str, question: str, task: str) -> bool:
    """Whether the published scoring takes ``output`` for ``target``; ``task`` is one of ``LABELS``."""
    said = output.lower().split(".")[0].split("<context>")[0].split("<example>")[0]
    labels = {label.lower() for label in LABELS[task]}
    return {label for label in labels if label in said and label not in question.lower()} == {target.lower()}


class Babilong(Task):
    headline = "babilong"

    def read_answer(self, reply: str) -> str:
        return reply.partition(".")[0].strip()

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"answer": float(any(is_right(gold, reply, row.question, _babi_task(row)) for gold in row.golds))}

    def metrics(self, answer: str, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"babilong": self.reward(reply, row)["answer"]}

    def solution(self, row: TaskRow) -> str:
        return row.golds[0] if row.golds else ""

    def keeper(self, row: TaskRow) -> Callable[[str], str] | None:
        facts = row.metadata.get("facts")
        return _Keeper(row.question, facts) if facts else None


def _babi_task(row: TaskRow) -> str:
    """Raises ValueError: the row names no task whose labels are known."""
    task: Any = row.metadata.get("babi")
    if task not in LABELS:
        raise ValueError(f"a row of TASK=babilong needs metadata.babi, one of {', '.join(LABELS)}; it has {task!r}")
    return str(task)


class _Keeper:
    """Called with section after section, it gives the memory behind each. A fact that two sections share is taken
    with the second."""

    def __init__(self, question: str, facts: list[str]) -> None:
        self._notes, self._coming, self._rest = Notes(question), list(facts), ""

    def __call__(self, section: str) -> str:
        text = self._rest + section
        while self._coming and (at := text.find(self._coming[0])) >= 0:
            text = text[at + len(self._coming[0]) :]
            if fact := read_fact(self._coming.pop(0)):
                self._notes.add(fact)
        self._rest = text[-80:]
        return self._notes.text
