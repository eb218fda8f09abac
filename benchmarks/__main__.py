"""The benchmark suite: ``mem-agent bench [NAME...]``, or ``python -m mem_agent.benchmarks [NAME...]``.

    mem-agent bench --list                                  what there is
    mem-agent bench --output speed.json                     all of it, about half an hour on two cores
    mem-agent bench trainer converter --quick               two of them, with the fewest repetitions
    mem-agent bench --gate                                  exit code 1 where a ratio is 15% worse than baseline.json
    mem-agent bench --read speed.json --markdown docs/speed.md    the table of an earlier run, into the page

Seeds are fixed. Alternatives are measured in turns and compared round by round, so a busy machine slows both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..system.one_line_errors import one_line_errors
from . import machine
from .gate import BASELINE, failures, read_baseline, write_baseline
from .outcome import table
from .report import Report, check_writable, into_page, read, write
from .suite import BENCHMARKS, chosen, run


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent bench", description="Measure this machine, side by side.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all; --list names them)")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and what they measure")
    parser.add_argument("--quick", action="store_true", help="fewest repetitions; the longest parts are cut short")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="every sample, and the machine")
    parser.add_argument("--read", type=Path, metavar="FILE.json", help="measure nothing: take an earlier run's output")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write the table between the marks of this page")
    parser.add_argument("--gate", action="store_true", help="compare ratios with the baseline; exit code 1 if worse")
    parser.add_argument("--write-baseline", action="store_true", help="make this run's ratios the baseline")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="another file than benchmarks/baseline.json")
    return parser


@one_line_errors("what was measured is lost")
def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.list:
        print("\n".join(f"{name:14}{what}" for name, what in BENCHMARKS.items()))
        return 0
    names = chosen(options.names)
    for path in (options.output, options.markdown, options.baseline if options.write_baseline else None):
        if path is not None:
            check_writable(path)
    baseline = read_baseline(options.baseline) if options.gate else None
    report = read(options.read, names) if options.read else _measured(names, quick=options.quick)
    if options.output:
        write(options.output, report)
    print(f"{machine.line(report.machine)}\n\n{table(report.outcomes)}", flush=True)
    if options.markdown:
        into_page(options.markdown, report)
    if options.write_baseline:
        count = write_baseline(options.baseline, report.outcomes, report.machine, report.names)
        print(f"{count} ratios written to {options.baseline}", file=sys.stderr)
    found = failures(report.outcomes, baseline, report.names) if baseline else []
    for line in found:
        print(f"gate: {line}", file=sys.stderr)
    return 1 if found else 0


def _measured(names: Sequence[str], *, quick: bool) -> Report:
    before, began = machine.describe(), time.time()
    outcomes = list(run(names, quick=quick))
    return Report(before | {"load_after": machine.describe()["load"]}, tuple(names), quick, began,
                  time.time() - began, outcomes)


if __name__ == "__main__":
    from ..system.process_environment import settle_process

    settle_process()
    sys.exit(main())
