"""The benchmarks by name. Each is a module with ``measure(quick) -> list[Outcome]`` and runs in a process of its own,
so that neither its memory, nor its threads, nor its failure reach the next one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import orjson

from ..system.python_command import python_module
from .outcome import BenchmarkError, Outcome, from_json, table, to_json

BENCHMARKS = {
    "trainer": "rows as tries against rows: passes and steps, and their share of a matrix product's speed",
    "against_trl": "the trainer's step against that of TRL's GRPOTrainer, on the same rows",
    "converter": "2,048 trajectories of 8 turns of 6,000 tokens to training rows: time and memory",
    "tracing": "what keeping trajectories adds to a rollout of 64 trajectories of 8 turns",
    "rewards": "the rewards of 2,048 answers, and state rewards of 2,048 trajectories",
    "intrinsic": "the memory of MEM_IR=knn+ with 10,000 questions of 100 vectors: time, memory, state; embeddings",
    "sifter": "MemSifter's pre-filter and packing of 500 sessions; stage 1 over 10,000 questions: time and memory",
    "answer_utility": "REWARD=answer_utility: 96 rankings of 7 tiers against a chat model that takes 200 ms",
    "recall": "what AGENT=rememr1 does between two requests: retrieval, reading a reply",
    "evaluation": "the evaluation client: its own share of a run, memory for a long document, tables of many rows",
    "endpoint": "what mem-agent serve adds to a turn, and how long its loop is away with 64 documents at once",
    "viewer": "the page of 1,024 trajectories: writing it, its size, opening it in a browser",
    "synthesis": "evaluation files of up to 6400 documents: time and memory",
    "prefill": "rollouts on engines: prefill against what whole blocks allow, and against memory first; wall seconds",
    "pocket": "the pocket run, bash run-train.sh: wall seconds by phase",
}
"""Name of the module -> what it measures."""


def chosen(names: Sequence[str]) -> list[str]:
    """All without a name, else those named, in the suite's order. Raises BenchmarkError: an unknown one."""
    for name in names:
        if name not in BENCHMARKS:
            raise BenchmarkError(f"no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    return [name for name in BENCHMARKS if name in names or not names]


def run(names: Sequence[str], *, quick: bool) -> Iterator[Outcome]:
    """What each one finds; one that fails gives a line that says so, and the rest goes on."""
    for name in names:
        print(f"benchmark {name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = python_module(f"{__package__}.suite", name, file.name, *["--quick"] * quick)
            child = subprocess.Popen(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
            assert child.stderr is not None
            last = ""
            for line in child.stderr:
                sys.stderr.write(line)
                last = line.strip() or last
            if child.wait() == 0:
                found = [from_json(one) for one in orjson.loads(Path(file.name).read_bytes())]
                print(table(found), file=sys.stderr, flush=True)
                yield from found
            else:
                reason = last.removeprefix("error: ") or f"its process ended with {child.returncode}"
                yield Outcome(name, "all of it", note=reason)


def measure_to(name: str, path: Path, *, quick: bool) -> None:
    """What a process of one benchmark does."""
    found = import_module(f"{__package__}.{name}").measure(quick)
    path.write_bytes(orjson.dumps([to_json(outcome) for outcome in found]))


def main(arguments: Sequence[str]) -> int:
    from ..system.one_line_errors import one_line_errors

    name, path, *rest = arguments

    @one_line_errors("nothing was measured")
    def measured() -> int:
        measure_to(name, Path(path), quick="--quick" in rest)
        return 0

    return measured()


if __name__ == "__main__":
    from ..system.process_environment import settle_process

    settle_process()
    sys.exit(main(sys.argv[1:]))
