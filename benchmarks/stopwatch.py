"""Alternatives measured in turns, A B A B, so that what else the machine does falls on all of them alike.

CPU seconds are those of the process that does the work, all its threads together; on a machine that other programs
share they say what wall seconds say on a quiet one, as long as the work is done on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement, in seconds."""

    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    least: float
    most: float


def timed(call: Callable[[], object]) -> Sample:
    """What one call takes this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Sample(time.process_time() - cpu, time.perf_counter() - wall)


def interleaved(variants: Mapping[str, Callable[[], Sample]], rounds: int) -> dict[str, list[Sample]]:
    """``rounds`` samples of every variant: each round measures all of them once, in the given order."""
    assert rounds >= 1 and variants, (rounds, list(variants))
    samples: dict[str, list[Sample]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            samples[name].append(measure())
    return samples


def faster(slow: Sequence[Sample], quick: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """How many times quicker ``quick`` is, round by round: by CPU seconds, and by wall seconds.

    CPU 8.0 and 9.0 against 1.0 and 1.2: 8.0 and 7.5.
    """
    pairs = list(zip(slow, quick, strict=True))
    return [s.cpu / q.cpu for s, q in pairs], [s.wall / q.wall for s, q in pairs]


def spread(values: Iterable[float]) -> Spread:
    """Of at least one value."""
    ordered = sorted(values)
    return Spread(median(ordered), ordered[0], ordered[-1])
