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
from ..hooks.sample import Record, Sample
from ..hooks.traces import Teller
from ..traces.files import EvaluationFiles
from ..traces.trace import Trace, TraceDocument
from .results import Row

logger = logging.getLogger(__name__)

KEPT_BYTES = 500 * 10**6
"""What the trajectories of one evaluation may take."""


class KeptTrajectories:
    """Those of one evaluation; a context manager."""

    def __init__(
        self, output: Path, asked: Iterable[tuple[str, str, int]], vocabulary: Vocabulary, config: Config, most: int
    ) -> None:
        """
        Args:
            asked: length, question and sample of every answer that is to come.
            most: bytes of the files.
        """
        ids: dict[str, list[str]] = defaultdict(list)
        for length, question, sample in asked:
            ids[length].append(_id(length, question, sample))
        self._output, self._config = output, config
        self._teller = Teller(vocabulary)
        self._open = config.keep_trajectories > 0
        self._files = EvaluationFiles(output, ids, most)

    async def write(self, sample: Sample, record: Record, row: Row) -> None:
        """Keep the trajectory that ``row`` is the answer of."""
        if not self._open or not self._files.has_room(row.length):
            return
        try:
            # Long readings take a while to decode, and other answers need this loop meanwhile.
            document, trace = await asyncio.to_thread(self._told, sample, record, row)
            if self._open and not self._files.write(document, trace):
                logger.warning("%s/trajectories: no more of eval_%s are kept: its share of 500 MB is used up",
                               self._output, row.length)
        except Exception as error:  # whatever the disk or a tokenizer does: the evaluation goes on
            if self._open:
                logger.warning("%s/trajectories: no more are kept: %s: %s", self._output, type(error).__name__, error)
            self._open = False

    def __enter__(self) -> KeptTrajectories:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _told(self, sample: Sample, record: Record, row: Row) -> tuple[TraceDocument | None, Trace]:
        document = self._teller.document([record])
        headline_first = {row.headline: row.scores[row.headline]} | dict(row.scores)
        trace = self._teller.trace(
            self._config, sample, record, id=_id(row.length, row.question, row.sample), length=row.length,
            question_id=row.question, group=row.question, sample=row.sample, question=row.text, golds=row.answers,
            document=document.id if document else None, prediction=row.prediction, scores=headline_first,
            failure_message=row.failure_message,
        )
        return document, trace


def _id(length: str, question: str, sample: int) -> str:
    return f"{length}-{question}-{sample}"
