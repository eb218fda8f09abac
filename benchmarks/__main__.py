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
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson
import psutil

from ..system.files import write_atomically
from ..system.one_line_errors import one_line_errors
from .outcome import BenchmarkError, Outcome, table

BENCHMARKS = {
    "trainer": "rows as tries against rows, and bfloat16 against float32 where the processor has it",
    "against_trl": "the trainer's step against that of TRL's GRPOTrainer, on the same rows",
    "converter": "2,048 trajectories of 8 turns of 6,000 tokens to training rows: time and memory",
    "sifter": "MemSifter's pre-filter and packing of 500 sessions; stage 1 over 10,000 questions: time and memory",
    "endpoint": "mem-agent serve: CPU of a turn, and how long others wait with 64 documents at once",
    "rollout": "rollouts on engines: prefill against what whole blocks allow, and against memory first; wall seconds",
}
"""Name of the module -> what it measures."""
PACKAGES = ("torch", "megatron-core", "transformers", "vllm", "vllm-router", "numpy")


def run(names: Sequence[str], *, quick: bool) -> Iterator[Outcome]:
    """What each one finds; one that fails gives a line that says so, and the rest goes on."""
    for name in names:
        print(f"benchmark {name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
        # os.dup2: what libraries print goes to standard error, as the table alone is the command's output.
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=os.dup2, initargs=(2, 1)) as pool:
            try:
                found = pool.submit(_measure, name, quick).result()
            except Exception as error:
                if not isinstance(error, BenchmarkError):
                    traceback.print_exc()
                found = [Outcome(name, "all of it", note=str(error))]
        print(table(found), file=sys.stderr, flush=True)
        yield from found


def _measure(name: str, quick: bool) -> list[Outcome]:
    return import_module(f"{__package__}.{name}").measure(quick)


def machine() -> dict[str, Any]:
    """What is measured on; ``load`` is the load average of the last minute, five and fifteen."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    named = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    git = subprocess.run(["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"],
                         capture_output=True, text=True)
    return {
        "cpu": named[0] if named else platform.machine(), "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1), "load": [round(x, 2) for x in os.getloadavg()],
        "python": platform.python_version(), "versions": versions, "commit": git.stdout.strip() or "unknown",
    }


@one_line_errors("what was measured is lost")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent bench", description="Measure this machine, side by side.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all; --list names them)")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and what they measure")
    parser.add_argument("--quick", action="store_true", help="fewest repetitions; the longest parts are cut short")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="every sample, and the machine")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{name:14}{what}" for name, what in BENCHMARKS.items()))
        return 0
    if unknown := set(options.names) - set(BENCHMARKS):
        raise BenchmarkError(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}")
    if options.output:
        options.output.touch()  # a file that cannot be written fails now and not after an hour
    before, began = machine(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    outcomes = list(run([name for name in BENCHMARKS if name in options.names or not options.names],
                        quick=options.quick))
    if options.output:
        content = {"began": began, "quick": options.quick, "machine": before, "outcomes": outcomes}
        write_atomically(options.output, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    versions = ", ".join(f"{name} {found}" for name, found in before["versions"].items())
    print(f"{before['cpu']}, {before['cores']} cores, {before['memory_gb']:g} GB; load average {before['load'][0]:g} "
          f"at the start; Python {before['python']}, {versions}; commit {before['commit']}\n\n{table(outcomes)}")
    return 0


if __name__ == "__main__":
    from ..system.process_environment import settle_process

    settle_process()
    sys.exit(main())
