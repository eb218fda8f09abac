"""What happens while a document is read, step by step, in this order:

    Started, TurnDone of each memory turn, Delta ..., TurnDone of the final turn, Answered
    ... and at any point Failed, which ends it

The deltas joined are the text of ``Answered``, except where a ``</think>`` that nothing had opened shows late that the
deltas so far were thinking: then one delta is ``</think>``, and the text is what follows the last of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Section:
    """What one memory turn is shown of the document: its characters ``start`` to ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Options:
    """Of one request; 0 is no limit."""

    seed: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """``temperature`` and the like, in place of evaluation's."""
    stop: tuple[str, ...] = ()
    """The final reply ends before the first of them."""
    answer_tokens: int = 0
    """Of the final reply, at most MEM_MAX_FINAL: the engine's context was made for that."""
    document_tokens: int = 0
    """A longer document is refused, never cut."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Started:
    """The document is tokenised and cut; nothing was asked of the engine yet."""

    sections: tuple[Section, ...]
    """In the order of the text, without gaps; none where there is no document."""
    document_tokens: int


@dataclass(frozen=True, slots=True)
class TurnDone:
    """One turn was sampled. Of turns that were sampled side by side there is one for each."""

    number: int
    round: int
    """Turns of one round were sampled side by side."""
    kind: str
    """``memory`` or ``final``."""
    sections: tuple[int, ...]
    """Numbers of the sections that it showed; none in a turn that answers or merges."""
    memory: str
    """The memory after its round; of the final turn the one it was shown."""
    reply: str
    recalled: str
    """The earlier memory that it was shown besides, where the agent recalls."""
    prompt_tokens: int
    reply_tokens: int
    cached_tokens: int | None


@dataclass(frozen=True, slots=True)
class Delta:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    text: str
    """The final reply, thinking removed, up to its stop."""
    answer: str
    """What the model's task reads from it, e.g. the content of the last box; empty where it finds none."""
    sources: tuple[int, ...]
    """Numbers of the sections that the answer came from (``sources``)."""
    cut: bool
    """The reply ran into its limit, and not into a stop."""
    prompt_tokens: int
    reply_tokens: int
    """Of all turns."""
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing more comes; ``kind`` is an ``agents.records.FailureKind``, or of ``TOO_LONG`` and ``ABORTED``."""

    kind: str
    message: str


TOO_LONG = "document_too_long"
ABORTED = "aborted"
"""The server ended the request."""

Step = Started | TurnDone | Delta | Answered | Failed
