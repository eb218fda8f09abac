"""The whole matrix: every fault in every moment in which it can fall, with one and two engines and trainer processes.

Faults are chained: a run takes one in each rollout, and one that falls ends its chain; the rest goes into another run.
So a page always has every fault, each with how it was survived, or how not. slime and vime, where their checkouts and
their environment are there, take those of ``host_drill.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import psutil
import pytest

from mem_agent.system.markdown import markdown_table
from mem_agent.tests.helpers.host_checkout import HOSTS, Host

from . import faults
from .counted import counted
from .drill import OBSERVED, InOrder, Result, Strike, carry_out, evaluating, result_of, unbroken
from .eval_drill import EVAL_FAULTS, eval_drill
from .faults import Fault
from .host_drill import host_rows
from .moments import Moment
from .scene import can_mount, in_module, scene

FILES = ("__0_0.distcp", "__0_1.distcp", "common.pt", "metadata.json", ".metadata")
_TURN = 9


@dataclass(frozen=True)
class Shape:
    engines: int
    ranks: int

    def __str__(self) -> str:
        return f"engines {self.engines}, trainer processes {self.ranks}"


SHAPES = (Shape(1, 1), Shape(2, 1), Shape(1, 2), Shape(2, 2))

_BUSY = (Moment.SAMPLING, Moment.EVALUATION)
_QUIET = (Moment.JOURNAL, Moment.UPDATE, Moment.SYNC, Moment.SAVE)
_SERVERS = (
    faults.ENGINE_KILLED, faults.CORE_KILLED, faults.ENGINE_GUARD_KILLED, faults.ROUTER_KILLED,
    faults.ROUTER_GUARD_KILLED,
)
_STOPPED = (faults.ENGINE_STOPPED, faults.ROUTER_STOPPED)
_ENDS = (faults.TRAINER_KILLED, faults.EVERYTHING_KILLED, faults.INTERRUPTED)


def matrix() -> Iterator[tuple[Fault, Moment]]:
    """Each fault with the moments that make a difference to it."""
    for moment in (*_BUSY, Moment.UPDATE, Moment.SYNC, Moment.SAVE):
        yield from ((fault, moment) for fault in _SERVERS)
    for moment in (Moment.UPDATE, Moment.SAMPLING, Moment.EVALUATION, Moment.SYNC):
        yield from ((fault, moment) for fault in _STOPPED)
    for fault in (faults.CONNECTIONS_CUT, faults.ENGINE_ERRORS, faults.ENGINE_SLOW):
        yield from ((fault, moment) for moment in _BUSY)
    yield from ((fault, Moment.SYNC) for fault in (*faults.ODD_RELOADS, faults.RELOADS_FAIL))
    for moment in (*_BUSY, *_QUIET, Moment.START):
        yield faults.DISK_FULL, moment
    for moment in (Moment.START, Moment.LOAD, *_BUSY, *_QUIET):
        yield from ((fault, moment) for fault in _ENDS)
    yield faults.TMP_FULL, Moment.START
    yield faults.SHM_FULL, Moment.UPDATE
    for moment in (*_BUSY, *_QUIET, Moment.LOAD):
        yield faults.RANK_KILLED, moment
    yield faults.RANK_GUARD_KILLED, Moment.SAMPLING
    yield faults.TERMINATED, Moment.SAMPLING
    yield faults.JOURNAL_TORN, Moment.SAVE
    for file in FILES:
        yield faults.checkpoint_torn(file), Moment.SAMPLING
    for fault in (*_SERVERS, *_STOPPED, *faults.ODD_STARTS, faults.ENGINE_SLOW):
        yield fault, Moment.START


def strikes(shape: Shape, chosen: Sequence[tuple[Fault, Moment]]) -> list[Strike]:
    """One in each rollout; one at a start or a load needs one before it that ends the run, and stands behind it."""
    rollouts, found = count(1), []
    for fault, moment in chosen:
        if (fault.needs_disks and not can_mount()) or (fault.needs_ranks and shape.ranks == 1):
            continue
        at_start = moment in (Moment.START, Moment.LOAD)
        found.append(Strike(fault, moment, -1 if at_start else next(rollouts), _TURN if moment in _BUSY else 1))
    return found


Cells = dict[tuple[str, str], str]


def chain(shape: Shape, chosen: Sequence[Strike]) -> Cells:
    """What became of each; runs are compared with unbroken ones of the same shape and length."""
    cells: Cells = {}
    waiting = list(chosen)

    def note(strike: Strike, how: str) -> None:
        cells[key(strike)] = how
        print(f"{shape}: {strike.fault.name}, {strike.moment}: {how}", file=sys.stderr, flush=True)

    while waiting:
        plan = InOrder(waiting)
        more = {"NUM_ROLLOUT": max(strike.rollout for strike in waiting) + 2, "NUM_ENGINES": shape.engines,
                "TRAIN_PROCS": shape.ranks, "MEM_REQUEST_TIMEOUT": 60, "ENGINE_START_TIMEOUT": 240,
                "KEEP_CHECKPOINTS": 4}
        whole, fell, differing = _whole(more), "", ""
        with scene(can_mount()) as place:
            try:
                outcomes = carry_out(place, evaluating(place, **more), plan, in_module(OBSERVED))
                differing = whole.differences(result_of(place))
            except (AssertionError, TimeoutError, psutil.Error) as error:
                fell = _line(error)
                outcomes = plan.survived
        if differing:
            print(f"{shape}: differs {differing}", file=sys.stderr, flush=True)
        verdict = "NOT COMPARED: " if fell else "DIFFERS: " if differing else ""
        for outcome in outcomes:
            note(outcome.strike, verdict + outcome.how)
        struck = len(waiting) - len(plan.waiting)
        if fell:
            note(waiting[max(0, struck - 1)], f"FELL: {fell}")
        elif plan.waiting:
            note(plan.waiting[0], "FELL: its moment never came")
            struck += 1
        waiting = waiting[max(1, struck):]
    return cells


_known: dict[str, Result] = {}


def _whole(more: dict[str, int]) -> Result:
    if str(more) not in _known:
        with scene(can_mount()) as place:
            _known[str(more)] = unbroken(place, evaluating(place, **more))
    return _known[str(more)]


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (text if len(text) < 800 else f"{text[:300]} [...] {text[-450:]}") or type(error).__name__


def key(strike: Strike) -> tuple[str, str]:
    return strike.fault.name, str(strike.moment)


def _counted(shape: Shape, moment: Moment) -> str:
    try:
        return counted(moment, NUM_ENGINES=shape.engines, TRAIN_PROCS=shape.ranks)
    except (AssertionError, TimeoutError) as error:
        return f"FELL: {_line(error)}"


def names() -> set[str]:
    """What ``only`` may name a part of."""
    found = [*(fault for fault, _ in matrix()), faults.ENGINE_GARBAGE, *EVAL_FAULTS]
    return {fault.name for fault in found} | {host.name for host in HOSTS}


def suite(shapes: Sequence[Shape], only: str = "") -> tuple[str, bool]:
    """(the page, whether everything was survived). ``only``: a part of faults' names, or of a host's."""
    chosen = [(fault, moment) for fault, moment in matrix() if only in fault.name]
    by_shape = {shape: chain(shape, strikes(shape, chosen)) for shape in shapes}
    rows = [
        [fault.name, str(moment), *(cells.get((fault.name, str(moment)), "-") for cells in by_shape.values())]
        for fault, moment in chosen
    ]
    if only in faults.ENGINE_GARBAGE.name:
        for moment in _BUSY:
            garbage = [_counted(shape, moment) for shape in shapes]
            rows.append([faults.ENGINE_GARBAGE.name, str(moment), *garbage])
    asking = [fault for fault in EVAL_FAULTS if only in fault.name]
    asked = [[fault, how] for fault, how in (eval_drill(asking) if asking else [])]
    header = ["fault", "moment", *map(str, shapes)]
    page = markdown_table(header, rows, header)
    page += "\n\n" + markdown_table(["fault in an evaluation", "survived how"], asked, ["fault in an evaluation",
                                                                                         "survived how"])
    header, hosts = ["host", "fault", "moment", "survived how"], [host for host in HOSTS if only in host.name]
    page += "\n\n" + markdown_table(header, [row for host in hosts for row in _hosted(host)], header)
    nothing = not (any(by_shape.values()) or len(rows) > len(chosen) or asked or hosts)
    return page, not nothing and not any(word in page for word in ("FELL", "DIFFERS", "NOT COMPARED"))


def _hosted(host: Host) -> list[list[str]]:
    try:
        return [[host.name, *row] for row in host_rows(host)]
    except pytest.skip.Exception as reason:
        return [[host.name, "all", "-", f"not run: {reason}"]]
    except (AssertionError, TimeoutError, psutil.Error) as error:
        return [[host.name, "one of them", "-", f"FELL: {_line(error)}"]]
