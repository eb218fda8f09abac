"""``python -m mem_agent.tests.faults suite | soak``: what a run survives, on the real stack. Prints a page."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from pathlib import Path

from mem_agent.system.command_line_types import positive_number
from mem_agent.system.one_line_errors import one_line_errors
from mem_agent.system.signals import stop_on_signals

from .soak import soak
from .suite import SHAPES, names, suite

NAMED = {f"{shape.engines}x{shape.ranks}": shape for shape in SHAPES}


@one_line_errors("no page is written; what was survived so far is above")
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mem_agent.tests.faults", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    whole = commands.add_parser("suite", help="every fault in every moment, as a table")
    whole.add_argument("--shapes", nargs="+", choices=NAMED, default=list(NAMED),
                       help="engines x trainer processes; default: all")
    whole.add_argument("--only", type=_part_of_a_name, default="", metavar="PART",
                       help="faults and hosts whose names hold this; default: all")
    long = commands.add_parser("soak", help="hours of a pocket run under random faults")
    long.add_argument("--hours", type=_hours, default=2.0, help="how long; default: %(default)s")
    long.add_argument("--seed", type=int, default=1, help="draws the faults; default: %(default)s")
    long.add_argument("--engines", type=positive_number, default=1, help="default: %(default)s")
    long.add_argument("--ranks", type=positive_number, default=1, help="trainer processes; default: %(default)s")
    long.add_argument("--samples", type=Path, metavar="FILE", help="append what is measured, as JSON lines")
    options = parser.parse_args()
    stop_on_signals()
    if options.command == "suite":
        page, well = suite([NAMED[name] for name in options.shapes], options.only)
    else:
        page, well = soak(
            options.hours, options.seed, options.samples, NUM_ENGINES=options.engines, TRAIN_PROCS=options.ranks
        )
    print(page)
    return 0 if well else 1


def _part_of_a_name(text: str) -> str:
    if not any(text in name for name in names()):
        raise argparse.ArgumentTypeError(f"{text!r} is in no name; there are {', '.join(sorted(names()))}")
    return text


def _hours(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r}: allowed: a number above 0")


if __name__ == "__main__":
    sys.exit(main())
