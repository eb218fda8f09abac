"""The traces of training rollouts on disk: which are kept, and within which bound.

    RUN/trajectories/rollout_000011.jsonl     the groups that are kept for good
    RUN/trajectories/rollout_000012.jsonl     the newest rollout: those first, then all others

Which groups are kept for good depends on the run's seed and the rollout's number alone. Because they come first, an
older file is thinned by cutting its end off, which needs no room on a full disk.

Bound of 500 MB: the newest rollout takes at most half, its later groups are left out where that is not enough. Earlier
ones share the other half: what was given up (``given_up``) is removed, then from the oldest on files are cut to one
group each, and then removed.

Invariants:
- rollouts, and what was given up, never take more than the bound, but for the file that a rollout which is sampled
  again replaces;
- a file is there whole or not at all, and a group in it has all its siblings, but for a group that is too large for
  half of the bound by itself: of that one the first siblings are there;
- the newest rollout is never touched to make room.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import BinaryIO

from ..system.files import remove_drafts, replacing
from .given_up import given_up, put_given_up_aside
from .read_traces import FOLDER
from .trace import Trace, TraceDocument, TraceError, line_of, record_of

_NAME = re.compile(r"rollout_([0-9]{6,})\.jsonl")
Group = Iterable[TraceDocument | Trace]


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of one rollout's traces."""

    groups: int
    trajectories: int
    size: int
    """Bytes."""
    thinned: int
    """Earlier files that the bound, not their age, made shorter or removed."""


def sampled_first(seed: int, rollout: int, groups: int, most: int) -> list[int]:
    """The numbers of a rollout's groups: at first the ``most`` that are kept for good, then the others."""
    chosen = sorted(random.Random(f"{seed}/{rollout}").sample(range(groups), min(most, groups)))
    return [*chosen, *sorted(set(range(groups)) - set(chosen))]


def rollout_path(run: Path, rollout: int) -> Path:
    return run / FOLDER / f"rollout_{rollout:06d}.jsonl"


def write_rollout(run: Path, rollout: int, groups: Iterable[Group], most: int, bound: int) -> Kept:
    """Write the traces of ``rollout``, thin those before it, and put those behind it aside.

    Args:
        groups: those that are kept for good first; none is taken beyond the first that has no room.
        most: how many are kept for good.
        bound: bytes of all rollouts.

    Raises:
        OSError: the disk is full, or the folder cannot be written; the traces before stay as they are.
        TraceError: what lies there is damaged.
    """
    path = rollout_path(run, rollout)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_drafts(path.parent)
    _cut_whole_ones(_others(path), rollout, most)
    put_given_up_aside(path.parent, rollout)
    thinned = _make_room(given_up(path.parent), list(_others(path).values()), bound - bound // 2)
    with replacing(path) as file:
        written, trajectories, size = _write(file, groups, bound // 2)
    return Kept(written, trajectories, size, thinned)


def _write(file: BinaryIO, groups: Iterable[Group], room: int) -> tuple[int, int, int]:
    """How many groups, trajectories and bytes were written."""
    written = trajectories = size = 0
    documents: set[str] = set()
    for group in groups:
        fresh = [one for one in group if isinstance(one, Trace) or one.id not in documents]
        lines = [(one, line_of(one)) for one in fresh]
        fits = size + sum(len(line) for _, line in lines) <= room
        if not fits and written:
            break
        for one, line in lines:
            if size + len(line) > room:
                break
            file.write(line)
            size += len(line)
            trajectories += isinstance(one, Trace)
        documents |= {one.id for one in fresh if isinstance(one, TraceDocument)}
        written += 1
        if not fits:
            break
    return written, trajectories, size


# --- other rollouts -------------------------------------------------------------------------------------------------


def _others(path: Path) -> dict[int, Path]:
    """By number, in order; a run that was set back has later ones, too."""
    named = {int(found[1]): one for one in path.parent.iterdir()
             if (found := _NAME.fullmatch(one.name))}
    return {number: named[number] for number in sorted(named) if named[number] != path}


def _cut_whole_ones(others: dict[int, Path], rollout: int, most: int) -> None:
    """Cut the rollout before this one, and the newest of all, which may still be whole, to ``most`` groups."""
    before = [number for number in others if number < rollout]
    for number in {*before[-1:], *list(others)[-1:]}:
        _cut(others[number], most)


def _make_room(aside: Sequence[Path], others: Sequence[Path], room: int) -> int:
    """Until all fit ``room``, remove what is aside, cut the oldest of the others to one group each, then remove the
    oldest; how many were touched."""
    sizes = {path: path.stat().st_size for path in (*aside, *others)}
    total = sum(sizes.values())
    touched: set[Path] = set()
    for path, groups in chain(zip(aside, repeat(0)), zip(others, repeat(1)), zip(others, repeat(0))):
        if total <= room:
            break
        before, sizes[path] = sizes[path], _cut(path, groups)
        total -= before - sizes[path]
        if sizes[path] < before:
            touched.add(path)
    return len(touched)


def _cut(path: Path, groups: int) -> int:
    """Cut a file behind its first ``groups`` groups, or remove it at 0; its size then."""
    if not groups:
        path.unlink()
        return 0
    at = end = 0
    seen: set[str] = set()
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            at += len(line)
            record = _record(path, number, line)
            if isinstance(record, Trace):
                seen.add(record.group)
                if len(seen) > groups:
                    break
                end = at
    os.truncate(path, end)
    return end


def _record(path: Path, number: int, line: bytes) -> TraceDocument | Trace:
    try:
        return record_of(line)
    except ValueError as error:
        raise TraceError(f"{path}: line {number} is no trace ({error}); remove that file") from None
