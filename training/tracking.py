"""A run's metrics on their way to TRACKER: in a thread of its own, and never the end of the run.

Invariants:
- a library that is absent, and one that cannot begin a new run (no key, no network), is one line before anything
  starts. One that cannot go on with a run that is continued is a warning: nobody may be there at night;
- after that whatever the library raises is one warning, then silence until it works again; a library that hangs keeps
  its thread, not the trainer. ``SAVE_PATH/metrics.jsonl`` has everything, always;
- metrics arrive in the order of the rollouts. Those that could not be sent are not sent later.
"""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from ..config import Config
from ..system.atomic_file import write_atomically
from ..system.errors import MemAgentError
from .trackers import TRACKERS, TrackedRun, Tracker

logger = logging.getLogger("mem_agent")

CLOSE_WITHIN_S = 60.0
"""What has not been sent by then is left to ``metrics.jsonl``."""
_KEY_FILE = "tracker.json"


class Tracking:
    """Takes metrics at once, and sends them when it can."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self._name, self._tracker = name, tracker
        self._failing = False
        self._waiting: queue.SimpleQueue[tuple[int, dict[str, float]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="tracker", daemon=True)
        self._thread.start()

    def log(self, rollout: int, metrics: Mapping[str, float]) -> None:
        self._waiting.put((rollout, dict(metrics)))

    def close(self, within_s: float = CLOSE_WITHIN_S) -> None:
        self._waiting.put(None)
        self._thread.join(within_s)
        if self._thread.is_alive():
            logger.warning("TRACKER=%s did not take the last metrics within %g s; metrics.jsonl has them", self._name,
                           within_s)

    def _send_all(self) -> None:
        while (item := self._waiting.get()) is not None:
            rollout, metrics = item
            self._try(lambda r=rollout, m=metrics: self._tracker.log(r, m))  # type: ignore[misc]
        self._try(self._tracker.close)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
            self._failing = False
        except (Exception, SystemExit) as error:  # whatever a library of somebody else's raises, as long as it does
            if not self._failing:
                logger.warning("TRACKER=%s: %s; the run goes on, metrics.jsonl has everything", self._name,
                               one_line(error))
            self._failing = True


def start_tracking(config: Config, first: int) -> Tracking | None:
    """TRACKER's, of the run in SAVE_PATH whose next rollout is ``first``; None where there is none.

    Raises MemAgentError where it cannot begin and the run has not begun either.
    """
    if config.tracker == "none":
        return None
    folder = Path(config.save_path)
    run = TrackedRun(
        project=config.tracker_project, name=folder.absolute().name, key=run_key(folder), folder=folder, first=first,
        settings=config.to_mapping(),
    )
    try:
        tracker = TRACKERS[config.tracker](run)
    except Exception as error:
        if first == 0:
            raise MemAgentError(f"TRACKER={config.tracker} cannot begin: {one_line(error)}; put that right, or set "
                                "TRACKER=none") from error
        logger.warning("TRACKER=%s cannot go on: %s; metrics go to metrics.jsonl alone", config.tracker,
                       one_line(error))
        return None
    return Tracking(config.tracker, tracker)


def run_key(folder: Path) -> str:
    """By which trackers know the run in ``folder`` again."""
    path = folder / _KEY_FILE
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, orjson.dumps({"run": uuid.uuid4().hex[:12]}))
    return str(orjson.loads(path.read_bytes())["run"])


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
