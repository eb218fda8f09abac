"""A run's metrics on their way to TRACKER: in a thread of its own, and never the end of the run.

Invariants:
- a library that is absent, and one that cannot begin a new run (no key), is one line before anything starts. One that
  cannot go on with a run that is continued is a warning: nobody may be there at night;
- after that whatever the library raises is one warning, then silence until it works again; a library that hangs, from
  its first call on, keeps its thread, not the trainer. ``SAVE_PATH/metrics.jsonl`` has everything, always;
- all calls of a library come from that one thread, its beginning too;
- metrics arrive in the order of the rollouts. Those that could not be sent are not sent later.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from pathlib import Path

import orjson

from ..config import Config
from ..system.errors import MemAgentError, reason_of
from ..system.files import write_atomically
from .trackers import TRACKERS, TrackedRun, Tracker

logger = logging.getLogger("mem_agent")

BEGIN_WITHIN_S, CLOSE_WITHIN_S = 60.0, 60.0
"""The run waits so long for a tracker before its first rollout and behind its last one."""
_KEY_FILE = "tracker.json"


class Tracking:
    """Takes metrics at once, and sends them when it can; ``begin`` makes the tracker."""

    def __init__(self, name: str, begin: Callable[[], Tracker]) -> None:
        self._name, self._begin = name, begin
        self._failing = False
        self._begun: Future[Tracker] = Future()
        self._waiting: queue.SimpleQueue[tuple[int, dict[str, float]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def wait(self, within_s: float) -> None:
        """Until it has begun, or the time is over. Raises what the library raised."""
        if wait([self._begun], within_s).done:
            self._begun.result()
            return
        logger.warning("TRACKER=%s has not begun within %g s; the run goes on, metrics.jsonl has everything",
                       self._name, within_s)
        self._begun.add_done_callback(self._too_late)

    def log(self, rollout: int, metrics: Mapping[str, float]) -> None:
        self._waiting.put((rollout, dict(metrics)))

    def close(self, within_s: float = CLOSE_WITHIN_S) -> None:
        self._waiting.put(None)
        if not self._begun.done():
            return  # that was said, and nothing of it will be waited for again
        self._thread.join(within_s)
        if self._thread.is_alive():
            logger.warning("TRACKER=%s did not take the last metrics within %g s; metrics.jsonl has them", self._name,
                           within_s)

    def _work(self) -> None:
        try:
            tracker = self._begin()
        except (Exception, SystemExit) as error:
            self._begun.set_exception(error)
            return
        self._begun.set_result(tracker)
        while (item := self._waiting.get()) is not None:
            rollout, metrics = item
            self._try(lambda r=rollout, m=metrics: tracker.log(r, m))  # type: ignore[misc]
        self._try(tracker.close)

    def _too_late(self, begun: Future[Tracker]) -> None:
        if error := begun.exception():
            logger.warning("TRACKER=%s cannot begin: %s; metrics go to metrics.jsonl alone", self._name,
                           one_line(error))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
            self._failing = False
        except (Exception, SystemExit) as error:  # whatever a library of somebody else's raises, as long as it does
            if not self._failing:
                logger.warning("TRACKER=%s: %s; the run goes on, metrics.jsonl has everything", self._name,
                               one_line(error))
            self._failing = True


def start_tracking(config: Config, first: int, within_s: float = BEGIN_WITHIN_S) -> Tracking | None:
    """TRACKER's, of the run in SAVE_PATH whose next rollout is ``first``; None where there is none.

    One that has not begun in time gets what waits for it if it begins later.

    Raises MemAgentError where it cannot begin and the run has not begun either.
    """
    if config.tracker == "none":
        return None
    folder = Path(config.save_path)
    run = TrackedRun(
        project=os.environ.get("WANDB_PROJECT") or "mem_agent", name=folder.absolute().name, key=run_key(folder),
        folder=folder, first=first, settings=config.to_mapping(),
    )
    tracking = Tracking(config.tracker, lambda: TRACKERS[config.tracker](run))
    try:
        tracking.wait(within_s)
    except (Exception, SystemExit) as error:
        if first == 0:
            raise MemAgentError(f"TRACKER={config.tracker} cannot begin: {one_line(error)}; put that right, or set "
                                "TRACKER=none") from error
        logger.warning("TRACKER=%s cannot go on: %s; metrics go to metrics.jsonl alone", config.tracker,
                       one_line(error))
        return None
    return tracking


def run_key(folder: Path) -> str:
    """By which trackers know the run in ``folder`` again."""
    path = folder / _KEY_FILE
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, orjson.dumps({"run": uuid.uuid4().hex[:12]}))
    return str(orjson.loads(path.read_bytes())["run"])


def one_line(error: BaseException) -> str:
    return reason_of(error, 300)
