"""The benchmarks: ``mem-agent bench [NAME...]``.

    mem-agent bench --list                       what there is
    mem-agent bench --output speed.json          all of it, about 20 minutes on two cores
    mem-agent bench trainer converter --quick    two of them, with the fewest repetitions

Each is a function of ``quick`` that returns outcomes, and runs in a process of its own, so that neither its memory,
nor its threads, nor its failure reach the next one. Seeds are fixed.
"""

import argparse
import os
import platform
import re
import subprocess
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import orjson
import psutil

from ..system.cli import one_line_errors
from .outcome import Outcome, measure, table

BENCHMARKS = {
    "trainer": ("trainer:measure", "rows as tries against rows"),
    "against_trl": ("trainer:against_trl", "the trainer's step against that of TRL's GRPOTrainer, on the same rows"),
    "converter": ("converter:measure", "2,048 trajectories of 8 turns of 6,000 tokens to rows: time and memory"),
    "sifter": ("sifter:measure", "stage 1, 10,000 questions: time, memory; stages 2 and 3 against a full window"),
    "endpoint": ("endpoint:measure", "serve: CPU of a turn, and how long others wait with 64 documents at once"),
    "rollout": ("rollout:measure", "prefill against what whole blocks allow, and against memory first; wall seconds"),
}
"""Name -> its function, and what it measures."""
_PACKAGES = ("torch", "megatron-core", "transformers", "vllm", "vllm-router", "numpy")


def run(name: str, *, quick: bool) -> list[Outcome]:
    """What a benchmark finds; of one that fails a line that says so."""
    # os.dup2: what libraries print goes to standard error, as the table alone is the command's output.
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=os.dup2, initargs=(2, 1)) as pool:
        try:
            return pool.submit(measure, BENCHMARKS[name][0], quick).result()
        except Exception as error:
            traceback.print_exc()
            return [Outcome(name, note=str(error))]


def machine() -> str:
    """What is measured on and when, by UTC's date, before anything is measured."""
    cpu = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    git = subprocess.run(["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"],
                         capture_output=True, text=True)
    return ", ".join([
        f"{datetime.now(UTC):%Y-%m-%d}", *cpu[:1], f"{len(os.sched_getaffinity(0))} cores",
        f"{psutil.virtual_memory().total / 1e9:.1f} GB", f"load average {os.getloadavg()[0]:.2f}",
        f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in _PACKAGES),
        f"commit {git.stdout.strip() or 'unknown'}"])


@one_line_errors("what was measured is printed above")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent bench", description="Measure this machine, side by side.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all; --list names them)")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and what they measure")
    parser.add_argument("--quick", action="store_true", help="fewest repetitions; the longest parts are cut short")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="what every round measured, and the machine")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(f"{name:14}{what}" for name, (_, what) in BENCHMARKS.items()))
        return 0
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    measured_on, found = machine(), dict[str, list[Outcome]]()
    print(measured_on, flush=True)
    for name in options.names or BENCHMARKS:
        found[name] = run(name, quick=options.quick)
        print(f"\n### {name}\n\n{table(found[name])}", flush=True)
    if options.output:
        content = {"quick": options.quick, "machine": measured_on, "outcomes": found}
        options.output.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return 0
