"""A pocket run of hours under random faults, and whether anything of it grows.

Faults come every 10 to 20 rollouts, drawn by a seed: which fault, in which moment, at which turn. So a soak that falls
is repeated by its seed, up to what hangs on the clock: how many rollouts fit into its hours.

In the second half come only faults that leave every process alive (``LASTING``): in a life of some dozen rollouts
growth looks like the warm-up of allocators and of caches by shape, which takes a hundred. At the beginning of each
rollout every process is measured; ``slope.py`` says what grows. Processes are told apart by what they are (``ROLES``),
and each start of one is a stratum of its own.
"""

from __future__ import annotations

import contextlib
import io
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psutil

from mem_agent.system.atomic_file import appending
from mem_agent.system.markdown import markdown_table

from . import faults
from .drill import OBSERVED, Outcome, Strike, carry_out, settings
from .faults import Fault
from .moments import Announcement, Moment
from .scene import ENGINE, ENGINE_CORE, GUARD, RANK, ROUTER, SHM, Scene, can_mount, in_module, scene
from .slope import Verdict, verdict

EVERY = (10, 20)
"""Rollouts between two faults."""
TURNS = 24
ROLES = {
    GUARD: "guard", "resource_tracker": "tracker", ENGINE_CORE: "engine core", ENGINE: "engine", ROUTER: "router",
    "vllm::router": "router", OBSERVED: "trainer", RANK: "rank",
}
"""By a part of the command line, the first that fits; router and, where it can, engine core write one of their own."""
MB = 2**20
FLOORS = {"memory, MB": 20.0, "handles": 4.0, "threads": 2.0, "processes": 1.0, "disk, MB": 5.0}
"""Growth below this is none: an arena of the allocator, a pool that opens on demand."""
SURVIVABLE = (
    (faults.ENGINE_KILLED, Moment.SAMPLING), (faults.CORE_KILLED, Moment.SAMPLING),
    (faults.ENGINE_KILLED, Moment.UPDATE), (faults.ENGINE_KILLED, Moment.SYNC),
    (faults.ENGINE_GUARD_KILLED, Moment.SAMPLING), (faults.ENGINE_STOPPED, Moment.UPDATE),
    (faults.ROUTER_KILLED, Moment.SAMPLING), (faults.ROUTER_STOPPED, Moment.UPDATE),
    (faults.CONNECTIONS_CUT, Moment.SAMPLING), (faults.ENGINE_ERRORS, Moment.SAMPLING),
    (faults.ENGINE_SLOW, Moment.SAMPLING), (faults.TRAINER_KILLED, Moment.UPDATE),
    (faults.JOURNAL_TORN, Moment.UPDATE), (faults.EVERYTHING_KILLED, Moment.SYNC),
    (faults.INTERRUPTED, Moment.SAMPLING), (faults.TRAINER_KILLED, Moment.SAVE),
)
LASTING = tuple(
    (fault, Moment.SAMPLING) for fault in (faults.CONNECTIONS_CUT, faults.ENGINE_ERRORS, faults.ENGINE_SLOW)
)
TIME_IS_OVER = Fault("the hours are over", faults.TERMINATED.act, faults.TERMINATED.answer, faults.TERMINATED.codes)


@dataclass
class Soak:
    """The plan of a soak (``drill.Plan``), which measures as it goes."""

    place: Scene
    seconds: float
    seed: int
    over: bool = False
    rollouts: int = -1
    survived: list[Outcome] = field(default_factory=list)
    kept: io.FileIO | None = None
    """Where each sample is written as it is taken, a line of JSON each."""
    samples: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """(role, measure) -> process -> (rollout, value)."""

    def __post_init__(self) -> None:
        self._half = self._ends = float("inf")
        """The hours begin with the first rollout."""
        self._strikes = strikes(self.seed)
        self._next = next(self._strikes)

    def due(self, told: Announcement) -> Strike | None:
        if told.moment is Moment.SAMPLING and told.rollout > self.rollouts:
            if self.rollouts < 0:
                self._half, self._ends = (time.monotonic() + part * self.seconds for part in (0.5, 1))
            self.rollouts = told.rollout
            self._measure()
            if time.monotonic() > self._ends:
                self.over = True
                return Strike(TIME_IS_OVER, Moment.SAMPLING, told.rollout)
            if time.monotonic() > self._half:
                self._half = float("inf")
                self._strikes = strikes(self.seed, LASTING, told.rollout)
                self._next = next(self._strikes)
        if not self._next.is_due(told):
            return None
        due, self._next = self._next, next(self._strikes)
        return due

    def _measure(self) -> None:
        alive = self.place.processes()
        for process in alive:
            with contextlib.suppress(psutil.Error):
                role = role_of(_line(process), _line(process.parent()))
                self._add(role, "memory, MB", process.pid, memory(process) / MB)
                self._add(role, "handles", process.pid, process.num_fds())
                self._add(role, "threads", process.pid, process.num_threads())
        self._add("run", "processes", 0, len(alive))
        kept = [self.place.save.glob(pattern) for pattern in ("iter_*/*", "rollouts/*", ".*/*")]
        self._add("checkpoints and journal", "disk, MB", 0, sum(_size(file) for files in kept for file in files) / MB)
        for name, folder in (("TMPDIR", self.place.folder / "tmp"), *[(SHM, Path(SHM))] * bool(self.place.holder)):
            self._add(name, "disk, MB", 0, sum(map(_size, self.place.inside(folder).rglob("*"))) / MB)

    def _add(self, role: str, measure: str, process: int, value: float) -> None:
        self.samples[role, measure][process].append((self.rollouts, value))
        if self.kept is not None:
            line = {"of": role, "what": measure, "process": process, "rollout": self.rollouts, "value": value}
            self.kept.write(orjson.dumps(line) + b"\n")

    def verdicts(self) -> dict[tuple[str, str], Verdict]:
        return {key: verdict(list(strata.values()), FLOORS[key[1]]) for key, strata in sorted(self.samples.items())}


def strikes(seed: int, among: Sequence[tuple[Fault, Moment]] = SURVIVABLE, after: int = 0) -> Iterator[Strike]:
    """Behind rollout ``after``, without an end; a function of the seed."""
    draw, rollout = random.Random(seed), after
    while True:
        rollout += draw.randint(*EVERY)
        fault, moment = draw.choice(among)
        yield Strike(fault, moment, rollout, draw.randint(1, TURNS) if moment is Moment.SAMPLING else 1)


def role_of(line: str, parent: str) -> str:
    """By its command line and that of its parent: an engine core that did not write its own has its API server's. A
    process of no known role has a role of its own, since two in one hide each other's growth.
    """
    role = next((role for part, role in ROLES.items() if part in line), line.partition(" ")[0])
    return "engine core" if role == "engine" and GUARD not in parent else role


def memory(process: psutil.Process) -> int:
    """Bytes of its own. Pages of files, libraries above all, are not among them: what of those counts for a process
    (RSS, PSS, USS) changes with whoever else on the machine has them. Raises psutil.Error.
    """
    info = process.memory_info()
    return int(info.rss - info.shared)


def _line(process: psutil.Process | None) -> str:
    return " ".join(process.cmdline()) if process is not None else ""


def _size(file: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_size if file.is_file() else 0
    return 0


def soak(hours: float, seed: int, samples: Path | None = None, **more: object) -> tuple[str, bool]:
    """(the page, whether all is flat). ``samples``: a file for what is measured, a line of JSON a sample."""
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(appending(samples)) if samples is not None else None
        place = stack.enter_context(scene(can_mount()))
        plan = Soak(place, hours * 3600, seed, kept=kept)
        env = settings(place, NUM_ROLLOUT=10**6, SAVE_INTERVAL=5, KEEP_TRAJECTORIES=0, ENGINE_RESTARTS=10**6,
                       LR=1e-6, **more)
        outcomes = carry_out(place, env, plan, in_module(OBSERVED))
    verdicts = plan.verdicts()
    well = all(v.flat is not False for v in verdicts.values())
    return page(outcomes, verdicts, plan.rollouts + 1, hours, seed), well


def page(
    outcomes: list[Outcome], verdicts: Mapping[tuple[str, str], Verdict], rollouts: int, hours: float, seed: int
) -> str:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for outcome in outcomes:
        counts[f"{outcome.strike.fault.name}: {outcome.strike.moment}", outcome.how] += 1
    words = {True: "flat", False: "GROWS", None: "too few samples"}
    measured = [
        [*key, v.samples, f"{v.median:.1f}", f"{v.slope:+.3f}", f"{v.growth:+.1f}", f"{v.z:+.1f}", words[v.flat]]
        for key, v in verdicts.items()
    ]
    header = ["of", "what", "samples", "median", "a rollout", "growth", "z", "verdict"]
    struck = [[what, how, str(n)] for (what, how), n in sorted(counts.items())]
    grows = [f"{role} {measure}" for (role, measure), v in verdicts.items() if v.flat is False]
    ended = "flat" if any(v.flat for v in verdicts.values()) else "too short to say"
    ended = f"grows: {', '.join(grows)}" if grows else ended
    words_of = {"of", "what", "verdict", "fault", "survived how"}
    return "\n".join([
        f"{rollouts} rollouts and {len(outcomes)} faults in {hours:g} hours, seed {seed}: {ended}", "",
        markdown_table(header, measured, words_of), "",
        markdown_table(["fault", "survived how", "times"], struck, words_of),
    ])
