"""One training run that takes a list of faults, each in its moment, and what it has to show for it in the end.

::

    with scene(can_mount()) as place:
        outcomes = drill(place, settings, [Strike(ENGINE_KILLED, Moment.SAMPLING, rollout=1, count=9), ...])
        assert result_of(place) == result_of(unbroken)

The run goes on, or ends and is started again by the same command; that is repeated until it has ended well. Of every
end is asked: a documented code, one line that says why, no process left, nothing left in TMPDIR and /dev/shm.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

import psutil

from mem_agent.pocket.prepare import prepare
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.training.run_log import read_metrics

from .faults import EVERYTHING_KILLED, Answer, Fault
from .moments import MARK, Announcement, Hub, Moment, go
from .odd_answers import ORDERS
from .scene import Scene, in_module

START = Path(__file__).parents[2] / "pocket" / "start"
OBSERVED = "mem_agent.tests.faults.observed_train"


@dataclass(frozen=True)
class Strike:
    fault: Fault
    moment: Moment
    rollout: int
    """From 0; the first time that the moment comes in this rollout or a later one."""
    count: int = 1
    """How often the moment has to come in the rollout: its n-th turn."""

    def is_due(self, told: Announcement) -> bool:
        return told.moment is self.moment and told.rollout >= self.rollout and told.count >= self.count

    @property
    def answer(self) -> Answer:
        return self.fault.answer_in(self.moment)


@dataclass(frozen=True)
class Outcome:
    strike: Strike
    how: str
    """The run survived it: in words."""

    def __str__(self) -> str:
        return f"rollout {self.strike.rollout}, {self.strike.moment}: {self.strike.fault.name}: {self.how}"


def settings(scene: Scene, **more: object) -> dict[str, str]:
    """Of a pocket run of eight trajectories a rollout; the data are made."""
    data = scene.folder / "data"
    if not data.exists():
        prepare(data, 1)
    pocket = {
        "HF_CKPT": START, "TRAIN_DATA": data / "train.jsonl", "SAVE_PATH": scene.folder / "save",
        "MEM_PROMPTS": START.parent / "prompts.yaml", "MEM_CHUNK_TOKENS": 32, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 12,
        "MEM_MAX_QUESTION": 16, "ENGINE_MAX_LEN": 512, "ENGINE_KV_BYTES": 2**26, "ENGINE_BLOCK_SIZE": 32,
        "NUM_ROLLOUT": 4, "ROLLOUT_BATCH_SIZE": 2, "N_SAMPLES_PER_PROMPT": 4, "LR": 3e-4, "KL_COEF": 0.01,
        "SAVE_INTERVAL": 1, "KEEP_CHECKPOINTS": 3, "ENGINE_RESTARTS": 100,
        "OMP_NUM_THREADS": 1, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": 0, "TMPDIR": scene.folder / "tmp",
        MARK: scene.mark, ORDERS: scene.folder / "orders",
    }
    return {**os.environ, **{name: str(value) for name, value in (pocket | more).items()}}


def evaluating(scene: Scene, **more: object) -> dict[str, str]:
    """The settings of such a run that asks four questions after each rollout."""
    return settings(scene, EVAL_INTERVAL=1, EVAL_DATA=f"{scene.folder / 'data' / 'train.jsonl'}@[0:4]", **more)


class Plan(Protocol):
    over: bool
    """The run need not be started again, however it ended."""
    survived: list[Outcome]
    """So far."""

    def due(self, told: Announcement) -> Strike | None:
        """What strikes now."""


class InOrder:
    """These strikes, one after the other."""

    def __init__(self, strikes: Sequence[Strike]) -> None:
        self.waiting = deque(strikes)
        self.over = False
        self.survived: list[Outcome] = []

    def due(self, told: Announcement) -> Strike | None:
        return self.waiting.popleft() if self.waiting and self.waiting[0].is_due(told) else None


def drill(scene: Scene, env: Mapping[str, str], strikes: Sequence[Strike]) -> list[Outcome]:
    """Run to the end under ``strikes``, in their order.

    Raises:
        AssertionError: the run answered a fault in another way than it should, or left something.
    """
    plan = InOrder(strikes)
    outcomes = carry_out(scene, env, plan, in_module(OBSERVED))
    assert not plan.waiting, f"never came: {plan.waiting}"
    return outcomes


def carry_out(scene: Scene, env: Mapping[str, str], plan: Plan, command: Sequence[str]) -> list[Outcome]:
    """Start the command, and start it again, until it has ended well or the plan is over."""
    struck: Strike | None = None
    hub = Hub(Path(scene.mark))
    try:
        for attempt in count():
            code, said, hurt = _attempt(scene, hub, env, command, plan, attempt)
            struck = hurt[-1][0] if hurt else struck
            _check_end(scene, code, said, struck)
            for strike, after in _parts(hurt, said):
                plan.survived.append(Outcome(strike, _how(strike, after, code)))
                print(plan.survived[-1], file=sys.stderr, flush=True)
            if code == 0 or plan.over:
                return plan.survived
            assert hurt, f"it ended, and nothing had struck: {said}"
            hurt[-1][0].fault.afterwards(scene)
        raise AssertionError("unreachable")
    finally:
        hub.close()


Hurt = list[tuple[Strike, int]]
"""What struck, and how much the run had said by then."""


def _attempt(
    scene: Scene, hub: Hub, env: Mapping[str, str], command: Sequence[str], plan: Plan, number: int
) -> tuple[int, str, Hurt]:
    """Run the command until it ends: its code, what it said, what struck it."""
    path, hurt = scene.folder / f"said-{number}.txt", []
    with path.open("wb") as out:
        process = subprocess.Popen(scene.command(*command), env=dict(env), stdout=out, stderr=subprocess.STDOUT)
    scene.trainer = process.pid  # nsenter becomes the command, it does not start it
    try:
        while (met := hub.next(process.pid, HANGS_AFTER_S)) is not None:
            told, line = met
            ends = any(strike.answer in (Answer.ENDS, Answer.KILLED) for strike, _ in hurt)
            strike = None if ends else plan.due(told)  # of two that end a run, only one is what it ended of
            if strike is not None:
                hurt.append((strike, path.stat().st_size))
                scene.processes()  # whoever dies now was seen
                strike.fault.act(scene)
            go(line)
    except BaseException:
        process.kill()
        raise
    return process.wait(), path.read_text(errors="replace"), hurt


def _check_end(scene: Scene, code: int, said: str, struck: Strike | None) -> None:
    """That it is one of those which the fault allows, in one line, and that nothing is left."""
    _, alive = psutil.wait_procs(scene.processes(), timeout=HANGS_AFTER_S / 10)
    assert not alive, f"left running: {[process.cmdline() for process in alive]}"
    scene.make_room()
    nobody_left = struck is not None and struck.fault is EVERYTHING_KILLED and code < 0
    left = [] if nobody_left else scene.left_on_disks()  # the next start clears it away, and is looked at
    assert left == [], f"left on disk: {left}"
    assert "Traceback" not in said, said
    last = said.splitlines()[-1] if said else ""
    lines = _endings(said)
    if code == 0:
        assert lines == [], said
        return
    assert struck is not None and code in struck.fault.codes + (1,), (struck, code, said)
    assert lines == ([] if code < 0 else [last]), said
    if code == 130:
        assert "the same command continues" in last, said


def _endings(said: str) -> list[str]:
    """Lines with which a command ends; a log also has words like ``server_error: ``."""
    return [line for line in said.splitlines() if line.startswith(("error: ", "interrupted; "))]


def _parts(hurt: Hurt, said: str) -> list[tuple[Strike, str]]:
    """What was said between one strike and the next."""
    ends = [*(at for _, at in hurt), len(said.encode())][1:]
    return [(strike, said.encode()[at:end].decode(errors="replace"))
            for (strike, at), end in zip(hurt, ends, strict=True)]


def _how(strike: Strike, said: str, code: int) -> str:
    replaced, repeated = len(re.findall(r"restart \d+ of", said)), "is sampled again" in said
    ended = bool(_endings(said))
    if strike.answer is Answer.KILLED:
        assert code < 0, (strike, code)
        return "killed; the same command continued"
    if strike.answer is Answer.ENDS:
        assert ended, (strike, said)
        return f"ended with code {code} and one line; the same command continued"
    assert not ended, (strike, said)
    done = [f"{replaced} replaced"] * bool(replaced) + ["rollout sampled again"] * repeated
    return ", ".join(done) or "went on"


# --- what a run has in the end ---------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Result:
    """Equal where two runs did the same."""

    metrics: tuple[tuple[tuple[str, float], ...], ...]
    """Of every rollout, all but what depends on the clock and on what was repeated."""
    tensors: tuple[tuple[str, str], ...]
    """Hashes of the last checkpoint's: weights and optimizer."""

    def differences(self, other: Result) -> str:
        """In a line, empty where they are equal: the first rollout that differs, metrics that ever do, files."""
        if len(self.metrics) != len(other.metrics):
            return f"{len(other.metrics)} rollouts for {len(self.metrics)}"
        pairs = list(zip(self.metrics, other.metrics, strict=True))
        unequal = [set(one) ^ set(two) for one, two in pairs]
        first = [f"from rollout {number} on" for number, names in enumerate(unequal) if names][:1]
        names = sorted({name for found in unequal for name, _ in found})
        files = sorted({name for name, _ in set(self.tensors) ^ set(other.tensors)})
        return ", ".join([*first, *names, *files])


def result_of(scene: Scene) -> Result:
    metrics = read_metrics(scene.save)
    assert [line["rollout"] for line in metrics] == list(range(len(metrics))), "each rollout is trained once"
    last = scene.save / f"iter_{len(metrics) - 1:07d}"
    tensors = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in sorted(last.glob("*.distcp"))]
    assert tensors
    return Result(tuple(tuple(sorted(lasting(line).items())) for line in metrics), tuple(tensors))


def lasting(line: Mapping[str, float]) -> dict[str, float]:
    """Without what hangs on the clock, on what was repeated, and on which of two engines was asked: its cache."""
    passing = ("repeated", "tokens_per_second", "keeping_failed")
    return {name: value for name, value in line.items()
            if name not in passing and not name.startswith("seconds") and "cache_hit" not in name}


def unbroken(scene: Scene, env: Mapping[str, str]) -> Result:
    assert drill(scene, env, []) == []
    return result_of(scene)
