"""What a row asks, and what an answer to it is worth, as one idea.

A task says how the answer is read from a reply, what a training reward is made of, what evaluation measures, and
whether there is a document to read. ``TASK`` names the task of a run, and more after commas; a row's
``metadata["task"]`` names its own among those and the pack's, so data sets can be mixed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from ..system.plugins import NoSettings


class TaskRow(NamedTuple):
    """A row of a data set without its document."""

    question: str
    golds: tuple[str, ...]
    """The accepted answers, first one first; empty where the data has none."""
    metadata: Mapping[str, Any] = {}


class Task(ABC):
    """Derive from this for a task of your own; made once per process and shared, so it keeps no state."""

    Settings: ClassVar[type] = NoSettings
    """A frozen dataclass with defaults, read from TASK_ARGS."""
    needs_document: ClassVar[bool] = True
    """A row without a document then fails, counted; otherwise the agent answers from the question alone."""
    headline: ClassVar[str]
    """The metric that decides right and wrong, and that tables call accuracy."""
    outcome: ClassVar[str] = ""
    """The part of ``reward`` that says what the answer was worth, beside those for its form; empty: all of them."""
    slow: ClassVar[bool] = False
    """Whether an answer may take so long to score that others must not wait for it; it is then scored in a thread."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @property
    def reads_whole(self) -> bool:
        """Whether the whole reply is the answer. Evaluation then has the model go on from a row's ``answer_prefix``,
        shows it the row's ``example`` and ends its reply after the row's ``tokens_to_generate``."""
        return False

    @abstractmethod
    def read_answer(self, reply: str) -> str:
        """The answer in a final reply (thinking removed); empty where there is none."""

    @abstractmethod
    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        """Named parts of the training reward of a final reply; their sum is what it is worth."""

    @abstractmethod
    def metrics(self, answer: str, reply: str, row: TaskRow) -> Mapping[str, float]:
        """What evaluation measures of ``answer``, read from the final ``reply``, ``headline`` among it; an empty reply
        is a wrong one."""

    def malformed(self, reply: str, row: TaskRow) -> bool:
        """Whether the reply is in no form that the task can read; it is then charged for length as the longest one
        (``overlong_buffer``), so that no well-formed reply is worth less for its length alone."""
        return False

    def reasoning(self, reply: str) -> str:
        """The part of a reply that led to its answer; all of it where a task asks for no such part."""
        return reply

    def solution(self, row: TaskRow) -> str:
        """A whole reply that is right and in the form that is asked for, from the row's data; empty where the data
        has none."""
        return str(row.metadata.get("solution") or "")

    def keeper(self, row: TaskRow) -> Callable[[str], str] | None:
        """For LOSS=sft: a function that is called with the text of section after section and gives what the memory
        should be behind each; None where the task has no such rule (``hooks/kept_sentences.py`` has one for all)."""
        return None

    def accuracy(self, parts: Mapping[str, float]) -> float:
        """What the answer was worth, from the parts of ``reward``."""
        return parts.get(self.outcome, 0.0) if self.outcome else sum(parts.values())
