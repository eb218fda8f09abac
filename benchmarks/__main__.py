"""The benchmarks: ``mem-agent bench [NAME...]``.

    mem-agent bench --list                       what there is
    mem-agent bench --output speed.json          all of it, about 20 minutes on two cores
    mem-agent bench trainer converter --quick    two of them, with the fewest repetitions

Each is a module with ``measure(quick) -> list[Outcome]`` and runs in a process of its own, so that neither its memory,
nor its threads, nor its failure reach the next one. Seeds are fixed.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import orjson
import psutil

from ..system.one_line_errors import one_line_errors
from .outcome import BenchmarkError, Outcome, measure, table

BENCHMARKS = {
    "trainer": "rows as tries against rows",
    "against_trl": "the trainer's step against that of TRL's GRPOTrainer, on the same rows",
    "converter": "2,048 trajectories of 8 turns of 6,000 tokens to training rows: time and memory",
    "sifter": "MemSifter's stage 1 over 10,000 questions: time and memory; stages 2 and 3 against a full window",
    "endpoint": "mem-agent serve: CPU of a turn, and how long others wait with 64 documents at once",
    "rollout": "rollouts on engines: prefill against what whole blocks allow, and against memory first; wall seconds",
}
"""Name of the module -> what it measures."""


def run(names: Sequence[str], *, quick: bool) -> Iterator[Outcome]:
    """What each one finds; one that fails gives a line that says so, and the rest goes on."""
    for name in names:
        print(f"benchmark {name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
        # os.dup2: what libraries print goes to standard error, as the table alone is the command's output.
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=os.dup2, initargs=(2, 1)) as pool:
            try:
                found = pool.submit(measure, f"{__package__}.{name}", quick).result()
            except Exception as error:
                if not isinstance(error, BenchmarkError):
                    traceback.print_exc()
                found = [Outcome(name, "all of it", note=str(error))]
        print(table(found), file=sys.stderr, flush=True)
        yield from found


def machine() -> str:
    """What is measured on, before anything is measured."""
    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    packages = ("torch", "megatron-core", "transformers", "vllm", "vllm-router", "numpy")
    git = subprocess.run(["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"],
                         capture_output=True, text=True)
    return ", ".join([
        *names[:1], f"{len(os.sched_getaffinity(0))} cores", f"{psutil.virtual_memory().total / 1e9:.1f} GB",
        f"load average {os.getloadavg()[0]:.2f} at the start", f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in packages), f"commit {git.stdout.strip() or 'unknown'}",
    ])


@one_line_errors("what was measured is lost")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent bench", description="Measure this machine, side by side.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all; --list names them)")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and what they measure")
    parser.add_argument("--quick", action="store_true", help="fewest repetitions; the longest parts are cut short")
    parser.add_argument("--output", type=argparse.FileType("wb"), metavar="FILE.json",
                        help="what every round measured, and the machine")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{name:14}{what}" for name, what in BENCHMARKS.items()))
        return 0
    if unknown := set(options.names) - set(BENCHMARKS):
        raise BenchmarkError(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}")
    measured_on, began = machine(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    outcomes = list(run(options.names or list(BENCHMARKS), quick=options.quick))
    if options.output:
        content = {"began": began, "quick": options.quick, "machine": measured_on, "outcomes": outcomes}
        options.output.write(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    print(f"{measured_on}\n\n{table(outcomes)}")
    return 0


if __name__ == "__main__":
    from ..system.process_environment import settle_process

    settle_process()
    sys.exit(main())
