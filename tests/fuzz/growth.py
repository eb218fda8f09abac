"""How time grows with an input: ``python -m mem_agent.tests.fuzz.growth [TARGET ...]`` tells what grows too fast.

Each target is given seeds with something in them made long (a text, a list, an object, the whole), or deep, at sizes
that are four times each other (and DEEP), and CPU time is measured at each. Time that is ``size ** e`` has, between
two sizes::

    e = log(time of the larger / time of the smaller) / log(4)         2 KB 0.02 s, 8 KB 0.32 s -> e = 2

An ``e`` above 1.3 where the time is more than what a start costs is a finding: somebody else chooses the size. Whoever
reads the table runs a finding again before believing it, as other processes disturb short times.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from mem_agent.system.signals import stop_on_signals
from mem_agent.tests.fuzz.mutations import places
from mem_agent.tests.fuzz.target import Target, fault_of, name_of
from mem_agent.tests.fuzz.targets import TARGETS
from mem_agent.tests.helpers.uncollected import uncollected

SIZES = (4_000, 16_000, 64_000)
DEEP = 1_000
"""What orjson reads, of 1,024 levels at most, and Python neither shows nor copies: it may be read and fall later."""
DEPTHS = (400, DEEP, 1_600, 6_400, 25_600, 102_400)
MOST = 1.3
_COUNTS_S = 0.02
"""Shorter times say nothing."""
_LARGEST = 1_700_000
_ENOUGH_S = 8.0
"""No larger size is tried behind a time from which it would take longer."""
_WORDS = (b"a", b" ", b"0", b"\n", b"{", b"<", b"\\", b"(", b'"', b",")


@dataclass(frozen=True, slots=True)
class Growth:
    """What became of one way to make an input large."""

    way: str
    times: tuple[tuple[int, float], ...]
    """Sizes and CPU seconds."""
    fault: str = ""

    @property
    def exponent(self) -> float:
        """Over the largest two sizes whose times count; 0 where there are none."""
        counted = [(size, seconds) for size, seconds in self.times if seconds >= _COUNTS_S / 4]
        if len(counted) < 2 or counted[-1][1] < _COUNTS_S:
            return 0.0
        (small, short), (large, long) = counted[-2:]
        return math.log(long / short) / math.log(large / small)


Made = Callable[[int], bytes]
"""An input of about so many bytes, or so deep."""


def grown(target: Target, seed: bytes) -> Iterator[tuple[str, Sequence[int], Made]]:
    """The ways to make one of the target's inputs large."""
    words, shown = tuple(dict.fromkeys((*target.words, *_WORDS))), repr(seed[:24])
    yield f"{shown} again and again", SIZES, lambda size: (seed or b" ") * (size // (len(seed) or 1))
    tree = _json_of(seed)
    if tree is not None:
        yield from _grown_tree(tree, words)
        return
    for word in words:
        yield f"{shown} and {word!r}s", SIZES, lambda size, w=word: seed + w * (size // len(w))
    for begin, end in _NESTS:
        yield f"{begin!r} nested", DEPTHS, lambda size, b=begin, e=end: b * size + seed + e * size


_NESTS = (
    (b"{", b"}"), (b"(", b")"), (b"[", b"]"), (b"<p>", b""), (b"<div>", b"</div>"), (b"\\text{", b"}"), (b"-", b""),
    (b"<update>", b"</update>"), (b"\\boxed{", b"}"), (b"- ", b""), (b"a: ", b""), (b"<table><tr><td>", b""),
)


def _grown_tree(tree: Any, words: Sequence[bytes]) -> Iterator[tuple[str, Sequence[int], Made]]:
    found = places([tree])
    for number, (holder, key) in enumerate(found):
        value, at = holder[key], f"place {number} ({key!r:.20})"
        if isinstance(value, str):
            for word in words:
                text = word.decode("utf-8", "replace")
                yield f"{at}: {word!r}s", SIZES, _with(tree, number, lambda size, t=text: t * (size // len(t)))
        if isinstance(value, list) and value:
            yield f"{at}: longer", SIZES, _with(tree, number, lambda size, v=value: v * (size // 8))
        if isinstance(value, dict):
            yield f"{at}: more keys", SIZES, _with(tree, number, lambda size, v=value: {
                **v, **{f"k{n}": n for n in range(size // 12)}})
        yield f"{at}: deeper", DEPTHS, _nested(tree, number)


def _with(tree: Any, number: int, value: Callable[[int], Any]) -> Made:
    def made(size: int) -> bytes:
        copy = [deepcopy(tree)]
        holder, key = places(copy)[number]
        holder[key] = value(size)
        return json.dumps(copy[0]).encode()

    return made


def _nested(tree: Any, number: int) -> Made:
    """Lists in lists, written by hand: no library writes as deep."""
    mark = "THE NESTED PLACE"

    def made(depth: int) -> bytes:
        return _with(tree, number, lambda _: mark)(0).replace(f'"{mark}"'.encode(), b"[" * depth + b"]" * depth)

    return made


def _json_of(seed: bytes) -> Any:
    try:
        found = json.loads(seed)
    except ValueError:
        return None
    return found if isinstance(found, dict | list) else None


def measured(target: Target, way: str, sizes: Sequence[int], made: Made) -> Growth:
    times: list[tuple[int, float]] = []
    for size in sizes:
        data = made(size)
        with uncollected():
            began = time.process_time()
            error = fault_of(target, data)
            times.append((size, time.process_time() - began))
        if error is not None:
            return Growth(way, tuple(times), name_of(error))
        if len(times) > 1 and times[-1][1] ** 2 / max(times[-2][1], 1e-9) > _ENOUGH_S:
            break
    growth = Growth(way, tuple(times))
    larger = 4 * times[-1][0]
    if growth.exponent <= MOST or len(times) < len(sizes) or larger > _LARGEST:
        return growth
    return measured(target, way, [times[-1][0], larger], made)  # the step may be that of a bound, crossed once


def growths_of(target: Target, seconds: float) -> Iterator[Growth]:
    """Of all seeds, as far as the time goes; of the first in any case."""
    until = time.monotonic() + seconds
    for number, seed in enumerate(target.seeds):
        for way in grown(target, seed):
            if number and time.monotonic() >= until:
                return
            yield measured(target, *way)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="How time grows with hostile inputs.")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--all", action="store_true", help="show what is below the bound as well")
    parser.add_argument("--seconds", type=float, default=600.0,
                        help="for the seeds of a target behind its first (600)")
    args = parser.parse_args(argv)
    stop_on_signals()
    logging.disable(logging.CRITICAL)
    findings = 0
    for name in args.targets or TARGETS:
        growths = list(growths_of(TARGETS[name], args.seconds))
        for growth in sorted(growths, key=lambda growth: -growth.exponent):
            bad = growth.exponent > MOST or bool(growth.fault)
            findings += bad
            if bad or args.all:
                seconds = " ".join(f"{size}:{took:.3f}" for size, took in growth.times)
                print(f"{name} | {growth.exponent:.2f} | {growth.way} | {seconds} | {growth.fault}", flush=True)
        print(f"{name}: {len(growths)} ways, {max(growth.exponent for growth in growths):.2f} at most", flush=True)
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
