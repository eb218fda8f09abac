"""Rollouts on real engines: what is prefilled against what whole blocks allow, and against memory first.

Models of random weights on two engines behind the router, through the pack's own hooks (``rollout.py``); the counts
are the engines' own and do not depend on the model's size, so the small one gives them. Wall seconds are the large
one's, against memory first with a key for each trajectory: what routing by conversation gives.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from .outcome import Outcome, print_alone
from .rollout import LARGE, SMALL, VARIANTS, Case, run

NAME = "prefill"
OWN, GROUP_KEY, TRAJECTORY_KEY = VARIANTS[0].name, "memory", "trajectory"
ENGINES, TURNS = 2, 6
COUNTED = ((Case(2, 8, TURNS), 5.0), (Case(1, 16, TURNS), 9.0))
"""Documents, siblings and turns, and the target against memory first."""
TIMED = Case(4, 8, TURNS)
Row = Mapping[str, Any]


def measure(quick: bool = False) -> list[Outcome]:
    lines: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name, redirect_stdout(sys.stderr):
        counted = COUNTED[:1] if quick else COUNTED
        rows = _run(Path(name) / "small", [case for case, _ in counted], SMALL, 1, (OWN, GROUP_KEY))
        for case, target in counted:
            lines += of_counts(_named(rows, case, OWN), _named(rows, case, GROUP_KEY), target)
        if not quick:
            rows = _run(Path(name) / "large", [TIMED], LARGE, 2, (OWN, TRAJECTORY_KEY))
            lines += of_times(_named(rows, TIMED, OWN), _named(rows, TIMED, TRAJECTORY_KEY))
    return lines


def _run(folder: Path, cases: Sequence[Case], shape: Any, repeat: int, names: Sequence[str]) -> list[dict[str, Any]]:
    variants = [variant for variant in VARIANTS if variant.name in names]
    return asyncio.run(run(folder, cases, shape, ENGINES, repeat, variants))


def _named(rows: Sequence[Row], case: Case, variant: str) -> list[Row]:
    shape = (case.documents, case.siblings, case.turns, variant)
    return [row for row in rows if (row["documents"], row["siblings"], row["turns"], row["variant"]) == shape]


def of_counts(own: Sequence[Row], memory_first: Sequence[Row], target: float) -> list[Outcome]:
    """Lines of one case: the pack's own variant, and memory first with a key for each group."""
    first = own[0]
    shape = f"G {first['siblings']}, {first['turns']} turns, {first['chunk']}/{first['memory']}"
    turns = zip(first["computed_by_turn"], first["ideal_by_turn"], strict=True)
    by_turn = ", ".join(f"{computed:,}/{ideal:,}" for computed, ideal in turns)
    note = f"sent {first['sent']:,}, computed {first['computed']:,.0f}, ideal {first['ideal']:,} tokens"
    return [
        Outcome(NAME, f"computed prefill against whole blocks' ideal, {shape}",
                tuple(o["computed"] / o["ideal"] for o in own), target=1.05, at_most=True, note=note),
        Outcome(NAME, f"memory first computes, {shape}",
                tuple(m["computed"] / o["computed"] for o, m in zip(own, memory_first, strict=True)),
                target=target, note=f"times the prefill; ours, computed/ideal by turn: {by_turn}"),
    ]


def of_times(own: Sequence[Row], by_trajectory: Sequence[Row]) -> list[Outcome]:
    """Lines of the timed case: wall seconds of all trajectories, of nine tenths of them, and tokens."""
    first = own[0]
    shape = f"G {first['siblings']}, {first['turns']} turns, {first['chunk']}/{first['memory']}"
    pairs = list(zip(own, by_trajectory, strict=True))
    tokens = first["sent"] + first["replies"]
    return [
        Outcome(NAME, f"rollout against memory first with a key for each trajectory, {shape}",
                tuple(t["wall_s"] / o["wall_s"] for o, t in pairs), target=2.5,
                note="times as quick, by wall seconds, 27M parameters"),
        Outcome(NAME, f"the same by engines' CPU seconds, {shape}", tuple(t["cpu_s"] / o["cpu_s"] for o, t in pairs)),
        Outcome(NAME, f"until all trajectories have ended, {shape}", tuple(o["wall_s"] for o in own), unit="s"),
        Outcome(NAME, f"until 90% of them have, {shape}", tuple(o["p90_s"] for o in own), unit="s"),
        Outcome(NAME, f"prompt and reply tokens, {shape}", tuple(tokens / o["wall_s"] for o in own), unit="tokens/s"),
    ]


if __name__ == "__main__":
    print_alone(measure)
