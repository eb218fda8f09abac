"""The search for faults of one target, guided by what of the pack's code its inputs reach (atheris, libFuzzer).

Every input that reaches a new place is kept in the corpus, so a later search goes on where this one ended. A fault
does not end the search: its input is written as a file and told in one line, once for each name (``target.name_of``).
What no process survives ends it, and libFuzzer writes the input: ``timeout-*`` took longer than the limit, ``oom-*``
more memory, ``crash-*`` is a library's own end. ``slow-unit-*`` took over two seconds, within the limit. libFuzzer's
clock is the wall's; where other processes took the time, ``confirmed`` says so.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

import atheris

from mem_agent.tests.fuzz.mutations import MOST, mutated
from mem_agent.tests.fuzz.target import Target, fault_of, name_of

_OWN_MUTATIONS = 0.7
"""The others are libFuzzer's."""
SLOW_S = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    memory_mb: int
    """Of the process: libraries and corpus take 0.8 GB."""
    seconds: int
    """That one input may take."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a target's files lie."""

    corpus: Path
    found: Path
    log: Path
    """What libFuzzer says, and libraries in C."""

    @classmethod
    def of(cls, folder: Path, target: Target) -> Places:
        places = cls(folder / "corpus" / target.name, folder / "found" / target.name, folder / f"{target.name}.log")
        places.corpus.mkdir(parents=True, exist_ok=True)
        places.found.mkdir(parents=True, exist_ok=True)
        return places


def search(target: Target, places: Places, seconds: int, bounds: Bounds) -> NoReturn:
    """Ends the process when the time is over; standard output has a line for each fault."""
    logging.disable(logging.CRITICAL)
    for seed in target.seeds:
        (places.corpus / f"seed-{_digest(seed)}").write_bytes(seed)
    tell = os.fdopen(os.dup(1), "w", buffering=1)
    log = os.open(places.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    options = [
        "fuzz", f"-max_total_time={seconds}", f"-rss_limit_mb={bounds.memory_mb}", f"-timeout={bounds.seconds}",
        f"-report_slow_units={SLOW_S}", f"-artifact_prefix={places.found}/", f"-max_len={MOST}",
        "-print_final_stats=1", str(places.corpus),
    ]
    atheris.Setup(options, _checker(target, places.found, tell), custom_mutator=_mutator(target))
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


def _checker(target: Target, found: Path, tell: TextIO) -> Callable[[bytes], None]:
    known = {path.name.partition("@")[0] for path in found.iterdir()}

    def check(data: bytes) -> None:
        error = fault_of(target, data)
        if error is None:
            return
        name = name_of(error)
        key = "".join(letter if letter.isalnum() else "_" for letter in name)
        if key not in known:
            known.add(key)
            path = found / f"{key}@{_digest(data)}"
            path.write_bytes(data)
            print(f"{target.name}: {name}: {' '.join(str(error).split())[:120]}; {path}", file=tell)

    return check


def _mutator(target: Target) -> Callable[[bytes, int, int], bytes]:
    def mutate(data: bytes, most: int, seed: int) -> bytes:
        state = random.Random(seed)
        if state.random() < _OWN_MUTATIONS:
            return mutated(bytes(data), state, target.words)[:most]
        return atheris.Mutate(data, min(most, len(data) + 64))

    return mutate


def confirmed(target: Target, path: Path, seconds: float) -> bool:
    """Whether the input really takes so many CPU seconds; run in a process that is given no more."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), resource.RLIM_INFINITY))
        fault_of(target, path.read_bytes())
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
