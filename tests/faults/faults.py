"""The moments of a run in which a fault strikes, the observed commands that tell them, and the faults.

A command under drill stops at each moment until the drill lets it go, so a fault strikes in exactly its moment on a
machine of any speed::

    trainer                                  drill
    announce(UPDATE of rollout 3)   ---->    kill the engine, or nothing
    (waits)                         <----    go
    takes the step

``python -m mem_agent.tests.faults.faults train | eval`` is the product's own command with announcements before a few
of its methods; they go over a socket whose path is in the environment. The product has no hook for it.
"""

from __future__ import annotations

import functools
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from mem_agent.system.cli import stop_on_signals

if TYPE_CHECKING:
    from .drill import Scene

MARK = "MEM_AGENT_DRILL"
"""The variable with the socket's path. All that a drilled command starts inherits it, and is known by it."""


class Moment(StrEnum):
    SAMPLING = "sampling"
    JOURNAL = "rollout journalled"
    UPDATE = "optimizer step"
    SYNC = "weights to an engine"
    EVALUATION = "evaluation"
    SAVE = "checkpoint written, not yet named"


@dataclass(frozen=True)
class Announcement:
    moment: Moment
    rollout: int
    """From 0; -1 before the first."""
    count: int
    """How often this moment came in this phase of this rollout, from 1: the turn of a rollout."""


class Announcer:
    def __init__(self) -> None:
        self.rollout = -1
        self.asking = Moment.EVALUATION
        """What the answers of engines belong to."""
        self._counts: dict[Moment, int] = {}

    def begin(self, rollout: int | None) -> None:
        """A phase begins: the sampling of ``rollout``, or what follows it."""
        self.rollout = self.rollout if rollout is None else rollout
        self.asking = Moment.EVALUATION if rollout is None else Moment.SAMPLING
        self._counts.clear()

    def announce(self, moment: Moment) -> None:
        """Wait until the drill says go, or is gone."""
        self._counts[moment] = count = self._counts.get(moment, 0) + 1
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(os.environ[MARK])
            line.sendall(orjson.dumps(asdict(Announcement(moment, self.rollout, count))) + b"\n")
            line.recv(1)


class Hub:
    """The drill's end of the socket."""

    def __init__(self, path: Path) -> None:
        self._path, self._listener = path, socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)

    def next(self, pid: int, patience_s: float) -> tuple[Announcement, socket.socket] | None:
        """The next announcement, or None where the process ``pid`` has ended.

        Raises:
            TimeoutError: neither came: a hang.
        """
        ended = os.pidfd_open(pid)
        try:
            with selectors.DefaultSelector() as either:
                either.register(self._listener, selectors.EVENT_READ)
                either.register(ended, selectors.EVENT_READ)
                while ready := either.select(patience_s):
                    if all(key.fileobj == ended for key, _ in ready):
                        return None
                    line, _ = self._listener.accept()
                    with line.makefile("rb") as file:
                        told = file.readline()
                    if told:  # empty: killed in between
                        values = orjson.loads(told)
                        return Announcement(**values | {"moment": Moment(values["moment"])}), line
        finally:
            os.close(ended)
        raise TimeoutError(f"process {pid} neither announced anything nor ended in {patience_s:.0f} s")

    def close(self) -> None:
        self._listener.close()
        self._path.unlink()


def go(line: socket.socket) -> None:
    """Let the process at the other end go on, if it still lives."""
    with line, suppress(BrokenPipeError):
        line.sendall(b"g")


# --- observed commands -----------------------------------------------------------------------------------------------

def before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Have ``act`` called with the arguments of ``owner.name`` before it."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def observed(*args: Any, **options: Any) -> Any:
        act(*args, **options)
        return method(*args, **options)

    setattr(owner, name, observed)


def observed_train() -> int:
    """Rank 0 alone announces."""
    from mem_agent.checkpoints import checkpoint
    from mem_agent.rollout_client import Endpoint
    from mem_agent.serving.control import EngineClient
    from mem_agent.training import train
    from mem_agent.training.resume import Journal
    from mem_agent.training.rollouts import Rollouts
    from mem_agent.training.trainer import Trainer

    announcer = Announcer()

    def say(moment: Moment) -> Callable[..., None]:
        return lambda *_, **__: announcer.announce(moment)

    before(Rollouts, "rollout", lambda _, number, *rest: announcer.begin(number))
    before(Rollouts, "sync", lambda *_, **__: announcer.begin(None))
    before(Rollouts, "evaluate_policy", lambda *_: announcer.begin(None))
    before(Endpoint, "parse_response", lambda *_: announcer.announce(announcer.asking))
    before(Journal, "write", say(Moment.JOURNAL))
    before(EngineClient, "reload_weights", say(Moment.SYNC))
    before(Trainer, "train_step", say(Moment.UPDATE))
    before(checkpoint, "write_atomically", say(Moment.SAVE))
    return train.main()


def observed_eval() -> int:
    from mem_agent import eval_ruler_hqa
    from mem_agent.rollout_client import Endpoint

    announcer = Announcer()
    before(Endpoint, "parse_response", lambda *_: announcer.announce(Moment.EVALUATION))
    return eval_ruler_hqa.main()


# --- faults ----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Fault:
    name: str
    act: Callable[[Scene], None]
    code: int = 0
    """Exit code of the run; 0: it goes on."""
    afterwards: Callable[[Scene], None] = lambda scene: None
    """Done after the run ended, before the same command is given again."""


def kill(part: str) -> Callable[[Scene], None]:
    return lambda scene: scene.send(signal.SIGKILL, part)


def kill_trainer(scene: Scene) -> None:
    os.kill(scene.trainer, signal.SIGKILL)


def interrupt_twice(scene: Scene) -> None:
    for _ in range(2):
        os.kill(scene.trainer, signal.SIGINT)


def kill_everything(scene: Scene) -> None:
    for process in sorted(scene.processes(), key=lambda process: process.pid):  # parents first
        process.kill()


def damage_checkpoint(scene: Scene) -> None:
    """Cut the newest one's tensors in half."""
    number = int((scene.save / "latest_checkpointed_iteration.txt").read_text())
    file = scene.save / f"iter_{number:07d}" / "__0_0.distcp"
    os.truncate(file, file.stat().st_size // 2)


ENGINE, ROUTER = "mem_agent.serving.engine_server", "vllm::router"  # the router overwrites its command line
_KILLED = -signal.SIGKILL
ENGINE_KILLED = Fault("engine killed", kill(ENGINE))
ROUTER_KILLED = Fault("router killed", kill(ROUTER))
DISK_FULL = Fault("disk full", lambda scene: scene.fill(), 1)
TRAINER_KILLED = Fault("trainer killed", kill_trainer, _KILLED)
EVERYTHING_KILLED = Fault("everything killed at once", kill_everything, _KILLED)
CHECKPOINT_DAMAGED = Fault("trainer killed, checkpoint damaged", kill_trainer, _KILLED, damage_checkpoint)
INTERRUPTED = Fault("Ctrl-C, twice", interrupt_twice, 130)

MATRIX = [
    *((fault, moment) for moment in (Moment.SAMPLING, Moment.EVALUATION, Moment.UPDATE, Moment.SYNC, Moment.SAVE)
      for fault in (ENGINE_KILLED, ROUTER_KILLED)),
    *((fault, moment) for moment in Moment for fault in (TRAINER_KILLED, EVERYTHING_KILLED, INTERRUPTED)),
    *((DISK_FULL, moment) for moment in Moment),
    (CHECKPOINT_DAMAGED, Moment.SAMPLING),
]


if __name__ == "__main__":
    stop_on_signals()
    sys.exit({"train": observed_train, "eval": observed_eval}[sys.argv.pop(1)]())
