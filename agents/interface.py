"""What a memory workflow is: a pure state machine over turns.

The one loop (``loop.py``) asks ``requests`` for the next prompts, samples them side by side, and hands the
generations to ``advance``; an empty tuple of requests ends the trajectory. Agents never see a server, a host or an
event loop, so training, evaluation and serving run the very same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..config import Config
from ..rewards.memory_state import Step
from ..system.plugins import NoSettings, parse_settings
from .chunking import Chunks
from .prompts import Frame, Prompts, Wording
from .records import Generation, Message, Trajectory, TurnRequest
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Reading:
    """One question about one document, in token ids; no chunks where there is no document."""

    question_ids: Sequence[int]
    document: Chunks
    prefix_ids: Sequence[int] = ()
    """What the final reply goes on from: the last ids of the FINAL turn's prompt, whatever the agent (``loop``)."""
    reply_tokens: int = 0
    """Of the final reply; 0: as the agent asks."""
    before: tuple[Message, ...] = ()
    """The row's messages before the question, system message first; for agents of ``shows_messages``."""


class MemoryAgent(ABC):
    """Derive from this, or from ``memagent.MemAgent``; ``State`` is the agent's own frozen record.

    Made once per process and shared by all trajectories, so it keeps nothing of any of them.
    """

    needs_document: ClassVar[bool] = True
    """Whether it reads a document; one that does not is asked the question alone."""
    shows_messages: ClassVar[bool] = False
    """Whether it shows the messages that a row has before its question; others show the question in words of their
    own."""
    own_wording: ClassVar[Mapping[str, Wording]] = {}
    """Turns that only this agent has: the name in ``MEM_PROMPTS``, and the wording."""
    settings: ClassVar[frozenset[str]] = frozenset()
    """Fields of ``Config`` that only agents which name them here read; for all others they change nothing."""
    Settings: ClassVar[type] = NoSettings
    """Settings of an agent outside the pack: a frozen dataclass with defaults, read from AGENT_ARGS."""
    turn_cost: ClassVar[float] = 0.0
    """MEM_TURN_COST unless the user sets it."""
    slow: bool = False
    """Whether ``advance`` computes so long (a model of its own) that other trajectories must not wait for it."""

    @classmethod
    def check(cls, config: Config) -> None:
        """Raise ConfigError where the agent cannot work under ``config``; nothing is loaded."""
        cls.settings_of(config)

    @classmethod
    def settings_of(cls, config: Config) -> Any:
        """AGENT_ARGS as ``Settings``. Raises ConfigError."""
        return parse_settings(cls.Settings, config.agent_args, "AGENT_ARGS")

    @classmethod
    def model_settings(cls, config: Config) -> tuple[str, ...]:
        """The fields of ``config`` that name models which the agent itself needs; they come to it as folders."""
        return ()

    @classmethod
    def without_models(cls, config: Config) -> Config:
        """Settings under which the agent shows the same prompts and loads no model of its own."""
        return config

    @classmethod
    @abstractmethod
    def from_config(cls, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> Self:
        """The agent for one tokenizer. Raises ConfigError where it cannot work."""

    @abstractmethod
    def start(self, reading: Reading) -> Any:
        """The state before the first turn."""

    @abstractmethod
    def requests(self, state: Any) -> tuple[TurnRequest, ...]:
        """Prompts of the next turn: several are sampled side by side, none ends the trajectory."""

    @abstractmethod
    def advance(self, state: Any, generations: Sequence[Generation]) -> Any:
        """The state after the generations of ``requests(state)``, in the same order."""

    @abstractmethod
    def memory(self, state: Any) -> Sequence[int]:
        """The memory that the next turn will be shown, in token ids; empty where that turn will be told of none."""

    def recalled(self, state: Any) -> Sequence[int]:
        """The earlier memory that the next turn will be shown beside the current one; empty where there is none."""
        return ()

    def filled(self, state: Any, ids: Sequence[int]) -> Any:
        """``state`` with ``ids`` for every memory that the next turn is shown, or with what stands for none of them
        where that is longer: the turn's prompts at their longest."""
        return state

    @abstractmethod
    def answer(self, state: Any) -> str:
        """The decoded final reply, thinking removed."""

    @abstractmethod
    def counts(self, state: Any) -> dict[str, float]:
        """Metrics of this trajectory (see ``Trajectory.counts``)."""

    def state_steps(self, trajectory: Trajectory) -> Sequence[Step]:
        """The memory turns of a finished trajectory as their own rewards see them; none where they earn none."""
        return ()
