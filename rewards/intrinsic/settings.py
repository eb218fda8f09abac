"""What MEM_IR_ARGS may set, by mode. Whatever is wrong is a ConfigError of one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...system.errors import ConfigError
from ...system.setting import check_setting

_MOST_VALUES = 10**8
_MOST = 10**9


@dataclass(frozen=True)
class TextChoice:
    """Which text of an answer counts; shared by all modes."""

    text: str = "reasoning"
    """``reasoning``: what led to the answer; ``reply``: all of it."""

    def __post_init__(self) -> None:
        one_of(self, "text", "reasoning", "reply")


@dataclass(frozen=True)
class KnnSettings(TextChoice):
    """MEM_IR=knn: successes only."""

    exploit: float = 1.0
    """Weight of being like earlier successes."""
    window: int = 100
    """Raw values of earlier batches that the next ones are normalised with."""
    keys: int = 10_000
    """Questions of a store; the oldest one goes first."""
    values: int = 100
    """Vectors of a question; the oldest one goes first."""
    level: str = "response"
    """What is compared: whole responses, or each sentence."""
    success: float = 0.5
    """An answer worth at least this is a success."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "exploit")
        at_least(self, -_MOST, "success")
        at_least(self, 1, "window", "keys", "values")
        if self.keys * self.values > _MOST_VALUES:
            raise ConfigError(f"MEM_IR_ARGS: keys={self.keys} x values={self.values}: at most {_MOST_VALUES:,} in all")
        one_of(self, "level", "response", "sentence")


@dataclass(frozen=True)
class KnnPlusSettings(KnnSettings):
    """MEM_IR=knn+: successes and failures."""

    explore: float = 1.0
    """Weight of being unlike earlier failures."""
    failure: float = 0.5
    """An answer worth less than this is a failure."""
    warmup: int = 500
    """Failed questions stored before exploration earns anything."""
    warmup_rollouts: int = 0
    """Rollouts before exploration earns anything."""
    anneal: float = 1.0
    """Factor of ``explore`` for each rollout that was scored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "explore", "warmup", "warmup_rollouts")
        at_least(self, -_MOST, "failure")
        check_setting("MEM_IR_ARGS: anneal", self.anneal, at_least=0, at_most=1)
        if self.warmup > self.keys:
            raise ConfigError(f"MEM_IR_ARGS: warmup={self.warmup} questions are never stored with keys={self.keys}")
        if self.failure > self.success:
            raise ConfigError(f"MEM_IR_ARGS: failure={self.failure:g} is above success={self.success:g}: an answer "
                              "between them would be both")


@dataclass(frozen=True)
class EntropySettings(TextChoice):
    """MEM_IR=entropy."""

    weight: float = 1.0
    window: int = 1_000
    texts: int = 1_000
    """Earlier texts that count; the oldest one goes first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "weight")
        at_least(self, 1, "window", "texts")


@dataclass(frozen=True)
class LexicalSettings(EntropySettings):
    """MEM_IR=lexical."""

    weight: float = 0.1
    window: int = 100
    texts: int = 50
    measure: str = "lines"
    """``lines``: edits from one text's lines to another's; ``words``: Jaccard distance of their words."""
    lines: int = 8
    """``measure=lines``: lines of a text that count, evenly spread over it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "lines")
        one_of(self, "measure", "lines", "words")


def one_of(settings: Any, name: str, *allowed: object) -> None:
    check_setting(f"MEM_IR_ARGS: {name}", getattr(settings, name), choices=allowed)


def at_least(settings: Any, least: float, *names: str) -> None:
    for name in names:
        check_setting(f"MEM_IR_ARGS: {name}", getattr(settings, name), at_least=least, at_most=_MOST)
