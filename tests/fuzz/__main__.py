"""``python -m mem_agent.tests.fuzz [TARGET ...] --each 60 --jobs 2``: hostile input for every reader of the pack.

Targets (``--list``) take turns until each had ``--each`` minutes of CPU, or ``--minutes`` are over; another call goes
on from there (``hours.py``). Each is searched in a process of its own, forked off one that has imported the pack and
traces it; a process that an input has ended is followed by another one until the turn is over. The folder keeps the
corpus as well, and every input with a fault::

    FOLDER/corpus/TARGET/*                   inputs that reached something new
    FOLDER/found/TARGET/ValueError_in_...@*  one input of each fault; timeout-*, oom-*, slow-unit-* beside them

A fault is one line here and a file. One that is mended goes into ``tests/fuzz/found/TARGET/``, where the tests read it
for ever. Exit code 1 where anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from mem_agent.system.errors import MemAgentError
from mem_agent.system.one_line_errors import one_line_errors
from mem_agent.system.signals import stop_if_asked, stop_on_signals
from mem_agent.tests.fuzz.hours import Hours
from mem_agent.tests.fuzz.target import Target

_WORTH_A_START_S = 3
_TURN_S = 600
_SLOW = ("timeout-", "slow-unit-")
_ENDED = (*_SLOW, "oom-", "crash-", "leak-")
"""What libFuzzer calls the inputs that it writes itself."""


class NoFuzzer(MemAgentError):
    """What the search needs is not installed."""


@one_line_errors("what was found is in the folder, and the same command goes on from its corpus")
def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    stop_on_signals()
    with tempfile.TemporaryDirectory(prefix="mem-agent-fuzz-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder  # of the searches as well, which libFuzzer ends without their cleaning up
        return _search(args)


def _search(args: argparse.Namespace) -> int:
    targets = _traced(args.folder, args.targets)
    if args.list:
        print("\n".join(target.name for target in targets))
        return 0
    hours, end = Hours(args.folder, targets, 60 * args.each), time.monotonic() + 60 * args.minutes
    with ThreadPoolExecutor(args.jobs) as jobs:
        found = sum(jobs.map(lambda _: _take_turns(hours, end, args), range(args.jobs)))
    print(f"{hours.table()}\n{found} inputs with faults in {args.folder}/found")
    return int(found > 0)


def _take_turns(hours: Hours, end: float, args: argparse.Namespace) -> int:
    """One target after the other; how many inputs with faults there were."""
    found = 0
    while (left := end - time.monotonic()) >= _WORTH_A_START_S and (target := hours.take()) is not None:
        seconds, faults = 0.0, 0
        try:
            seconds, faults = _searched(target, min(left, _TURN_S), args)
        finally:
            hours.give_back(target, seconds, faults > 0)
        found += faults
    return found


def _traced(folder: Path, names: Sequence[str]) -> list[Target]:
    """The targets, all they import traced. Raises NoFuzzer."""
    try:
        import atheris
    except ImportError:
        raise NoFuzzer("atheris is not installed; pip install --no-deps -r requirements/fuzz.txt") from None
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "imports.log").open("w") as log, contextlib.redirect_stderr(log):
        with atheris.instrument_imports(include=["mem_agent"]):
            from mem_agent.tests.fuzz.targets import TARGETS

            if unknown := [name for name in names if name not in TARGETS]:
                raise NoFuzzer(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
            targets = [TARGETS[name] for name in names or TARGETS]
            for target in targets:
                with contextlib.suppress(Exception):  # only what it imports when it is first called matters here
                    target.run(target.seeds[0])
    return targets


def _searched(target: Target, turn_s: float, args: argparse.Namespace) -> tuple[float, int]:
    """(CPU seconds, inputs with faults) of a turn."""
    from mem_agent.tests.fuzz.search import SLOW_S, Bounds, Places, confirmed, search

    places, bounds = Places.of(args.folder, target), Bounds(args.memory, args.limit)
    before, seconds = set(places.found.iterdir()), 0.0
    end = time.monotonic() + turn_s
    while (left := int(end - time.monotonic())) >= _WORTH_A_START_S:
        process = multiprocessing.get_context("fork").Process(target=search, args=(target, places, left, bounds))
        process.start()
        try:
            seconds += _cpu_seconds(process)
        finally:
            process.kill()
            process.join()
    for path in sorted(set(places.found.iterdir()) - before):
        if path.name.startswith(_SLOW) and not confirmed(target, path, SLOW_S):
            path.unlink()
        elif path.name.startswith(_ENDED):
            print(f"{target.name}: {path.name.partition('-')[0]} of {path.stat().st_size} bytes; {path}", flush=True)
    return seconds, len(set(places.found.iterdir()) - before)


def _cpu_seconds(process: multiprocessing.process.BaseProcess) -> float:
    """That it has taken by its end, with those of the processes that it started; to a second."""
    assert process.pid is not None
    seconds, watched = 0.0, psutil.Process(process.pid)
    while process.is_alive():
        stop_if_asked()
        with contextlib.suppress(psutil.Error):
            seconds = max(seconds, sum(watched.cpu_times()[:4]))  # of a process that has ended they are 0
        process.join(1.0)
    return seconds


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m mem_agent.tests.fuzz", description=description)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="those of --list (all)")
    parser.add_argument("--list", action="store_true", help="name the targets and end")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of this call, at most (no bound)")
    parser.add_argument("--each", type=float, default=60.0, help="minutes of CPU for each target, over all calls (60)")
    parser.add_argument("--jobs", type=int, default=2, help="targets searched at once (2)")
    parser.add_argument("--folder", type=Path, default=Path("runs/fuzz"), help="of corpus and faults (runs/fuzz)")
    parser.add_argument("--memory", type=int, default=3072, help="MB that a process may take (3072)")
    parser.add_argument("--limit", type=int, default=20, help="seconds that an input may take (20)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
