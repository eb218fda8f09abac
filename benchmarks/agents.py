"""Agents beside each other on one server: ``python -m mem_agent.benchmarks.agents --model FOLDER --data-root FOLDER``.

Every agent answers the same questions with the same seeds, one agent after the other, and a line says what it cost::

    | agent | length | chunks | chunks read | turns | rounds | seconds a document | seconds in all | sub_em |

``rounds`` are the turns that had to wait for the ones before them. ``seconds a document`` is the mean time from its
first request to its answer; with MEM_CONCURRENCY=1 nothing but the agent itself makes it wait. ``--url`` names a
running server, else one is started for all of them (``serving.serve_engines``) and stopped at the end. A round of
questions that are not counted comes first, so that no agent pays for a cold server.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from ..agents import AGENTS
from ..config import Config
from ..evaluation import run as evaluation
from ..evaluation.results import Row, read_rows
from ..system.python_command import python_module

HEADER = (
    "| agent | length | chunks | chunks read | turns | rounds | seconds a document | seconds in all | sub_em |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def compare(
    agents: Sequence[str], lengths: Sequence[str], data_root: Path, model: Path, url: str, config: Config, output: Path
) -> Iterator[str]:
    """One line for each agent and length; results are left in ``output``."""
    others = replace(config, seed=config.seed + 1)
    with redirect_stdout(sys.stderr):
        evaluation.run(data_root, lengths[:1], model, url, others, output / "warm", quiet=True)
    for agent in agents:
        for length in lengths:
            folder = output / f"{agent}-{length}"
            began = time.perf_counter()
            with redirect_stdout(sys.stderr):
                evaluation.run(data_root, [length], model, url, replace(config, agent=agent), folder, quiet=True)
            yield line(agent, length, read_rows(folder, length), time.perf_counter() - began)


def line(agent: str, length: str, rows: Sequence[Row], seconds: float) -> str:
    """A failed answer counts as wrong, and in no other mean."""
    answered = [row for row in rows if row.failure is None]
    costs = [fmean(row.counts[name] for row in answered) for name in ("chunks", "chunks_read", "turns", "rounds")]
    each, right = fmean(row.seconds for row in answered), fmean(row.scores["sub_em"] for row in rows)
    shown = " | ".join(f"{cost:.2f}" for cost in costs)
    return f"| {agent} | {length} | {shown} | {each:.3f} | {seconds:.1f} | {100 * right:.1f} |"


@contextmanager
def serving(model: Path, config: Config, folder: Path) -> Iterator[str]:
    """A server of its own for ``model``; what it says is in ``folder``."""
    settings = {"ENGINE_MAX_LEN": str(config.engine_max_len), "SAVE_PATH": str(folder)}
    command = python_module("mem_agent.serving.serve_engines", "--model", str(model))
    with (folder / "serve.log").open("wb") as log, subprocess.Popen(
        command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().split()
            if not ready:
                sys.exit(f"the server for {model} did not start:\n{(folder / 'serve.log').read_text()[-2000:]}")
            yield ready[1]
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare agents on one server.")
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder of the model")
    parser.add_argument("--data-root", type=Path, required=True, help="folder of eval_<length>.json")
    parser.add_argument("--length", help="lengths, separated by blanks (default: LENGTH)")
    parser.add_argument("--agents", default=" ".join(AGENTS), help="agents, separated by blanks (default: all)")
    parser.add_argument("--url", help="a running server of the model (default: start one)")
    options = parser.parse_args()
    agents, lengths = options.agents.split(), (options.length or Config.from_env().length).split()
    # The longest turn of any of them has to fit the one server.
    configs = [evaluation.engine_config(replace(Config.from_env(), agent=agent), options.model) for agent in agents]
    config = max(configs, key=lambda c: c.engine_max_len)
    with tempfile.TemporaryDirectory() as name:
        server = nullcontext(options.url) if options.url else serving(options.model, config, Path(name))
        with server as url:
            print(HEADER, flush=True)
            for text in compare(agents, lengths, options.data_root, options.model, url, config, Path(name)):
                print(text, flush=True)


if __name__ == "__main__":
    main()
