"""Keeps what an evaluation read and wrote, to be read by people (KEEP_TRAJECTORIES): ``RESULTS/trajectories``.

Invariant: nothing that goes wrong here ends an evaluation or changes a row. It costs one warning, after which nothing
more is kept.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..hooks.sample import Record, Sample
from ..hooks.traces import EvaluationFiles, Teller
from .results import Row

logger = logging.getLogger(__name__)


class KeptTrajectories:
    """Those of one evaluation; ``most`` is how many bytes they may take."""

    def __init__(self, output: Path, vocabulary: Vocabulary, config: Config, most: int) -> None:
        self._folder, self._config, self._teller = output / "trajectories", config, Teller(vocabulary)
        self._open = config.keep_trajectories > 0
        self._files = EvaluationFiles(output, most)

    async def write(self, sample: Sample, record: Record, row: Row) -> None:
        """Keep the trajectory that ``row`` is the answer of."""
        if not self._open:
            return
        headline_first = {row.headline: row.scores[row.headline]} | dict(row.scores)
        try:
            document = self._teller.document([record])
            # Long readings take a while to decode, and other answers need this loop meanwhile.
            trace = await asyncio.to_thread(
                self._teller.trace, self._config, sample, record, id=f"{row.length}-{row.question}-{row.sample}",
                length=row.length, question_id=row.question, group=row.question, sample=row.sample, question=row.text,
                golds=tuple(row.answers), document=document.id if document else None, prediction=row.prediction,
                scores=headline_first, failure_message=row.failure_message)
            if not self._files.write(document, trace):
                logger.warning("%s: no more are kept: 500 MB are used up", self._folder)
                self._open = False
        except Exception as error:  # whatever the disk or a tokenizer does: the evaluation goes on
            if self._open:
                logger.warning("%s: no more are kept: %s: %s", self._folder, type(error).__name__, error)
            self._open = False
