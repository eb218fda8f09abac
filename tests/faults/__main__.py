"""``python -m mem_agent.tests.faults suite | soak``: what a run survives, on the real stack."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
from collections import defaultdict

import numpy as np
import psutil

from mem_agent.system.cli import stop_on_signals

from . import drill as d
from .faults import DISK_FULL, ENGINE_KILLED, MATRIX, ROUTER_KILLED, Announcement, Moment

BUSY = (Moment.SAMPLING, Moment.EVALUATION)


def suite() -> None:
    """Every fault in every moment, one in each rollout, and the faults of an evaluation."""
    chosen = [pair for pair in MATRIX if d.can_mount() or pair[0] is not DISK_FULL]
    strikes = [d.Strike(fault, moment, rollout, 9 if moment in BUSY else 1)
               for rollout, (fault, moment) in enumerate(chosen, start=1)]
    d.drill_like_unbroken(strikes, len(strikes) + 2)
    asked = [fault for fault in d.EVAL_FAULTS if d.can_mount() or fault is not DISK_FULL]
    d.eval_drill(asked)
    print(f"survived: {len(strikes)} faults in a training and {len(asked)} in an evaluation")


def soak(rollouts: int, seed: int) -> None:
    """A run whose engine or router is killed every 15 rollouts, and whether memory or handles of a process grow.

    The trainer lives on, since one that has just started seems to grow. Of each process the medians of the last two
    quarters of its samples count, one at the first turn of each rollout.
    """
    draw, measured = random.Random(seed), defaultdict(list)
    pairs = [pair for pair in MATRIX if pair[0] in (ENGINE_KILLED, ROUTER_KILLED) and pair[1] is not Moment.EVALUATION]
    strikes = [d.Strike(*draw.choice(pairs), rollout) for rollout in range(15, rollouts - 20, 15)]
    with d.scene() as place:
        def measure(told: Announcement) -> None:
            if (told.moment, told.count) == (Moment.SAMPLING, 1):
                for process in place.processes():
                    with contextlib.suppress(psutil.Error):
                        info = process.memory_info()
                        private = (info.rss - info.shared) / 2**20  # without libraries
                        measured[f"{process.name()} {process.pid}"].append((private, process.num_fds()))

        d.drill(place, d.settings(place, NUM_ROLLOUT=rollouts, SAVE_INTERVAL=5, KEEP_TRAJECTORIES=0, LR=1e-6),
                strikes, watch=measure)
    grows = []
    for process, values in measured.items():
        # Growth below 20 MB or 4 handles is none: an arena of the allocator, a pool that opens on demand.
        before, after = (np.median(part, axis=0) for part in np.array_split(values, 4)[2:])
        if len(values) > 200 and (after - before > np.maximum([20.0, 4.0], 0.05 * before)).any():
            grows.append(f"{process}: MB and handles grow from {before} to {after}")
    print(f"survived: {len(strikes)} faults in {rollouts} rollouts; {'; '.join(grows) or 'nothing grows'}")
    assert not grows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mem_agent.tests.faults", description=__doc__)
    parser.add_argument("command", choices=["suite", "soak"], help="every fault in every moment | a long run")
    parser.add_argument("--rollouts", type=int, default=4000, help="of the soak; default: %(default)s, some two hours")
    parser.add_argument("--seed", type=int, default=1, help="draws the faults of the soak; default: %(default)s")
    options = parser.parse_args()
    stop_on_signals()
    if options.command == "suite":
        suite()
    else:
        soak(options.rollouts, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
