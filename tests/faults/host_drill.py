"""Rehearsed jobs of slime and vime under faults: their own train.py, the pack's hooks, an engine that is told.

Three runs of a few rollouts, with an evaluation after each::

    unbroken        what the others are compared with
    interrupted     answers that fail for a moment, in rollouts and evaluations; the host killed, Ctrl-C, a full disk;
                    continued by the same command each time
    lasting         answers that are of no use, a full disk for trajectories, at last an engine that is gone for good

The engine samples a function of prompt and seed. So the interrupted run has to have the samples of the unbroken one in
every rollout and evaluation, and the lasting one those that it did not lose.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from mem_agent.rehearsal.host_log import Metrics, read_log
from mem_agent.tests.helpers import host_actor
from mem_agent.tests.helpers.host_checkout import Host

from .drill import InOrder, Outcome, Strike, carry_out, settings
from .faults import CONNECTIONS_CUT, DISK_FULL, ENGINE_ERRORS, ENGINE_SLOW, INTERRUPTED, Answer, Fault, order, send
from .host_engine import EVALUATION_TEMPERATURE
from .host_job import ENGINE, HANDED, KEPT
from .moments import Moment
from .scene import Scene, can_mount, scene

ROLLOUTS, GROUPS, SIBLINGS = 3, 2, 4
DISKS = {"save": "2g", "tmp": "1g", "kept": "1m", "/dev/shm": "8g"}
_COMMAND = "mem_agent.tests.faults.host_job"
_ENGINE = "mem_agent.tests.faults.host_engine"
_LATE_S = 60


# --- faults ----------------------------------------------------------------------------------------------------------

CONNECTIONS_RESET = Fault("connections reset", order("reset", 3))
GARBAGE = Fault("garbage for an answer", order("garbage", 1), Answer.COUNTED)
ENDLESS = Fault("an answer without end", order("endless", 1), Answer.COUNTED)
LATE = Fault("an answer after MEM_REQUEST_TIMEOUT", order("late", 1), Answer.COUNTED)
KEPT_FULL = Fault("disk full for trajectories", lambda s: s.fill("kept"), Answer.COUNTED, needs_disks=True)
HOST_KILLED = Fault("the host's train.py killed", lambda s: send(signal.SIGKILL, s.named("/train.py")), Answer.ENDS)
ENGINE_GONE = Fault("the engine killed for good", lambda s: send(signal.SIGKILL, s.named(_ENGINE)), Answer.ENDS)

INTERRUPTED_RUN = (
    Strike(ENGINE_ERRORS, Moment.EVALUATION, 0, count=3),
    Strike(ENGINE_ERRORS, Moment.SAMPLING, 0, count=3),
    Strike(CONNECTIONS_CUT, Moment.SAMPLING, 0, count=9),
    Strike(CONNECTIONS_RESET, Moment.SAMPLING, 0, count=15),
    Strike(ENGINE_SLOW, Moment.SAMPLING, 0, count=21),
    Strike(CONNECTIONS_RESET, Moment.EVALUATION, 1, count=3),
    Strike(HOST_KILLED, Moment.SAMPLING, 1, count=5),
    Strike(INTERRUPTED, Moment.EVALUATION, 0, count=5),
    Strike(DISK_FULL, Moment.SAMPLING, 0, count=5),
)
"""Rollouts are those since the command was started: after ``HOST_KILLED`` the second one is number 0."""
LASTING_RUN = (
    Strike(KEPT_FULL, Moment.SAMPLING, 0, count=1),
    Strike(GARBAGE, Moment.SAMPLING, 0, count=5),
    Strike(ENDLESS, Moment.SAMPLING, 0, count=9),
    Strike(GARBAGE, Moment.EVALUATION, 1, count=5),
    Strike(LATE, Moment.SAMPLING, 1, count=9),
    Strike(ENGINE_GONE, Moment.SAMPLING, 2, count=1),
)


# --- a run -----------------------------------------------------------------------------------------------------------

def host_settings(place: Scene, host: Host, **more: object) -> dict[str, str]:
    """Of a rehearsed job. Skips the calling test where the host's checkout or environment is not there."""
    program = place.folder / "engine"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {_ENGINE} "$@"\n')
    program.chmod(0o700)
    counted = "--custom-convert-samples-to-train-data-path mem_agent.tests.faults.host_job.convert"
    # The stand-in loads no weights; over gloo it takes them from vime alone.
    disk = f" --update-weight-transport disk --update-weight-disk-dir {place.folder / 'save' / 'weights'}"
    return settings(
        place, HOST=host.name, HOST_ROOT=host_actor.checkout(host), MEGATRON_ROOT=host_actor.megatron(host),
        SGLANG_PYTHON=program, RAY_TMPDIR=place.folder, PYTHONPATH=host_actor.importable(place.folder),
        HOST_ARGS=counted + disk * (host.name == "slime"), REWARD="mem_agent.rehearsal.coin:Coin",
        ROLLOUT_BATCH_SIZE=GROUPS, N_SAMPLES_PER_PROMPT=SIBLINGS, REHEARSE_ROLLOUTS=ROLLOUTS, REHEARSE_RANKS=1,
        EVAL_TEMPERATURE=EVALUATION_TEMPERATURE, MEM_REQUEST_TIMEOUT=_LATE_S,
        **{ENGINE: program, HANDED: place.folder / "handed.jsonl"},
        **({KEPT: place.folder / "kept"} if place.holder else {}), **more,
    )


class Plan(InOrder):
    """Ends with the last strike where that ends the run for good."""

    def due(self, told):  # type: ignore[no-untyped-def]
        strike = super().due(told)
        self.over = self.over or (strike is not None and strike.fault is ENGINE_GONE)
        return strike


def run(place: Scene, host: Host, strikes: Sequence[Strike]) -> list[Outcome]:
    plan = Plan([strike for strike in strikes if place.holder or not strike.fault.needs_disks])
    outcomes = carry_out(place, host_settings(place, host), plan, [host_actor.rehearsal_python(), "-m", _COMMAND])
    assert not plan.waiting, f"never came: {plan.waiting}"
    return outcomes


# --- what it has in the end ------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class HostResult:
    rollouts: Metrics
    """Of the memories, by rollout; what hangs on the clock left out."""
    evaluations: Metrics
    steps: Metrics
    handed: tuple[tuple[int, ...], ...]
    """The samples of which the host's trainer was handed rows, rollout by rollout."""
    trained: tuple[tuple[int, ...], ...]
    """Those of them with a row that is not masked."""
    log: str


def result_of(place: Scene) -> HostResult:
    [log] = place.save.glob("rehearsals/*/launch/job.log")
    found = read_log(log)
    lines = [json.loads(line) for line in (place.folder / "handed.jsonl").read_text().splitlines()]
    return HostResult(
        _memory(found.get("rollout", {})), _memory(found.get("eval", {})), found.get("step", {}),
        tuple(tuple(line["samples"]) for line in lines), tuple(tuple(line["trained"]) for line in lines),
        log.read_text(errors="replace"),
    )


def _memory(metrics: Metrics) -> Metrics:
    kept = {n: {name: value for name, value in of.items() if "/memory/" in name} for n, of in metrics.items()}
    return {number: of for number, of in kept.items() if of}


def every_sample_once(rollouts: int) -> tuple[tuple[int, ...], ...]:
    size = GROUPS * SIBLINGS
    return tuple(tuple(range(n * size, (n + 1) * size)) for n in range(rollouts))


# --- the three runs --------------------------------------------------------------------------------------------------

_HOSTS_LEAVE = ("pymp-",)
"""Folders of Python's multiprocessing, whose processes Ray ends with SIGKILL."""


def drilled(host: Host, strikes: Sequence[Strike]) -> tuple[list[Outcome], HostResult]:
    with scene(can_mount(), DISKS) as place:
        place.leaves += _HOSTS_LEAVE
        return run(place, host, strikes), result_of(place)


def compare(whole: HostResult, found: HostResult) -> None:
    """That an interrupted run came to what the unbroken one has.

    Raises:
        AssertionError: it did not.
    """
    assert found.rollouts == whole.rollouts, differences(found.rollouts, whole.rollouts)
    # Hosts do not repeat an evaluation that was broken off behind its checkpoint.
    assert len(found.evaluations) >= len(whole.evaluations) - 1
    for number, metrics in found.evaluations.items():
        assert metrics == whole.evaluations[number], differences(found.evaluations, whole.evaluations)
    # What was handed over and not saved is handed over again, to a trainer with the weights before it.
    handed = tuple(dict.fromkeys(found.handed))
    assert handed == tuple(dict.fromkeys(found.trained)) == whole.handed == every_sample_once(ROLLOUTS)
    assert found.steps.keys() == whole.steps.keys()
    for number, step in found.steps.items():
        for name in ("train/pg_loss", "train/kl_loss", "train/grad_norm"):
            assert step[name] == pytest.approx(whole.steps[number][name], rel=1e-4, abs=1e-6), (number, name)


def differences(found: Metrics, whole: Metrics) -> dict[tuple[int, str], tuple[float | None, float | None]]:
    keys = {(n, name) for metrics in (found, whole) for n, of in metrics.items() for name in of}
    pairs = {key: (found.get(key[0], {}).get(key[1]), whole.get(key[0], {}).get(key[1])) for key in sorted(keys)}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


LOST = {0: {"bad_response": 1, "timeout": 1}, 1: {"timeout": 1}}
"""By rollout, of the lasting run: kinds of failures; in the third all fail."""


def check_losses(found: HostResult) -> None:
    """That each lost trajectory was handed to the trainer masked, and counted by its kind; none of the last rollout.

    Raises:
        AssertionError: it was not so.
    """
    for number, kinds in LOST.items():
        metrics = found.rollouts[number]
        counted = {name.rpartition("/")[2]: value for name, value in metrics.items() if "/memory/failed/" in name}
        assert counted == kinds and metrics["rollout/memory/failed"] == sum(kinds.values()), (number, counted)
        assert metrics["rollout/memory/trajectories"] == GROUPS * SIBLINGS
    assert found.handed == every_sample_once(ROLLOUTS - 1)
    sizes = [GROUPS * SIBLINGS - sum(kinds.values()) for kinds in LOST.values()]
    assert [len(trained) for trained in found.trained] == sizes
    assert [metrics["eval/train/memory/failed"] for metrics in found.evaluations.values()] == [1.0, 0.0]
    assert found.rollouts[ROLLOUTS - 1]["rollout/memory/failed"] == GROUPS * SIBLINGS
    assert f"AllFailed: all {GROUPS * SIBLINGS} trajectories of a rollout failed" in found.log
    assert sorted(found.steps) == [0, 1], "nothing was trained on the rollout that failed"
    if can_mount():
        assert found.rollouts[1]["rollout/memory/keeping_failed"] == 1


def host_rows(host: Host) -> list[list[str]]:
    """Of the suite's page: each fault, its moment, how it was survived."""
    _, whole = drilled(host, ())
    assert whole.handed == every_sample_once(ROLLOUTS)
    interrupted, found = drilled(host, INTERRUPTED_RUN)
    compare(whole, found)
    lasting, lost = drilled(host, LASTING_RUN)
    check_losses(lost)
    return [[one.strike.fault.name, f"{one.strike.moment}, answer {one.strike.count}", one.how]
            for one in (*interrupted, *lasting)]
