"""Keeps what an evaluation read and wrote, to be read by people (KEEP_TRAJECTORIES): ``RESULTS/trajectories``.

Invariant: nothing that goes wrong here ends an evaluation or changes a row. It costs one warning, after which nothing
more is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..hooks.record import Record
from ..hooks.sample import Sample
from ..hooks.trace_of import Teller
from ..traces.evaluation_files import EvaluationFiles
from ..traces.trace import Trace, TraceDocument
from .results import Row

logger = logging.getLogger(__name__)


class KeptTrajectories:
    """Those of one evaluation; a context manager."""

    def __init__(
        self, output: Path, asked: Iterable[tuple[str, str, int]], vocabulary: Vocabulary, config: Config
    ) -> None:
        """``asked``: length, question and sample of every answer that is to come."""
        ids: dict[str, list[str]] = defaultdict(list)
        for length, question, sample in asked:
            ids[length].append(_id(length, question, sample))
        self._output = output
        self._teller = Teller(vocabulary)
        self._config = config
        self._open = config.keep_trajectories > 0
        self._files = EvaluationFiles(output, ids, config.keep_trajectories_bytes)
        self._full = False

    async def write(self, sample: Sample, record: Record, row: Row) -> None:
        """Keep the trajectory that ``row`` is the answer of."""
        if not self._open or not self._files.has_room(row.length):
            return
        try:
            # Long readings take a while to decode, and other answers need this loop meanwhile.
            told = await asyncio.to_thread(self._told, sample, record, row)
            written = self._open and self._files.write(*told)
        except Exception as error:  # whatever the disk or a tokenizer does: the evaluation goes on
            if not self._open:
                return  # others were told when the first one failed
            self._open = False
            logger.warning("%s/trajectories: no more are kept: %s: %s", self._output, type(error).__name__, error)
            return
        if self._open and not written and not self._full:
            self._full = True
            logger.warning("%s/trajectories: KEEP_TRAJECTORIES_MB=%d is reached; of eval_%s no more are kept",
                           self._output, self._config.keep_trajectories_mb, row.length)

    def __enter__(self) -> KeptTrajectories:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _told(self, sample: Sample, record: Record, row: Row) -> tuple[TraceDocument | None, Trace]:
        document = self._teller.document([record])
        trace = self._teller.trace(
            self._config, sample, record, id=_id(row.length, row.question, row.sample), length=row.length,
            question_id=row.question, group=row.question, sample=row.sample, question=row.text, golds=row.answers,
            document=document.id if document else None, prediction=row.prediction, scores=_headline_first(row),
            failure_message=row.failure_message,
        )
        return document, trace


def _headline_first(row: Row) -> dict[str, float]:
    """The scores, the one that the task is judged by first."""
    first = {row.headline: row.scores[row.headline]} if row.headline in row.scores else {}
    return first | dict(row.scores)


def _id(length: str, question: str, sample: int) -> str:
    return f"{length}-{question}-{sample}"
