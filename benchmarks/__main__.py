"""The benchmarks: ``mem-agent bench [NAME...]``, or ``python -m mem_agent.benchmarks [NAME...]``.

    mem-agent bench --list                       what there is
    mem-agent bench --output speed.json          all of it, about 20 minutes on two cores
    mem-agent bench trainer converter --quick    two of them, with the fewest repetitions

Seeds are fixed. Alternatives are measured in turns and compared round by round, so a busy machine slows both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

from ..system.files import write_atomically
from ..system.one_line_errors import one_line_errors
from . import machine
from .outcome import table, to_json
from .suite import BENCHMARKS, chosen, run


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent bench", description="Measure this machine, side by side.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all; --list names them)")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and what they measure")
    parser.add_argument("--quick", action="store_true", help="fewest repetitions; the longest parts are cut short")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="every sample, and the machine")
    return parser


@one_line_errors("what was measured is lost")
def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.list:
        print("\n".join(f"{name:14}{what}" for name, what in BENCHMARKS.items()))
        return 0
    names = chosen(options.names)
    if options.output:
        options.output.touch()  # hours are not spent on a file that cannot be written
    found, began = machine.describe(), time.time()
    outcomes = list(run(names, quick=options.quick))
    if options.output:
        content = {
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)), "seconds": round(time.time() - began, 1),
            "quick": options.quick, "names": names, "machine": found | {"load_after": machine.describe()["load"]},
            "outcomes": [to_json(outcome) for outcome in outcomes],
        }
        write_atomically(options.output, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    print(f"{machine.line(found)}\n\n{table(outcomes)}", flush=True)
    return 0


if __name__ == "__main__":
    from ..system.process_environment import settle_process

    settle_process()
    sys.exit(main())
