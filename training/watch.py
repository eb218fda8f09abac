"""What people see of a run while it trains: ``metrics.jsonl``, a line for each rollout, TRACKER, and in a terminal the
live lines of ``live.py``. Rank 0 has a ``Watch``; the others an ``Unwatched``, whose calls do nothing.

A rollout's metrics reach the disk before anybody else; what a resumed run does again is said again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from ..config import Config
from .progress import Counts, Phase, Progress
from .run_log import RunLog, progress_line, read_metrics
from .tracking import start_tracking

logger = logging.getLogger("mem_agent")


class Watcher(Protocol):
    def begin(self, first: int, counts: Callable[[], Counts]) -> None:
        """The run goes on with rollout ``first``; ``counts`` says at any time what has been sampled."""

    def enter(self, phase: Phase, number: int | None = None) -> None:
        """``number``: of the rollout that begins with this phase."""

    def finish(self, number: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Watch:
    def __init__(self, config: Config, first: int) -> None:
        """``first``: the rollout that is done next, as far as is known before the checkpoint is read.

        Raises MemAgentError where TRACKER cannot begin.
        """
        self._config = config
        self._tracking = start_tracking(config, first)
        self._progress = Progress(
            Path(config.save_path).absolute().name, config.num_rollout, config.trajectories_per_rollout
        )
        self._log: RunLog | None = None
        self._terminal = ExitStack()
        from .live import for_a_terminal, shown

        if for_a_terminal():
            self._terminal.enter_context(shown(self._progress))

    def begin(self, first: int, counts: Callable[[], Counts]) -> None:
        self._log = RunLog(self._config.save_path, first)
        before = read_metrics(self._config.save_path) if self._log.path.is_file() else []
        rewards = [line["reward"] for line in before if type(line.get("reward")) in (int, float)]  # null: of a NaN
        self._progress.seen(rewards, first)
        self._progress.counts = counts

    def enter(self, phase: Phase, number: int | None = None) -> None:
        self._progress.enter(phase, number)

    def finish(self, number: int, metrics: Mapping[str, float]) -> None:
        assert self._log is not None, "a run begins before a rollout of it ends"
        self._log.write(number, dict(metrics))
        if self._tracking is not None:
            self._tracking.log(number, metrics)
        logger.info(progress_line(number, self._config.num_rollout, dict(metrics)))
        self._progress.finish(metrics)

    def close(self) -> None:
        self._terminal.close()
        if self._tracking is not None:
            self._tracking.close()


class Unwatched:
    def begin(self, first: int, counts: Callable[[], Counts]) -> None: ...

    def enter(self, phase: Phase, number: int | None = None) -> None: ...

    def finish(self, number: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...
