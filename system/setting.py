"""What a setting is: a field of a frozen dataclass that says what it means, what it may be and what it shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
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


def check_setting(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: Sequence[Any] | None = None,
) -> None:
    """Raises ConfigError, which calls it ``name``, where a value is none of the choices, out of bounds or endless."""
    bad = (
        (isinstance(value, float) and not math.isfinite(value))
        or (choices is not None and value not in choices)
        or (at_least is not None and not value >= at_least)
        or (at_most is not None and not value <= at_most)
    )
    if bad:
        if choices is not None:
            allowed = ", ".join(map(str, choices))
        else:
            bounds = {"at least": at_least, "at most": at_most}
            told = " and ".join(f"{word} {bound}" for word, bound in bounds.items() if bound is not None)
            allowed = f"{kind_of_number(type(value))} {told}" if told else "a number that is finite"
        raise ConfigError(f"{name}={value!r}: allowed: {allowed}")


def refuse_unread(
    settings: Any, name: str, chooser: str, readers: Sequence[str], *, read: bool, origin: str = ""
) -> None:
    """Raises ConfigError where the setting ``name`` is not at its default and nobody reads it.

    A setting that names a behaviour must have it: otherwise a run would not be what it says.

    Args:
        settings: a dataclass.
        chooser: the setting whose values differ in what they read.
        readers: its values that read ``name``.
        read: whether the one that is set does.
        origin: where the value comes from, if not from its own variable.
    """
    (default,) = (f.default for f in fields(settings) if f.name == name)
    value = getattr(settings, name)
    if value != default and not read:
        variable, chosen = chooser.upper(), getattr(settings, chooser)
        raise ConfigError(
            f"{name.upper()}={value!r}{origin}: {variable}={chosen!r} has nothing that it changes; leave it out, or "
            f"take {variable}={' or '.join(readers)}"
        )
