"""``python -m mem_agent.tests.faults suite | soak``: what a run survives, on the real stack. Prints a page."""

from __future__ import annotations

import argparse
import sys

from .soak import soak
from .suite import SHAPES, suite

NAMED = {f"{shape.engines}x{shape.ranks}": shape for shape in SHAPES}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mem_agent.tests.faults", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    whole = commands.add_parser("suite", help="every fault in every moment, as a table")
    whole.add_argument("--shapes", nargs="+", choices=NAMED, default=list(NAMED),
                       help="engines x trainer processes; default: all")
    whole.add_argument("--only", default="", metavar="PART", help="faults whose names hold this")
    long = commands.add_parser("soak", help="hours of a pocket run under random faults")
    long.add_argument("--hours", type=float, default=2.0)
    long.add_argument("--seed", type=int, default=1)
    long.add_argument("--engines", type=int, default=1)
    long.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    if options.command == "suite":
        page, well = suite([NAMED[name] for name in options.shapes], options.only)
    else:
        page, well = soak(options.hours, options.seed, NUM_ENGINES=options.engines, TRAIN_PROCS=options.ranks)
    print(page)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
