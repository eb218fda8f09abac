"""Trajectories kept to be read by people (KEEP_TRAJECTORIES): what was shown, remembered, answered and earned.

::

    RUN/trajectories/rollout_000011.jsonl     the first KEEP_TRAJECTORIES groups of an earlier rollout
    RUN/trajectories/rollout_000012.jsonl     the newest rollout: all groups
    RESULTS/trajectories/50.jsonl             an evaluated length, appended as its answers come

A file is JSON lines of two kinds. A document comes before the first trajectory that read it, once for all siblings; a
trajectory names it and, turn by turn, the sections that it read of it, by number::

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
- a line is read whole or not at all: of an answer that is asked again the later line counts, and what a killed run
  left of its last line is not read. JSON has no word for NaN and infinity: null stands for them;
- the files of a run, and those of an evaluation, never take more than their bound.

Hosts tell the log hook the rollout's number, and then give its samples to the converter, which knows the advantages::

    log_rollout(12, ...)       begin(host, 12)
    custom_convert(samples)    keep(host, trained)       SAVE_PATH/trajectories/rollout_000012.jsonl

What a turn was shown is known without asking its agent: the memory is the one after the round before, the section lies
in its prompt where the record says, and what was recalled is in the record. Of a turn whose record cannot tell these
(``told``), the whole prompt is kept. AGENT=parallel on three chunks, two at once::

    round  turn            sections  shown memory  memory
    0      memory "a"      0         ""            ""        two useful replies wait to be merged
    0      memory "b"      1         ""            ""
    1      memory "a b"              ""            "a b"
    2      memory "a b c"  2         "a b"         "a b c"
    3      final                     "a b c"       "a b c"
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Discriminator, TypeAdapter, ValidationError
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from ..agents.records import Turn, TurnKind
from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..system.errors import MemAgentError
from ..system.files import replacing
from .host import HostArgs
from .reader import question_of, reader_for, task_of
from .sample import MemoryRecord, Record, ended, gold_answers, lost, reward_of

logger = logging.getLogger(__name__)

FOLDER = "trajectories"
KEPT_BYTES = 500 * 10**6
"""What the trajectories of a run's rollouts may take, and those of an evaluation."""


class TraceError(MemAgentError):
    """What is given holds no readable traces."""


# --- what is on disk ------------------------------------------------------------------------------------------------


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
    return sorted((folder / FOLDER).glob("*.jsonl"))


def read_traces(file: Path) -> Iterator[TraceDocument | Trace]:
    """The file's records, one in memory at a time. Raises TraceError: a whole line is neither."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield _LINE.validate_json(line)
            except ValidationError as error:
                field_name = ".".join(map(str, error.errors()[0]["loc"][1:]))
                raise TraceError(f"{file}: line {number} is no trace ({field_name}); remove that line") from None


def write_rollout(
    run: Path, rollout: int, groups: Iterable[Iterable[TraceDocument | Trace]], most: int, bound: int
) -> None:
    """Write the traces of ``rollout``, and thin the rollout before it to its first ``most`` groups.

    The newest rollout takes at most half of ``bound`` bytes, from its first groups on; earlier ones share the other
    half, and the oldest are removed. Files of later rollouts, which a run that was set back has left, are removed.

    Raises:
        OSError: the disk is full, or the folder cannot be written; an earlier attempt at this rollout stays.
        TraceError: what lies there is damaged.
    """
    path = run / FOLDER / f"rollout_{rollout:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(path.parent.glob("rollout_*.jsonl"))
    for file in files:
        if file.name > path.name:
            file.unlink()
    earlier = [file for file in files if file.name < path.name]
    if earlier:
        _cut(earlier[-1], most)
    while sum(file.stat().st_size for file in earlier) > bound // 2:
        earlier.pop(0).unlink()
    room = bound // 2
    with replacing(path) as draft:
        for group in groups:
            lines = b"".join(map(line_of, group))
            room -= len(lines)
            if room < 0:
                break
            draft.write(lines)


def _cut(path: Path, groups: int) -> None:
    """Cut a file behind its first ``groups`` groups, which needs no room on a full disk."""
    end = size = 0
    seen: set[str] = set()
    with path.open("rb") as lines:
        for record, line in zip(read_traces(path), lines, strict=False):
            size += len(line)
            if isinstance(record, Trace):
                seen.add(record.group)
                if len(seen) > groups:
                    break
                end = size
    os.truncate(path, end)


# --- what training leaves -------------------------------------------------------------------------------------------


Trained = tuple[Any, float | None, Sequence[float]]
"""A sample with its outcome's advantage and that of each of its turns; None and nothing where it was not trained."""
_coming: dict[str, int] = {}
"""Run folder -> the rollout whose samples come next."""


def begin(host: HostArgs, rollout: int) -> None:
    """The next samples of this run are those of ``rollout``."""
    if host.config.keep_trajectories:
        _coming[host.save] = rollout


def keep(host: HostArgs, trained: Sequence[Trained]) -> None:
    """Write the trajectories of the rollout that ``begin`` named, if it named one. What goes wrong is a warning."""
    rollout = _coming.pop(host.save, None)
    if rollout is None:
        return
    groups: dict[Any, list[Trained]] = {}
    for one in trained:
        groups.setdefault(one[0].group_index, []).append(one)
    told = (_group(host, rollout, *group) for group in groups.items())
    try:
        write_rollout(Path(host.save), rollout, told, host.config.keep_trajectories, KEPT_BYTES)
    except Exception as error:  # whatever the disk, a tokenizer or a user's task does: training goes on
        logger.warning("rollout %d: its trajectories are not kept: %s: %s", rollout, type(error).__name__, error)


def _group(host: HostArgs, rollout: int, group: Any, siblings: Sequence[Trained]) -> Iterator[TraceDocument | Trace]:
    """The document of a group, and its trajectories in their order; none of another generate hook's."""
    vocabulary = reader_for(host.hf_checkpoint, host.config, host.chat_template_kwargs).vocabulary
    records = [Record.of(sample) for sample, *_ in siblings]
    document = document_of(vocabulary, [record for record in records if record])
    if document:
        yield document
    for number, ((sample, advantage, by_turn), record) in enumerate(zip(siblings, records, strict=True)):
        if record is None:
            continue
        yield trace_of(
            vocabulary, host.config, sample, record, by_turn, id=f"{rollout}-{group}-{number}", rollout=rollout,
            group=str(group), sample=number, question_id=str((sample.metadata or {}).get("id", group)),
            document=document and document.id, advantage=advantage,
            prediction=task_of(host.config, sample).read_answer(sample.response) if ended(sample) else "",
            reward=None if lost(sample) else reward_of(sample, host.reward_key))


# --- from records to traces -----------------------------------------------------------------------------------------


def document_of(vocabulary: Vocabulary, records: Sequence[Record]) -> TraceDocument | None:
    """The sections that these readings of one document were shown; one that nobody was shown is empty."""
    texts: dict[int, str] = {}
    for turn in (turn for record in records for turn in record.turns):
        if turn.section and turn.section.number not in texts:
            section = turn.section
            texts[section.number] = vocabulary.decode(turn.tokens[section.start : section.end])
    if not texts:
        return None
    count = max(max(texts) + 1, *(int(record.counts.get("chunks", 0)) for record in records))
    sections = tuple(texts.get(number, "") for number in range(count))
    digest = hashlib.sha256("\0".join(sections).encode())
    return TraceDocument(id=digest.hexdigest()[:16], sections=sections)


def trace_of(
    vocabulary: Vocabulary, config: Config, sample: Any, record: Record, advantages: Sequence[float | None] = (), /,
    **known: Any,
) -> Trace:
    """
    Args:
        advantages: of each turn, as it is trained; none in evaluation.
        known: further fields of the trace.
    """
    versions = getattr(sample, "weight_versions", None) or [""]
    values: dict[str, Any] = {"question": question_of(sample), "golds": tuple(gold_answers(sample)),
                              "response": sample.response or "", "failure_message": record.failure_message}
    turns, memories = [], iter(record.memories)
    memory = MemoryRecord(0, None)
    numbered = zip(record.turns, advantages or [None] * len(record.turns), strict=True)
    for _, together in groupby(numbered, key=lambda one: one[0].round):
        side_by_side, before = list(together), memory
        if any(turn.kind is TurnKind.MEMORY for turn, _ in side_by_side):
            memory = next(memories, MemoryRecord(0, None))  # none where it was broken off in this round
        turns += [_turn(vocabulary, turn, before, memory, advantage) for turn, advantage in side_by_side]
    return Trace(
        **values | known, task=record.task, weight_version=str(versions[-1]),
        agent=config.agent if config.eval_mode == "recurrent" else config.eval_mode,
        outcome=record.outcome.value, failure=record.failure.value if record.failure else None,
        reward_parts=record.reward_parts, accuracy=record.accuracy, counts=record.counts, turns=tuple(turns))


def _turn(
    vocabulary: Vocabulary, turn: Turn, before: MemoryRecord, after: MemoryRecord, advantage: float | None
) -> TraceTurn:
    reply = vocabulary.reply_text(turn.response_ids)
    known = any(turn.log_probs)  # servers that speak in texts give none
    pieces = pieces_of(vocabulary.tokenizer.backend_tokenizer, turn.response_ids, reply) if known else ()
    log_probs = tuple(round(value, 4) + 0.0 for value in turn.log_probs) if known else ()  # no -0.0
    return TraceTurn(
        kind=turn.kind.value, sections=(turn.section.number,) if turn.section else (),
        shown_memory=before.text, recalled=vocabulary.decode(turn.recalled),
        prompt="" if turn.told else vocabulary.reply_text(turn.prompt_ids),
        reply=reply, memory=after.text, gold=after.gold, stop=turn.stop.value, prompt_tokens=turn.prompt_tokens,
        cached_tokens=turn.cached_tokens, rewards=turn.state_rewards or {}, advantage=advantage,
        pieces=pieces, log_probs=log_probs)


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
