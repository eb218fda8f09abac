"""Trajectories on disk within a bound: those of a run's rollouts, and those of an evaluation.

::

    RUN/trajectories/rollout_000011.jsonl     the groups that are kept for good
    RUN/trajectories/rollout_000012.jsonl     the newest rollout: those first, then all others
    RESULTS/trajectories/50.jsonl             an evaluated length, appended as its answers come

**Rollouts.** Which groups are kept for good depends on the run's seed and the rollout's number alone. As they come
first, an older file is thinned by cutting its end off, which needs no room on a full disk. Of the bound the newest
rollout takes at most half. Earlier ones share the other half: what was given up is removed, then from the oldest on
files are cut to one group each, and then removed.

A run that is set back to an older checkpoint samples rollouts again that it had done. When rollout 12 is written
again, the old one, those behind it and the evaluations since are moved aside, so that whoever reads ``RUN`` sees one
line::

    RUN/trajectories/given_up_000012.1/trajectories/rollout_000012.jsonl  rollout_000013.jsonl  eval_000012_hqa.jsonl

**Evaluations.** A trajectory is there once: what will be asked again is taken out before the first answer is written.
Each length has an equal share of the bound, and keeps nothing more once that is used up; files of lengths that are not
asked again count.

Invariants: files never take more than the bound; a rollout's file is there whole or not at all; a group has all its
siblings, except one that is larger than half of the bound by itself, of which the first are there.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from io import FileIO
from itertools import count
from pathlib import Path
from typing import BinaryIO

from ..system.files import append_whole, remove_drafts, replacing
from .trace import FOLDER, Trace, TraceDocument, kept_files, line_of, read_traces

_NAME = re.compile(r"(rollout|eval)_([0-9]{6,})(?:_.+)?\.jsonl")
Group = Iterable[TraceDocument | Trace]


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of one rollout's traces."""

    groups: int
    thinned: int
    """Earlier files that the bound, not their age, made shorter or removed."""


def sampled_first(seed: int, rollout: int, groups: int, most: int) -> list[int]:
    """The numbers of a rollout's groups: at first the ``most`` that are kept for good, then the others."""
    chosen = sorted(random.Random(f"{seed}/{rollout}").sample(range(groups), min(most, groups)))
    return [*chosen, *sorted(set(range(groups)) - set(chosen))]


def rollout_path(run: Path, rollout: int) -> Path:
    return run / FOLDER / f"rollout_{rollout:06d}.jsonl"


def write_rollout(run: Path, rollout: int, groups: Iterable[Group], most: int, bound: int) -> Kept:
    """Write the traces of ``rollout``, thin those before it, and move those behind it aside.

    Args:
        groups: those that are kept for good first; none is taken beyond the first that has no room.
        most: how many are kept for good.
        bound: bytes of all rollouts.

    Raises:
        OSError: the disk is full, or the folder cannot be written; the traces before stay as they are.
        TraceError: what lies there is damaged.
    """
    path = rollout_path(run, rollout)
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    remove_drafts(folder)
    # Only the rollout before this one and, in a run that was set back, the newest of all may still be whole.
    others = _rollouts(folder)
    before = [number for number in others if number < rollout]
    for number in {*before[-1:], *list(others)[-1:]} - {rollout}:
        _cut(others[number], most)
    _give_up(folder, rollout)
    earlier = [one for number, one in _rollouts(folder).items() if number < rollout]
    thinned = _make_room(sorted(folder.glob(f"given_up_*/{FOLDER}/*.jsonl")), earlier, bound - bound // 2)
    with replacing(path) as file:
        return Kept(_write(file, groups, bound // 2), thinned)


def _rollouts(folder: Path) -> dict[int, Path]:
    """The files of rollouts by number, in order."""
    named = {int(found[2]): path for path in folder.iterdir()
             if (found := _NAME.fullmatch(path.name)) and found[1] == "rollout"}
    return dict(sorted(named.items()))


def _write(file: BinaryIO, groups: Iterable[Group], room: int) -> int:
    """How many groups were written, at least the beginning of one."""
    documents: set[str] = set()
    written = size = 0
    for group in groups:
        fresh = [one for one in group if isinstance(one, Trace) or one.id not in documents]
        lines = [line_of(one) for one in fresh]
        if written and size + sum(map(len, lines)) > room:
            break
        for line in lines:
            if size + len(line) > room:
                break
            file.write(line)
            size += len(line)
        documents |= {one.id for one in fresh if isinstance(one, TraceDocument)}
        written += 1
    return written


def _give_up(folder: Path, rollout: int) -> None:
    """Move aside what is of a time behind the sampling of ``rollout``, and that rollout's own traces with it.

    Hosts evaluate before rollout 0 under its number, so that evaluation stays.
    """
    later = [path for path in folder.iterdir() if (found := _NAME.fullmatch(path.name)) and (
        int(found[2]) > rollout if found[1] == "rollout" else int(found[2]) >= max(1, rollout))]
    if not later:
        return
    names = (folder / f"given_up_{rollout:06d}.{number}" for number in count(1))
    aside = next(path for path in names if not path.exists()) / FOLDER
    aside.mkdir(parents=True)
    for path in [*later, rollout_path(folder.parent, rollout)]:
        if path.exists():
            path.rename(aside / path.name)


def _make_room(aside: list[Path], earlier: list[Path], room: int) -> int:
    """Until all fit ``room``, remove what is aside, cut the oldest of the others to one group each, then remove the
    oldest; how many were touched."""
    sizes = {path: path.stat().st_size for path in (*aside, *earlier)}
    touched: set[Path] = set()
    for paths, groups in ((aside, 0), (earlier, 1), (earlier, 0)):
        for path in paths:
            if sum(sizes.values()) <= room:
                break
            size = _cut(path, groups)
            if size < sizes[path]:
                touched.add(path)
            sizes[path] = size
    return len(touched)


def _cut(path: Path, groups: int) -> int:
    """Cut a file behind its first ``groups`` groups, or remove it at 0; its size then."""
    if not groups:
        path.unlink()
        return 0
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
    return end


class EvaluationFiles:
    """Appends to the files of one result folder."""

    def __init__(self, results: Path, asked: Mapping[str, Collection[str]], bound: int) -> None:
        """
        Args:
            asked: the ids of the trajectories that will be answered, by length; of other lengths nothing is written.
            bound: bytes of all files.
        """
        self._results, self._asked, self._bound = results, asked, bound
        others = sum(size for name, size in self._sizes().items() if name not in asked)
        self._share = max(0, bound - others) // max(1, len(asked))
        self._files: dict[str, FileIO] = {}
        self._documents: dict[str, set[str]] = {}
        self._full: set[str] = set()

    def has_room(self, length: str) -> bool:
        return length not in self._full

    def write(self, document: TraceDocument | None, trace: Trace) -> bool:
        """Append a trajectory, before it its document where that is new; False where the share has no room for it.

        Raises:
            OSError: the disk is full, or the folder cannot be written; of the trajectory nothing is written then.
        """
        length = trace.length or ""
        file = self._files.get(length) or self._opened(length)
        known = self._documents[length]
        content = line_of(trace)
        if document is not None and document.id not in known:
            content = line_of(document) + content
        size = file.seek(0, os.SEEK_END)
        if size + len(content) > self._share or sum(self._sizes().values()) + len(content) > self._bound:
            self._full.add(length)
            return False
        append_whole(file, content)
        if document is not None:
            known.add(document.id)
        return True

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _sizes(self) -> dict[str, int]:
        """Bytes of the files that are there, by length."""
        return {path.stem: path.stat().st_size for path in kept_files(self._results)}

    def _opened(self, length: str) -> FileIO:
        path = self._results / FOLDER / f"{length}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        documents = self._documents[length] = set[str]()
        if path.is_file():
            again = set(self._asked[length])
            with replacing(path) as draft:  # without half a line at its end, either
                for record in read_traces(path):
                    if isinstance(record, TraceDocument):
                        documents.add(record.id)
                    elif record.id in again:
                        continue
                    draft.write(line_of(record))
        self._files[length] = path.open("ab", buffering=0)
        return self._files[length]
