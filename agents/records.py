"""The records that every part of the pack passes around: what was asked, what was sampled, how it ended.

Token in, token out: ``Turn.tokens`` is exactly the sequence the policy saw and sampled, so
the trainer never tokenises text again. A trajectory is a tuple of such turns, in order, the last one of kind FINAL
when the trajectory is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """Who says a message of a row's conversation."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    text: str


class TurnKind(StrEnum):
    MEMORY = "memory"
    """Reads a chunk, or merges what others read; its reply may become the memory, or a part of it."""
    FINAL = "final"
    """Answers from the memory alone."""


class StopReason(StrEnum):
    STOP = "stop"
    """An end-of-sequence or stop token was sampled."""
    LENGTH = "length"
    """The token budget ran out."""
    ABORT = "abort"
    """The host ended the request; the tokens are partial."""


class Outcome(StrEnum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    """The final answer hit its token budget."""
    ABORTED = "aborted"
    FAILED = "failed"
    """Bad input or a failed request: carries a TurnFailed, gets no gradient."""


class FailureKind(StrEnum):
    """Why a trajectory failed; each is a metric of its own."""

    NO_CONTEXT = "no_context"
    NO_QUESTION = "no_question"
    LONG_QUESTION = "long_question"
    BAD_MESSAGES = "bad_messages"
    """The row's messages are no conversation, or none that the model's chat template can show."""
    LONG_PROMPT = "long_prompt"
    NO_REPLY = "no_reply"
    """LOSS=sft: the row gives none, or not one for each turn."""
    LONG_REPLY = "long_reply"
    """LOSS=sft: a given reply is longer than its turn may be."""
    MISSING_DOCUMENT = "missing_document"
    UNKNOWN_TASK = "unknown_task"
    """The row names a task that is not there."""
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    """The server answered 4xx."""
    SERVER_ERROR = "server_error"
    """The server still answered 5xx, or 429 (too many requests), after all retries."""
    BAD_RESPONSE = "bad_response"
    """The answer's shape or length is wrong, or log-probs do not match the sampled ids one to one."""
    ANSWER_MODEL = "answer_model"
    """REWARD=answer_utility: the frozen chat model, or its judge, gave no answer after all retries or refused, or the
    judge's reply gives no score, so the reward is missing."""
    INTERNAL = "internal"

    @classmethod
    def of_status(cls, status: int) -> FailureKind:
        """The kind of an HTTP error."""
        return cls.SERVER_ERROR if status >= 500 or status == 429 else cls.REJECTED


class TurnFailed(Exception):
    """Ends one trajectory, never the run; the rollout boundary turns it into a FAILED outcome."""

    def __init__(self, kind: FailureKind, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.kind = kind
        self.wait = wait
        """Seconds to wait before the next attempt, as the server asked."""


@dataclass(frozen=True, slots=True)
class Section:
    """A chunk of the document in a prompt: its number, and where its ids lie."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One prompt to sample from."""

    kind: TurnKind
    prompt_ids: list[int]
    max_new_tokens: int
    shared: int = 0
    """Ids at the prompt's beginning that no trajectory has written itself, so siblings that read the same chunk begin
    with them as well; 0: unknown."""
    section: Section | None = None
    """The part of the document that the prompt shows."""
    recalled: tuple[int, ...] = ()
    """The earlier memory that the prompt shows beside the current one."""
    told: bool = False
    """Question, memory, ``section``, ``recalled`` and replies of the round before are all that the prompt shows beside
    wording."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What the engine sampled for one request. ``log_probs[i]`` belongs to ``token_ids[i]``, EOS included."""

    token_ids: list[int]
    log_probs: list[float]
    stop: StopReason
    weight_version: str = ""
    cached_tokens: int | None = None
    """Prompt tokens that were in the engine's prefix cache; None where it does not say."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request with its generation: a training row, of which every sampled token is trained."""

    kind: TurnKind
    tokens: list[int]
    """The prompt's, then the reply's."""
    prompt_tokens: int
    log_probs: list[float]
    """Of the reply, one for each of its tokens."""
    stop: StopReason
    weight_version: str = ""
    cached_tokens: int | None = None
    round: int = 0
    """Turns of one round were sampled side by side."""
    section: Section | None = None
    recalled: tuple[int, ...] = ()
    told: bool = False
    """These three as in its ``TurnRequest``."""
    state_rewards: Mapping[str, float] | None = None
    """What it earned by itself, by name; None where turns earn nothing (an agent's ``turn_rewards``)."""
    weight: float = 1.0
    """Factor of its advantage (an agent's ``turn_weights``)."""

    @property
    def prompt_ids(self) -> list[int]:
        return self.tokens[: self.prompt_tokens]

    @property
    def response_ids(self) -> list[int]:
        return self.tokens[self.prompt_tokens :]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One reading of one document by one agent."""

    turns: tuple[Turn, ...]
    outcome: Outcome
    answer: str = ""
    """The decoded final reply, thinking removed; empty unless the final turn was sampled."""
    failure: TurnFailed | None = None
    counts: dict[str, float] = field(default_factory=dict)
    """Metrics: those that ``rollout.run_trajectory`` gives for every agent, and the agent's own."""
    memories: tuple[tuple[int, ...], ...] = ()
    """The memory after each round of MEMORY turns, in token ids; the last one is what the FINAL turn was shown."""
    state: Any = field(default=None, compare=False, repr=False)
    """The agent's last state, for the agent itself (``MemoryAgent.turn_rewards``)."""
