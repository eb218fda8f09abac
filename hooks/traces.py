"""Trajectories to be read by people (KEEP_TRAJECTORIES), of rollouts in every host and of evaluations while training.

Hosts tell the log hook the rollout's number, and then give its samples to the converter, which knows the advantages::

    log_rollout(12, ...)       begin(host, 12)
    custom_convert(samples)    keep(host, trained)       SAVE_PATH/trajectories/rollout_000012.jsonl
    log_eval(12, {"hqa": ..})  keep_evaluation(...)      SAVE_PATH/trajectories/eval_000012_hqa.jsonl

A thread of its own writes while the trainer trains. Nothing that goes wrong here ends or changes a rollout: it costs a
warning and the metric ``keeping_failed``.

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
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ..agents.records import TurnKind
from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..system.files import replacing
from ..traces.files import sampled_first, write_rollout
from ..traces.trace import FOLDER, Trace, TraceDocument, TraceTurn, line_of, pieces_of
from .host import HostArgs
from .reader import reader_for
from .sample import MemoryRecord, Record, TurnRecord, ended, gold_answers, lost, reward_of
from .task_row import question_of, task_of

logger = logging.getLogger(__name__)

KEPT_BYTES = 500 * 10**6
"""What the trajectories of a run's rollouts may take, and those of its evaluations; the oldest are removed first."""
LEAST_LOG_PROB = -99.0
"""Written for minus infinity, which JSON does not have."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A sample with its outcome's advantage and that of each of its turns; None where nothing was trained."""

    sample: Any
    advantage: float | None = None
    by_turn: Sequence[float | None] = ()


_coming: dict[str, int] = {}
"""Run folder -> the rollout whose samples come next."""
_failures: Counter[str] = Counter()
_writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trajectories")


def begin(host: HostArgs, rollout: int) -> dict[str, float]:
    """The next samples are those of ``rollout``; returns the metric of what could not be kept before."""
    if host.config.keep_trajectories and not host.config.supervised:
        _coming[host.save] = rollout
    failures = _failures.pop(host.save, 0)
    return {"keeping_failed": failures} if failures else {}


def keep(host: HostArgs, trained: Sequence[Trained]) -> None:
    """Write the trajectories of the rollout that ``begin`` named, in the background; nothing if none was named."""
    if (rollout := _coming.pop(host.save, None)) is not None:
        _in_background(host, f"rollout {rollout}", _write_rollout, rollout, trained)


def keep_evaluation(host: HostArgs, rollout: int, answered: Mapping[str, Sequence[Any]]) -> None:
    """Write the samples of each data set, in the background; ``rollout`` is the one that was trained on last."""
    if host.config.keep_trajectories and any(answered.values()):
        evaluations = -(-host.config.num_rollout // host.config.eval_interval) if host.config.eval_interval else 20
        share = KEPT_BYTES // evaluations // len(answered)
        for name, samples in answered.items():
            what = f"evaluation {name} after rollout {rollout}"
            _in_background(host, what, _write_evaluation, rollout, name, list(samples), share)


def wait() -> None:
    """Wait until everything given so far is on disk."""
    _writer.submit(int).result()


def _in_background(host: HostArgs, what: str, write: Callable[..., None], *args: Any) -> None:
    def run() -> None:
        try:
            write(host, *args)
        except Exception as error:  # whatever the disk, a tokenizer or a user's task does: training goes on
            _failures[host.save] += 1
            logger.warning("%s: its trajectories are not kept: %s: %s", what, type(error).__name__, error)

    _writer.submit(run)


def _write_rollout(host: HostArgs, rollout: int, trained: Sequence[Trained]) -> None:
    groups: dict[Any, list[Trained]] = {}
    for number, one in enumerate(trained):
        group = one.sample.group_index
        groups.setdefault(f"alone-{number}" if group is None else group, []).append(one)
    named = list(groups.items())
    most = host.config.keep_trajectories
    told = (_group(host, f"{rollout}-", *named[number], host.reward_key, rollout=rollout)
            for number in sampled_first(host.config.seed, rollout, len(named), most))
    written = write_rollout(Path(host.save), rollout, told, most, KEPT_BYTES)
    if written < len(named):
        logger.info("rollout %d: trajectories of %d of %d documents are kept", rollout, written, len(named))


def _write_evaluation(host: HostArgs, rollout: int, name: str, samples: Sequence[Any], share: int) -> None:
    plain = re.sub(r"[^\w.-]", "_", name)
    path = Path(host.save) / FOLDER / f"eval_{max(rollout, 0):06d}_{plain}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        for question, first in enumerate(range(0, len(samples), host.eval_samples)):
            answers = [Trained(sample) for sample in samples[first : first + host.eval_samples]]
            told = _group(host, f"{rollout}-{name}-", question, answers, host.eval_reward_key, rollout=rollout,
                          length=name, question_id=str(question))
            lines = b"".join(map(line_of, told))
            share -= len(lines)
            if share < 0:
                break
            file.write(lines)


def _group(
    host: HostArgs, prefix: str, group: Any, siblings: Sequence[Trained], reward_key: str, question_id: str = "",
    **known: Any,
) -> Iterator[TraceDocument | Trace]:
    """What is kept of a group: its document, and its trajectories in their order; none of another generate hook's.

    Without ``question_id`` questions have the names that their rows give them.
    """
    teller = _teller_of(reader_for(host.hf_checkpoint, host.config, host.chat_template_kwargs).vocabulary)
    recorded = [(n, one, record) for n, one in enumerate(siblings) if (record := Record.of(one.sample)) is not None]
    document = teller.document([record for _, _, record in recorded])
    if document:
        yield document
    for number, one, record in recorded:
        sample = one.sample
        names = [(sample.metadata or {}).get(name) for name in ("id", "_id", "index")]
        named = next((str(name) for name in names if isinstance(name, str | int)), str(group))
        yield teller.trace(
            host.config, sample, record, one.by_turn,
            id=f"{prefix}{group}-{number}", group=str(group), sample=number, question_id=question_id or named,
            document=document.id if document and any(turn.section for turn in record.turns) else None,
            advantage=one.advantage,
            prediction=task_of(host.config, sample).read_answer(sample.response) if ended(sample) else "",
            reward=None if lost(sample) else reward_of(sample, reward_key), **known)


# --- from records to traces ---------------------------------------------------------------------------------------


class Teller:
    """Turns records into traces, decoded by one tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._section = lru_cache(maxsize=256)(vocabulary.decode)  # questions and samples share documents

    def document(self, records: Sequence[Record]) -> TraceDocument | None:
        """The sections that these readings of one document were shown; one that nobody was shown is empty."""
        texts: dict[int, str] = {}
        for turn in (turn for record in records for turn in record.turns):
            if turn.section and turn.section[0] not in texts:
                number, start, end = turn.section
                texts[number] = self._section(tuple(turn.tokens[start:end]))
        if not texts:
            return None
        count = max(max(int(record.counts.get("chunks", 0)) for record in records), max(texts) + 1)
        sections = tuple(texts.get(number, "") for number in range(count))
        digest = hashlib.sha256("".join(f"{section}\0" for section in sections).encode())
        return TraceDocument(id=digest.hexdigest()[:16], sections=sections)

    def trace(
        self, config: Config, sample: Any, record: Record, advantages: Sequence[float | None] = (), /, **known: Any
    ) -> Trace:
        """
        Args:
            advantages: of each turn, as it is trained; none in evaluation.
            known: further fields of the trace.
        """
        versions = getattr(sample, "weight_versions", None) or [""]
        values: dict[str, Any] = {"question": question_of(sample), "golds": tuple(gold_answers(sample)),
                                  "response": sample.response or "", "failure_message": record.failure_message}
        return Trace(
            **values | known, task=record.task, weight_version=str(versions[-1]),
            agent=config.agent if config.eval_mode == "recurrent" else config.eval_mode,
            outcome=record.outcome.value, failure=record.failure.value if record.failure else None,
            reward_parts=dict(record.reward_parts), accuracy=record.accuracy, counts=dict(record.counts),
            turns=self._turns(record, advantages or [None] * len(record.turns)))

    def _turns(self, record: Record, advantages: Sequence[float | None]) -> tuple[TraceTurn, ...]:
        told: list[TraceTurn] = []
        memory, memories = MemoryRecord(0, None), iter(record.memories)
        numbered = zip(record.turns, advantages, strict=True)
        for _, together in groupby(numbered, key=lambda one: one[0].round):
            turns = list(together)
            before = memory
            if any(turn.kind is TurnKind.MEMORY for turn, _ in turns):
                memory = next(memories, MemoryRecord(0, None))  # none where it was broken off in this round
            told += [self._turn(turn, before, memory, advantage) for turn, advantage in turns]
        return tuple(told)

    def _turn(
        self, turn: TurnRecord, before: MemoryRecord, after: MemoryRecord, advantage: float | None
    ) -> TraceTurn:
        split, vocabulary = turn.prompt_tokens, self._vocabulary
        reply_ids = turn.tokens[split:]
        reply = vocabulary.reply_text(reply_ids)
        pieces: tuple[str, ...] = ()
        log_probs: tuple[float, ...] = ()
        if any(turn.log_probs):  # servers that speak in texts give none
            pieces = pieces_of(vocabulary.tokenizer.backend_tokenizer, reply_ids, reply)
            log_probs = tuple((np.round(np.maximum(turn.log_probs, LEAST_LOG_PROB), 4) + 0.0).tolist())  # no -0.0
        return TraceTurn(
            kind=turn.kind.value, sections=(turn.section[0],) if turn.section else (),
            shown_memory=before.text, recalled=turn.recalled,
            prompt="" if turn.told else vocabulary.reply_text(turn.tokens[:split]),
            reply=reply, memory=after.text, gold=after.gold, stop=turn.stop.value, prompt_tokens=split,
            cached_tokens=turn.cached_tokens, rewards=dict(turn.state_rewards or {}), advantage=advantage,
            pieces=pieces, log_probs=log_probs)


_teller_of = lru_cache(maxsize=2)(Teller)
