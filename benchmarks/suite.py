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
    "sifter": "MemSifter's packing of 500 sessions; stage 1 over 10,000 questions; stages 2 and 3 against a full window",
    "endpoint": "mem-agent serve: CPU of a turn, and how long others wait with 64 documents at once",
    "prefill": "rollouts on engines: prefill against what whole blocks allow, and against memory first; wall seconds",
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
