"""Traces of a line that a run gave up: set back to an older checkpoint, it samples rollouts again that it had done.

    RUN/trajectories/rollout_000011.jsonl  rollout_000012.jsonl  rollout_000013.jsonl  eval_000012_hqa.jsonl

When rollout 12 is written again, the last three are of other weights than all that will follow::

    RUN/trajectories/rollout_000011.jsonl  rollout_000012.jsonl
    RUN/trajectories/given_up_000012.1/trajectories/rollout_000012.jsonl  rollout_000013.jsonl  eval_000012_hqa.jsonl

So whoever reads ``RUN`` sees one line, and reads the other by naming its folder. A rollout that is replayed is not
written again, and gives nothing up. Hosts evaluate before rollout 0 under its number, so that one stays.
"""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

from .read_traces import FOLDER

_NAME = re.compile(r"(?:rollout_([0-9]{6,})|eval_([0-9]{6,})_.+)\.jsonl")


def put_given_up_aside(folder: Path, rollout: int) -> None:
    """Move what is of a time behind the sampling of ``rollout``, and then that rollout's own traces with it."""
    later, own = [], []
    for path in folder.iterdir():
        sampled, evaluated = found.groups() if (found := _NAME.fullmatch(path.name)) else (None, None)
        if int(sampled or 0) > rollout or int(evaluated or 0) >= max(1, rollout):
            later.append(path)
        elif sampled and int(sampled) == rollout:
            own.append(path)
    if not later:
        return
    names = (folder / f"given_up_{rollout:06d}.{n}" for n in count(1))
    aside = next(path for path in names if not path.exists()) / FOLDER
    aside.mkdir(parents=True)
    for path in (*later, *own):
        path.rename(aside / path.name)


def given_up(folder: Path) -> list[Path]:
    """The files that were put aside."""
    return sorted(folder.glob(f"given_up_*/{FOLDER}/*.jsonl"))
