"""One trajectory as people read it, and its lines on disk.

A file of traces is JSON lines of two kinds. A document comes before the first trajectory that read it, once for all
siblings; a trajectory names it and, turn by turn, the sections that it read of it, by number::

    {"kind": "document", "id": "9f2c01d4", "sections": ["Ann lives in ...", "... metal silver ..."]}
    {"kind": "trajectory", "id": "12-3-0", "rollout": 12, "length": null, "question_id": "41", "group": "3",
     "sample": 0, "question": "Which metal ...?", "golds": ["silver"], "document": "9f2c01d4",
     "response": "\\boxed{silver}", "prediction": "silver", "outcome": "completed",
     "reward": 1.0, "reward_parts": {"answer": 1.0}, "advantage": 0.5, ..., "turns": [
        {"kind": "memory", "sections": [0], "shown_memory": "", "recalled": "", "reply": "metal", "memory": "metal",
         "stop": "stop", "prompt_tokens": 93, "cached_tokens": 80, "rewards": {}, "advantage": 0.5,
         "pieces": ["met", "al", ""], "log_probs": [-0.21, -0.03, -0.001]}, ...]}

Invariants:
- ``"".join(pieces) == reply``; ``pieces`` and ``log_probs`` have one entry for each sampled token, or are both empty
  where tokens are not kept;
- a line is read whole or not at all; what a killed run left of its last line is not read;
- whoever reads a line gets values of the types below: any other is no trace. As JSON has no word for what is no
  number, null stands for it in lists and mappings of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from statistics import fmean
from typing import Any, Self

import orjson

from ..system.bounded_json import loads
from ..system.errors import MemAgentError


class TraceError(MemAgentError):
    """What is given holds no readable traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDocument:
    """A document's sections, in the order of the text; an agent's chunks as text."""

    id: str
    sections: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTurn:
    """One turn. What a kind of agent has no such thing of is empty."""

    kind: str
    """``memory`` or ``final``."""
    sections: tuple[int, ...] = ()
    """Numbers of the sections that its prompt showed; none in a turn that answers or merges."""
    shown_memory: str = ""
    """The memory that its prompt showed."""
    recalled: str = ""
    """The earlier memory that was found and shown, where the agent recalls."""
    prompt: str = ""
    """The whole prompt, where it is kept: of turns whose parts are not known."""
    reply: str = ""
    memory: str = ""
    """The memory after its round; of a final turn the one it was shown."""
    gold: bool | None = None
    """Whether an accepted answer stands in ``memory``; None where that tells nothing."""
    stop: str = "stop"
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    """What the turn earned by itself, by name."""
    advantage: float | None = None
    """As it was trained; None in evaluation, and of what was not trained."""
    pieces: tuple[str, ...] = ()
    """The reply, token by token."""
    log_probs: tuple[float, ...] = ()
    """Natural logarithms, as the engine sampled them, with four decimals."""

    @property
    def mean_log_prob(self) -> float | None:
        return fmean(self.log_probs) if self.log_probs else None

    @property
    def lowest_log_prob(self) -> float | None:
        return min(self.log_probs, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trajectory: of a rollout (``rollout``) or of an evaluation (``length``)."""

    id: str
    """Unique within a run or a result folder: ``12-3-0`` (rollout, group, sample), ``50-7-0`` (length, question,
    sample)."""
    rollout: int | None = None
    """The training rollout, from 0."""
    length: str | None = None
    """The evaluation's file of questions."""
    question_id: str = ""
    group: str = ""
    """Siblings, the samples of one question in one rollout or evaluation, have the same."""
    sample: int = 0
    question: str = ""
    golds: tuple[str, ...] = ()
    document: str | None = None
    """``TraceDocument.id``."""
    task: str = ""
    agent: str = ""
    weight_version: str = ""
    response: str = ""
    """The final reply, thinking removed."""
    prediction: str = ""
    outcome: str = "completed"
    failure: str | None = None
    failure_message: str | None = None
    reward: float | None = None
    """As it was trained, all parts added; None where nothing was trained."""
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    accuracy: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    """Evaluation: by metric, as result rows have them."""
    advantage: float | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    turns: tuple[TraceTurn, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Fields that this version does not know are left out, absent ones have their default."""
        length, turns = values.get("length"), values.get("turns", [])
        if type(length) is str and len(length) > _LONGEST_NAME:
            raise ValueError(f"length is no file's name, which has at most {_LONGEST_NAME} characters")
        if type(turns) is not list or not all(type(turn) is dict for turn in turns):
            raise ValueError("turns is no list of turns")
        return cls(**_known(cls, values) | {"turns": tuple(TraceTurn(**_known(TraceTurn, turn)) for turn in turns)})


def line_of(record: TraceDocument | Trace) -> bytes:
    kind = "document" if isinstance(record, TraceDocument) else "trajectory"
    values = {f.name: getattr(record, f.name) for f in fields(record)}  # asdict would copy every token's numbers
    # NumPy: scores of tasks and rewards of a user's own.
    return orjson.dumps({"kind": kind} | values, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


def record_of(line: bytes) -> TraceDocument | Trace:
    """Raises ValueError where the line is neither."""
    values = loads(line)
    if type(values) is not dict or values.get("kind") not in ("document", "trajectory"):
        raise ValueError("neither a document nor a trajectory")
    try:
        return TraceDocument(**_known(TraceDocument, values)) if values["kind"] == "document" else Trace.of(values)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are fields of ``kind``, lists as tuples. Raises ValueError where one is of another type."""
    known = {}
    for one in fields(kind):
        if one.name in values:
            value = values[one.name]
            fits, said = _FITS.get(str(one.type), (_anything, ""))
            if not fits(value):
                raise ValueError(f"{one.name} is no {said}")
            known[one.name] = tuple(value) if isinstance(value, list) else value
    return known


_NUMBERS = {int, float, bool, type(None)}
_LONGEST_NAME = 255
_LARGEST = 1e100
"""Of a number in a list: the sum of as many as fit on a disk is a number still."""


def _anything(value: Any) -> bool:
    return True


def _list_of(*types: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and set(map(type, value)) <= set(types)


def _are_log_probs(value: Any) -> bool:
    return _list_of(*_NUMBERS)(value) and all(one is None or abs(one) <= _LARGEST for one in value)


def _one_of(*types: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in types


_FITS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "str": (_one_of(str), "text"),
    "str | None": (_one_of(str, type(None)), "text"),
    "int": (_one_of(int), "whole number"),
    "int | None": (_one_of(int, type(None)), "whole number"),
    "float | None": (_one_of(*_NUMBERS), "number"),
    "bool | None": (_one_of(bool, type(None)), "yes or no"),
    "tuple[str, ...]": (_list_of(str), "list of texts"),
    "tuple[int, ...]": (_list_of(int), "list of whole numbers"),
    "tuple[float, ...]": (_are_log_probs, f"list of numbers up to {_LARGEST:g}"),
    "Mapping[str, float]": (lambda v: type(v) is dict and set(map(type, v.values())) <= _NUMBERS, "numbers by name"),
}
"""By a field's type as it is written above: what fits it in JSON, and what that is called."""
