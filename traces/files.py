"""Trajectories on disk within a bound: those of a run's rollouts, and those of an evaluation.

::

    RUN/trajectories/rollout_000011.jsonl     the groups that are kept for good
    RUN/trajectories/rollout_000012.jsonl     the newest rollout: those first, then all others
    RESULTS/trajectories/50.jsonl             an evaluated length, appended as its answers come

**Rollouts.** Which groups are kept for good depends on the run's seed and the rollout's number alone. As they come
first, the file before the newest is thinned by cutting its end off, which needs no room on a full disk. Of the bound
the newest rollout takes at most half; earlier ones share the other half, and the oldest are removed. A run that is set
back to an older checkpoint samples rollouts again that it had done: when rollout 12 is written again, those behind it
and the evaluations since are removed.

**Evaluations.** Each length has an equal share of the bound, and keeps nothing more once that is used up. Of an answer
that is asked again the later line counts (``report/viewer/groups.py``).

Invariants: files never take more than the bound; a rollout's file is there whole or not at all; a group has all its
siblings, except one that is larger than half of the bound by itself, of which the first are there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterable
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from ..system.files import append_whole, remove_drafts, replacing
from .trace import FOLDER, Trace, TraceDocument, kept_files, line_of, read_traces

Group = Iterable[TraceDocument | Trace]


def sampled_first(seed: int, rollout: int, groups: int, most: int) -> list[int]:
    """The numbers of a rollout's groups: at first the ``most`` that are kept for good, then the others."""
    chosen = sorted(random.Random(f"{seed}/{rollout}").sample(range(groups), min(most, groups)))
    return [*chosen, *sorted(set(range(groups)) - set(chosen))]


def rollout_path(run: Path, rollout: int) -> Path:
    return run / FOLDER / f"rollout_{rollout:06d}.jsonl"


def write_rollout(run: Path, rollout: int, groups: Iterable[Group], most: int, bound: int) -> int:
    """Write the traces of ``rollout``; how many groups were written, at least the beginning of one.

    Args:
        groups: those that are kept for good first; none is taken beyond the first that has no room.
        most: how many are kept for good.
        bound: bytes of all rollouts.

    Raises:
        OSError: the disk is full, or the folder cannot be written; an earlier attempt at this rollout stays.
        TraceError: what lies there is damaged.
    """
    path = rollout_path(run, rollout)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_drafts(path.parent)
    for evaluation in sorted(path.parent.glob("eval_*.jsonl")):  # hosts evaluate before rollout 0 under its number
        if int(evaluation.name.split("_")[1]) >= max(1, rollout):
            evaluation.unlink()
    files = {int(file.stem.removeprefix("rollout_")): file for file in sorted(path.parent.glob("rollout_*.jsonl"))}
    for number in [number for number in files if number > rollout]:
        files.pop(number).unlink()
    files.pop(rollout, None)
    earlier = [files[number] for number in sorted(files)]
    for file in earlier[-1:]:
        _cut(file, most)
    while earlier and sum(file.stat().st_size for file in earlier) > bound - bound // 2:
        earlier.pop(0).unlink()
    with replacing(path) as draft:
        return _write(draft, groups, bound // 2)


def _write(file: BinaryIO, groups: Iterable[Group], room: int) -> int:
    documents: set[str] = set()
    written = 0
    for group in groups:
        fresh = [one for one in group if isinstance(one, Trace) or one.id not in documents]
        lines = [line_of(one) for one in fresh]
        if written and sum(map(len, lines)) > room:
            break
        for line in lines:
            room -= len(line)
            if room < 0:
                break
            file.write(line)
        documents |= {one.id for one in fresh if isinstance(one, TraceDocument)}
        written += 1
    return written


def _cut(path: Path, groups: int) -> None:
    """Cut a file behind its first ``groups`` groups."""
    end = size = 0
    seen: set[str] = set()
    with path.open("rb") as lines:
        for record, line in zip(read_traces(path), lines, strict=False):
            size += len(line)
            if isinstance(record, Trace):
                seen.add(record.group)
                if len(seen) > groups:
                    break
                end = size
    os.truncate(path, end)


class EvaluationFiles:
    """Appends to the files of one result folder."""

    def __init__(self, results: Path, lengths: Collection[str], bound: int) -> None:
        """
        Args:
            lengths: those that are asked; files of others count for the bound.
            bound: bytes of all files.
        """
        sizes = {path.stem: path.stat().st_size for path in kept_files(results)}
        share = (bound - sum(size for name, size in sizes.items() if name not in lengths)) // max(1, len(lengths))
        self._folder = results / FOLDER
        self._free = bound - sum(sizes.values())
        self._room = {length: share - sizes.get(length, 0) for length in lengths}
        self._files: dict[str, FileIO] = {}
        self._documents: set[tuple[str, str]] = set()

    def has_room(self, length: str) -> bool:
        return self._room[length] > 0

    def write(self, document: TraceDocument | None, trace: Trace) -> bool:
        """Append a trajectory, before it its document where that is new; False where there is no room for it.

        Raises:
            OSError: the disk is full, or the folder cannot be written; of the trajectory nothing is written then.
        """
        length = trace.length or ""
        content = line_of(trace)
        if document and (length, document.id) not in self._documents:
            content = line_of(document) + content
        if len(content) > min(self._room[length], self._free):
            self._room[length] = 0
            return False
        append_whole(self._files.get(length) or self._opened(length), content)
        self._room[length] -= len(content)
        self._free -= len(content)
        if document:
            self._documents.add((length, document.id))
        return True

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _opened(self, length: str) -> FileIO:
        """The file to append to, without what a killed run left of its last line."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{length}.jsonl"
        file = self._files[length] = path.open("ab", buffering=0)
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        return file
