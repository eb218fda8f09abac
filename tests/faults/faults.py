"""The faults of a drill: what is done, and how the run may answer.

A run answers a fault in one of four ways (``Answer``). Whichever it is, what the run has in the end is what it would
have without the fault, bit for bit; only ``COUNTED`` leaves trajectories out, and then says how many.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from mem_agent.tests.helpers.patience import wait_for

from .moments import Moment
from .odd_answers import GENERATE, RELOAD
from .scene import ENGINE, RANK, ROUTER, SHM, Scene


class Answer(StrEnum):
    GOES_ON = "goes on"
    ENDS = "ends with one line; the same command continues"
    KILLED = "is gone; the same command continues"
    COUNTED = "goes on; what was lost is masked and counted"


@dataclass(frozen=True)
class Fault:
    name: str
    act: Callable[[Scene], None]
    answer: Answer = Answer.GOES_ON
    codes: tuple[int, ...] = (1,)
    """Exit codes where it ends."""
    afterwards: Callable[[Scene], None] = lambda scene: None
    """What is done to what it left, before the same command is given again."""
    needs_disks: bool = False
    needs_ranks: bool = False

    def answer_in(self, moment: Moment) -> Answer:
        """A server that dies of its start is none: the run says why, and ends."""
        at_start = moment is Moment.START and self.answer is Answer.GOES_ON
        return Answer.ENDS if at_start and self in STOP_SERVERS else self.answer


# --- acts ------------------------------------------------------------------------------------------------------------

def send(number: signal.Signals, processes: Iterable[psutil.Process]) -> None:
    """To all of them, or the fault would be none."""
    processes = list(processes)
    assert processes, "there is nothing to hurt"
    for process in processes:
        process.send_signal(number)


def started(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """What there is, once there is any: it may just be starting, and the trainer stands still meanwhile."""
    wait_for(find)
    return find()


def to_all(number: signal.Signals, find: Callable[[Scene], list[psutil.Process]]) -> Callable[[Scene], None]:
    return lambda scene: send(number, started(lambda: find(scene)))


def api_server(scene: Scene) -> list[psutil.Process]:
    """Of the first engine."""
    return started(lambda: scene.servers(ENGINE))[:1]


def kill_api_server(scene: Scene) -> None:
    send(signal.SIGKILL, api_server(scene))


def kill_engine_core(scene: Scene) -> None:
    [server] = api_server(scene)
    send(signal.SIGKILL, started(lambda: scene.engine_cores(server)))


def stop_engine(scene: Scene) -> None:
    [server] = api_server(scene)
    send(signal.SIGSTOP, [server, *server.children()])


def kill_everything(scene: Scene) -> None:
    """Guards first, so that nothing of the run sees another part of it die."""
    guards = scene.guards("")
    send(signal.SIGKILL, [*guards, *(p for p in scene.processes() if p not in guards)])


def interrupt_twice(scene: Scene) -> None:
    os.kill(scene.trainer, signal.SIGINT)
    os.kill(scene.trainer, signal.SIGINT)


def order(kind: str, times: int, call: str = GENERATE) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        for number in range(times):
            (scene.folder / "orders" / f"{call}.{kind}.{number}").touch()

    return act


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def newest_checkpoint(scene: Scene) -> Path:
    number = int((scene.save / "latest_checkpointed_iteration.txt").read_text())
    return scene.save / f"iter_{number:07d}"


def tear_journal(scene: Scene) -> None:
    cut(max((scene.save / "rollouts").glob("rollout_*.json")))


def kill_trainer(scene: Scene) -> None:
    os.kill(scene.trainer, signal.SIGKILL)


# --- the table -------------------------------------------------------------------------------------------------------

_GONE = {"answer": Answer.KILLED, "codes": (-signal.SIGKILL,)}

ENGINE_KILLED = Fault("engine killed", kill_api_server)
CORE_KILLED = Fault("engine core killed", kill_engine_core)
ENGINE_STOPPED = Fault("engine stopped", stop_engine)
ENGINE_GUARD_KILLED = Fault("engine's guard killed", to_all(signal.SIGKILL, lambda s: s.guards(ENGINE)[:1]))
ROUTER_KILLED = Fault("router killed", to_all(signal.SIGKILL, lambda s: s.servers(ROUTER)))
ROUTER_GUARD_KILLED = Fault("router's guard killed", to_all(signal.SIGKILL, lambda s: s.guards(ROUTER)))
ROUTER_STOPPED = Fault("router stopped", to_all(signal.SIGSTOP, lambda s: s.servers(ROUTER)))
CONNECTIONS_CUT = Fault("connections cut", order("cut", 3))
ENGINE_ERRORS = Fault("engine answers HTTP 500", order("error", 3))
ENGINE_SLOW = Fault("engine slow", order("slow", 3))
ENGINE_GARBAGE = Fault("engine answers garbage", order("garbage", 1), Answer.COUNTED)
_ODD = {"error": "is HTTP 500", "cut": "is cut", "garbage": "is garbage"}
ODD_STARTS = tuple(Fault(f"engine's first answer {is_odd}", order(kind, 1), Answer.ENDS)
                   for kind, is_odd in _ODD.items())
ODD_RELOADS = tuple(Fault(f"engine's answer to new weights {is_odd}", order(kind, 1, RELOAD))
                    for kind, is_odd in (_ODD | {"slow": "is slow"}).items())
RELOADS_FAIL = Fault("engine refuses new weights twice", order("error", 2, RELOAD))
DISK_FULL = Fault("disk full", lambda s: s.fill("save"), Answer.ENDS, needs_disks=True)
TMP_FULL = Fault("/tmp full", lambda s: s.fill("tmp"), needs_disks=True)
SHM_FULL = Fault("/dev/shm full", lambda s: s.fill(SHM), Answer.ENDS, needs_disks=True)
RANK_KILLED = Fault("another rank killed", to_all(signal.SIGKILL, lambda s: s.servers(RANK)), Answer.ENDS,
                    needs_ranks=True)
RANK_GUARD_KILLED = Fault("another rank's guard killed", to_all(signal.SIGKILL, lambda s: s.guards(RANK)), Answer.ENDS,
                          needs_ranks=True)
TRAINER_KILLED = Fault("trainer killed", kill_trainer, **_GONE)
JOURNAL_TORN = Fault("trainer killed, journal torn", kill_trainer, afterwards=tear_journal, **_GONE)
EVERYTHING_KILLED = Fault("everything killed at once", kill_everything, **_GONE)
INTERRUPTED = Fault("Ctrl-C, twice", interrupt_twice, Answer.ENDS, (130,))
TERMINATED = Fault("SIGTERM", lambda s: os.kill(s.trainer, signal.SIGTERM), Answer.ENDS, (130,))

STOP_SERVERS = (
    ENGINE_KILLED, CORE_KILLED, ENGINE_STOPPED, ENGINE_GUARD_KILLED, ROUTER_KILLED, ROUTER_STOPPED,
    ROUTER_GUARD_KILLED,
)


def checkpoint_torn(file: str) -> Fault:
    """The newest checkpoint is cut in half in one file while nothing runs."""
    def tear(scene: Scene) -> None:
        cut(newest_checkpoint(scene) / file)

    return Fault(f"trainer killed, {file} torn", kill_trainer, afterwards=tear, **_GONE)
