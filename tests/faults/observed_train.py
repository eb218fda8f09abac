"""``mem-agent train``, whose boundaries announce themselves: ``python -m mem_agent.tests.faults.observed_train``.

The program is the product's own. Around a few of its methods stands an announcement (``moments.py``), and engines get
a middleware that answers oddly on order (``odd_answers.py``). Rank 0 alone announces; other ranks are not observed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from mem_agent.client.engine_api import Endpoint
from mem_agent.serving import engine, fleet
from mem_agent.system.processes import ChildProcess
from mem_agent.tests.faults.moments import Announcer, Moment
from mem_agent.training import train, watch
from mem_agent.training.journal import Journal
from mem_agent.training.progress import Phase

MIDDLEWARE = ["--middleware", "mem_agent.tests.faults.odd_answers.OddAnswers"]


def before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Have ``act`` called with the arguments of ``owner.name`` before it."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def observed(*args: Any, **options: Any) -> Any:
        act(*args, **options)
        return method(*args, **options)

    setattr(owner, name, observed)


def odd_on_order(owner: Any) -> None:
    command = owner.engine_command
    owner.engine_command = lambda *args: command(*args) + MIDDLEWARE


class Observer:
    def __init__(self) -> None:
        self.announcer = Announcer()
        self.phase = Phase.STARTING

    def observe(self) -> None:
        before(watch.Watch, "enter", self._enter)
        before(fleet, "wait_until_healthy", self._started)
        before(train, "resume", self._resume)
        before(Endpoint, "parse_response", self._answered)
        before(Journal, "write", self._say(Moment.JOURNAL))
        before(engine.EngineClient, "reload_weights", self._say(Moment.SYNC))
        odd_on_order(engine)

    def _say(self, moment: Moment) -> Callable[..., None]:
        return lambda *_, **__: self.announcer.announce(moment)

    def _started(self, process: ChildProcess, *_: Any) -> None:
        if process.name.startswith("engine"):
            self.announcer.announce(Moment.START)

    def _enter(self, watching: watch.Watch, phase: Phase, number: int | None = None) -> None:
        self.phase = phase
        self.announcer.begin(number)

    def _answered(self, *_: Any) -> None:
        sampling = self.phase is Phase.SAMPLING
        self.announcer.announce(Moment.SAMPLING if sampling else Moment.EVALUATION)

    def _resume(self, *_: Any) -> None:
        """Not before: these imports take seconds, which the product spends while engines start."""
        from mem_agent.checkpoints import checkpoint
        from mem_agent.training.trainer import Trainer

        before(Trainer, "train_step", self._say(Moment.UPDATE))
        before(checkpoint, "_publish", self._say(Moment.SAVE))
        self.announcer.announce(Moment.LOAD)


if __name__ == "__main__":
    Observer().observe()
    sys.exit(train.main())
