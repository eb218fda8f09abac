"""A host's sample as a trace: ids as text, turns with the memory around them.

What a turn was shown is known without asking its agent: the memory is the one after the round before
(``MemoryAgent.memory``), the section lies in its prompt where the record says, and what was recalled is in the record.
Of a turn whose record cannot tell these, the whole prompt is kept.

Worked example, AGENT=parallel on three chunks, two at once::

    round  turn            sections  shown memory  memory
    0      memory "a"      0         ""            ""        two useful replies wait to be merged
    0      memory "b"      1         ""            ""
    1      memory "a b"              ""            "a b"
    2      memory "a b c"  2         "a b"         "a b c"
    3      final                     "a b c"       "a b c"
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from ..agents.records import TurnKind
from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..traces.pieces import pieces_of
from ..traces.trace import Trace, TraceDocument, TraceTurn
from .record import MemoryRecord, Record, TurnRecord
from .sample import ended, gold_answers, lost, reward_of
from .task_row import question_of, task_of

LEAST_LOG_PROB = -99.0
"""What stands for minus infinity, which JSON has no word for."""


class Teller:
    """Tells trajectories in the words of one tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._backend = vocabulary.tokenizer.backend_tokenizer
        # Questions and samples share documents.
        self._section = lru_cache(maxsize=256)(self._decoded)

    def document(self, records: Sequence[Record]) -> TraceDocument | None:
        """The sections that these readings of one document were shown; one that nobody was shown is empty."""
        ids: dict[int, Sequence[int]] = {}
        for turn in (turn for record in records for turn in record.turns if turn.section):
            number, start, end = turn.section or (0, 0, 0)
            ids.setdefault(number, turn.tokens[start:end])
        if not ids:
            return None
        count = max(int(max(record.counts.get("chunks", 0) for record in records)), max(ids) + 1)
        sections = tuple(self._section(array("I", ids[n]).tobytes()) if n in ids else "" for n in range(count))
        return TraceDocument(id=_digest(sections), sections=sections)

    def trace(
        self,
        config: Config,
        sample: Any,
        record: Record,
        advantages: Sequence[float | None] | None = None,
        /,
        **known: Any,
    ) -> Trace:
        """
        Args:
            advantages: of each turn, as it is trained.
            known: further fields of the trace.
        """
        versions = getattr(sample, "weight_versions", None) or [""]
        values: dict[str, Any] = {
            "question": question_of(sample), "golds": tuple(gold_answers(sample)),
            "response": sample.response or "", "failure_message": record.failure_message,
        } | known
        return Trace(
            **values,
            task=record.task, agent=config.agent if config.eval_mode == "recurrent" else config.eval_mode,
            weight_version=str(versions[-1]),
            outcome=record.outcome.value, failure=record.failure.value if record.failure else None,
            reward_parts=dict(record.reward_parts), accuracy=record.accuracy, counts=dict(record.counts),
            turns=self._turns(record, advantages or [None] * len(record.turns)),
        )

    def _decoded(self, ids: bytes) -> str:
        return self._vocabulary.decode(memoryview(ids).cast("I"))

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
        split = turn.prompt_tokens
        reply_ids = turn.tokens[split:]
        reply = self._vocabulary.reply_text(reply_ids)
        sampled = any(turn.log_probs)  # servers that speak in texts give none
        return TraceTurn(
            kind=turn.kind.value, sections=(turn.section[0],) if turn.section else (),
            shown_memory=before.text, recalled=turn.recalled,
            prompt="" if turn.told else self._vocabulary.reply_text(turn.tokens[:split]),
            reply=reply, memory=after.text, gold=after.gold, stop=turn.stop.value,
            prompt_tokens=split, cached_tokens=turn.cached_tokens, rewards=dict(turn.state_rewards or {}),
            advantage=advantage, pieces=pieces_of(self._backend, reply_ids, reply) if sampled else (),
            log_probs=_rounded(turn.log_probs) if sampled else (),
        )


def outcome_of(config: Config, sample: Any, reward_key: str) -> dict[str, Any]:
    """The fields of a trace that say how a host's sample ended: no prediction where it never answered, no reward
    where it counts for nothing."""
    return {
        "prediction": task_of(config, sample).read_answer(sample.response) if ended(sample) else "",
        "reward": None if lost(sample) else reward_of(sample, reward_key),
    }


def _rounded(log_probs: Sequence[float]) -> tuple[float, ...]:
    """To four decimals; no minus before 0."""
    return tuple((np.round(np.maximum(log_probs, LEAST_LOG_PROB), 4) + 0.0).tolist())


def _digest(sections: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for section in sections:
        digest.update(section.encode() + b"\0")
    return digest.hexdigest()[:16]
