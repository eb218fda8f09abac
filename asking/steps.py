"""What happens while a document is read, step by step, in this order:

    Started, TurnDone of each memory turn, Delta ..., TurnDone of the final turn

``Answered`` is what becomes of them. The deltas joined are its text, except where a ``</think>`` that nothing had
opened shows late that the deltas so far were thinking: then one delta is ``</think>``, and the text is what follows
the last of these.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """What one memory turn is shown of the document: its characters ``start`` to ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Started:
    """The document is tokenised and cut; nothing was asked of the engine yet."""

    sections: tuple[Section, ...]
    """In the order of the text, without gaps; none where there is no document."""
    document_tokens: int


@dataclass(frozen=True, slots=True)
class TurnDone:
    """One turn was sampled. Of turns that were sampled side by side there is one for each."""

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
    finish_reason: str
    """``stop``, or ``length`` where the reply ran into its limit."""


Step = Started | TurnDone | Delta
