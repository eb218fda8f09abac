"""What a setting is: a field of a frozen dataclass that says what it means, what it may be and what it shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from .errors import ConfigError
from .plugins import kind_of_number


class Shapes(Enum):
    """What changes when a setting does."""

    EVERYTHING = "training and answers"
    TRAINING = "training"
    """Rollouts or updates, but no answer in evaluation."""
    ANSWERS = "answers in evaluation"
    NOTHING = "nothing that is learned or measured"
    """Places, patience, speed."""

    @property
    def training(self) -> bool:
        return self in (Shapes.EVERYTHING, Shapes.TRAINING)

    @property
    def answers(self) -> bool:
        return self in (Shapes.EVERYTHING, Shapes.ANSWERS)


_section = ""


def in_section(section: str) -> None:
    """The fields that follow belong to ``section``."""
    global _section
    _section = section


def knob(
    default: Any,
    doc: str,
    shapes: Shapes = Shapes.EVERYTHING,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] | None = None,
    modes: tuple[str, ...] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Any:
    """A setting; ``modes`` are the EVAL_MODEs in which it shapes answers, all unless given; ``aliases`` are other
    names of choices."""
    about = {"doc": doc, "shapes": shapes, "at_least": at_least, "at_most": at_most, "choices": choices}
    about |= {"aliases": aliases or {}}
    return field(default=default, metadata=about | {"modes": modes, "section": _section})


def check_setting(field_name: str, value: Any, meta: Mapping[str, Any]) -> None:
    """Raises ConfigError where a value is not one of the choices, or out of bounds."""
    low, high, choices = meta["at_least"], meta["at_most"], meta["choices"]
    bad = (
        (choices is not None and value not in choices)
        or (low is not None and not value >= low)
        or (high is not None and not value <= high)
    )
    if bad:
        if choices is not None:
            allowed = ", ".join(choices)
        else:
            bounds = [f"at least {low}" * (low is not None), f"at most {high}" * (high is not None)]
            allowed = kind_of_number(type(value)) + " " + " and ".join(b for b in bounds if b)
        raise ConfigError(f"{field_name.upper()}={value!r}: allowed: {allowed}")
