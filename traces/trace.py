"""One trajectory as people read it, its lines on disk, and where they lie.

::

    RUN/trajectories/rollout_000012.jsonl
    RESULTS/trajectories/50.jsonl

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
- values are of the types below. JSON has no word for NaN and infinity: null stands for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Discriminator, TypeAdapter, ValidationError
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from ..system.errors import MemAgentError

FOLDER = "trajectories"


class TraceError(MemAgentError):
    """What is given holds no readable traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDocument:
    """A document's sections, in the order of the text; an agent's chunks as text."""

    kind: Literal["document"] = "document"
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
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    """What the turn earned by itself, by name."""
    advantage: float | None = None
    """As it was trained; None in evaluation, and of what was not trained."""
    pieces: tuple[str, ...] = ()
    """The reply, token by token."""
    log_probs: tuple[float | None, ...] = ()
    """Natural logarithms, as the engine sampled them, with four decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trajectory: of a rollout (``rollout``) or of an evaluation (``length``)."""

    kind: Literal["trajectory"] = "trajectory"
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
    reward_parts: Mapping[str, float | None] = field(default_factory=dict)
    accuracy: float | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Evaluation: by metric, the one that the task is judged by first."""
    advantage: float | None = None
    counts: Mapping[str, float | None] = field(default_factory=dict)
    turns: tuple[TraceTurn, ...] = ()


_LINE: TypeAdapter[Any] = TypeAdapter(Annotated[TraceDocument | Trace, Discriminator("kind")])


def line_of(record: TraceDocument | Trace) -> bytes:
    # NumPy: scores of tasks and rewards of a user's own.
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


def kept_files(folder: Path) -> list[Path]:
    """In the order of their names; none where nothing was kept."""
    return sorted(path for path in (folder / FOLDER).glob("*.jsonl") if path.is_file())


def trace_files(folder: Path) -> list[Path]:
    """Those that are kept. Raises TraceError where there is none."""
    files = kept_files(folder)
    if not files:
        raise TraceError(f"{folder}: no {FOLDER}/*.jsonl; give the folder of a run (SAVE_PATH) or of an evaluation "
                         "that was made with KEEP_TRAJECTORIES above 0")
    return files


def read_traces(file: Path) -> Iterator[TraceDocument | Trace]:
    """The file's records, one in memory at a time; fields that this version does not know are ignored. Raises
    TraceError: a whole line is neither."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _LINE.validate_json(line)
            except ValidationError as error:
                first = error.errors()[0]
                reason = ": ".join([".".join(map(str, first["loc"][1:])), first["msg"]]).removeprefix(": ")
                raise TraceError(f"{file}: line {number} is no trace ({reason}); remove that line") from None


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> tuple[str, ...]:
    """A reply token by token: one piece for each of ``ids``, which decode to ``text`` without special tokens.

    A character of several tokens stands with its last one, and a blank with its word::

        tokens   Z     \\xc3  \\xbc  rich        pieces   "Z"  ""  "ü"  "rich"

    Joined they are ``text``, except where it holds bytes that are no character and a decoder spoils their neighbours.
    """
    stream = DecodeStream(skip_special_tokens=True)
    pieces = [stream.step(tokenizer, token) or "" for token in ids]
    if pieces:  # a reply may end within a character
        pieces[-1] += text[sum(map(len, pieces)) :]
    return tuple(pieces)
