"""The trainer's step against that of TRL's GRPOTrainer: the same model, rows and arithmetic, one thread each.

TRL has an environment of its own (requirements/bench-trl.txt; TRL_VENV names another folder than .venv-trl) and runs
as a process that steps when told, so the two take turns. Both do one GRPO step without KL on the 256 rows of a pocket
rollout: forward, backward, clipping, AdamW, in float32. TRL pads micro-batches of 64 rows. Before anything is timed,
their log-probs are compared: they must be the same numbers.

Every row is given an advantage, so that none is skipped: groups of equal rewards have none, and cost ours nothing and
TRL a full pass. With the rows' own advantages ours is measured besides.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..config import Config
from ..system.process_environment import process_environment
from ..training.rows import TrainRow
from ..training.trainer import Trainer
from .outcome import BenchmarkError, Outcome, print_alone
from .rows import FIRST, LAST, POCKET, pocket_rows
from .stopwatch import Sample, faster, interleaved, timed

NAME = "against_trl"
PACK = Path(__file__).parents[1]
MICRO_BATCH, TARGET = 64, 7.0
SAME = 1e-4
"""Of the sum of all log-probs, relative: both compute in float32."""


def measure(quick: bool = False) -> list[Outcome]:
    torch.set_num_threads(1)
    try:
        python = trl_python()
    except BenchmarkError as error:
        return [Outcome(NAME, _what(FIRST), target=TARGET, note=str(error))]
    trainer = Trainer(Config(hf_ckpt=str(POCKET), kl_coef=0.0, lr=0.0))
    return [
        line
        for rollout in ((FIRST,) if quick else (FIRST, LAST))
        for line in compare(trainer, python, rollout, pocket_rows(rollout), 2 if quick else 5)
    ]


def compare(trainer: Trainer, python: Path, rollout: str, rows: Sequence[TrainRow], rounds: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as scratch, Worker.started(python, rows, Path(scratch)) as theirs:
        old = trainer.log_probs(rows)
        ours, trl = sum(map(sum, old)), theirs.score()
        if abs(ours - trl) > SAME * abs(ours):
            raise BenchmarkError(f"TRL does other arithmetic: log-probs add to {trl:.6g}, ours to {ours:.6g}")
        theirs.step()
        trainer.train_step(rows, old)
        every = [replace(row, advantage=row.advantage or 0.1) for row in rows]
        samples = interleaved(
            {"TRL": theirs.step, "ours": lambda: timed(lambda: trainer.train_step(every, old)),
             "ours, own advantages": lambda: timed(lambda: trainer.train_step(rows, old))}, rounds
        )
    by_cpu, by_wall = faster(samples["TRL"], samples["ours"])
    own, own_wall = faster(samples["TRL"], samples["ours, own advantages"])
    tokens = sum(len(row.tokens) for row in rows)
    note = f"TRL {theirs.version}; log-probs add to {ours:.2f} in ours, {trl:.2f} in TRL's"
    lines = [Outcome(NAME, _what(rollout), tuple(by_cpu), target=TARGET if rollout == FIRST else None,
                     note=note, wall=tuple(by_wall), samples=samples),
             Outcome(NAME, f"{_what(rollout)}, with the rows' own advantages", tuple(own), wall=tuple(own_wall))]
    for name, computed in (("TRL", f"{theirs.tokens:,} with padding"), ("ours", f"{tokens:,} row tokens")):
        rates = tuple(tokens / s.cpu for s in samples[name])
        lines.append(Outcome(NAME, f"{name}, rows of the {rollout} rollout", rates, unit="tokens/s",
                             note=f"row tokens a CPU second; computes {computed}"))
    return lines


def _what(rollout: str) -> str:
    return f"step, pocket rows of the {rollout} rollout: times TRL's speed"


# --- TRL's process ------------------------------------------------------------------------------------------------


def trl_python() -> Path:
    """The Python of TRL's environment, installed by ``_common.sh`` if it is not there. Raises BenchmarkError."""
    folder = os.environ.get("TRL_VENV") or f"{sys.prefix}-trl"
    script = 'source "$1/_common.sh"; install_once "$2" trl "$(fingerprint bench-trl)" install_beside "$2" bench-trl'
    done = subprocess.run(["bash", "-c", script, "bash", PACK, folder], stdout=sys.stderr,
                          env=os.environ | {"VENV": sys.prefix})
    python = Path(folder) / "bin" / "python"
    if done.returncode or not python.exists():
        raise BenchmarkError("TRL's environment cannot be installed (requirements/bench-trl.txt); the log says why")
    return python


class Worker:
    """TRL's process; a step returns what it took."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.version, self.tokens = "", 0

    @classmethod
    @contextmanager
    def started(cls, python: Path, rows: Sequence[TrainRow], scratch: Path) -> Iterator[Worker]:
        quiet = {"HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true"}
        process = subprocess.Popen(
            [python, "-P", Path(__file__).with_name("trl_worker.py")], env=os.environ | process_environment(1) | quiet
            | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        try:
            worker = cls(process)
            told = worker._ask({
                "model": str(POCKET), "micro_batch": MICRO_BATCH, "scratch": str(scratch),
                "rows": [[row.tokens, row.response_length, row.advantage] for row in rows],
            })
            worker.version, worker.tokens = told["trl"], told["tokens"]
            yield worker
        finally:
            process.terminate()
            process.wait()

    def step(self) -> Sample:
        told = self._ask("step")
        return Sample(told["cpu"], told["wall"])

    def score(self) -> float:
        """The sum of the log-probs of all reply tokens."""
        return self._ask("score")["result"]

    def _ask(self, content: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(content), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # it has ended, which the empty answer says
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError("TRL's process ended without an answer; its own lines above say why")
        return json.loads(line)


if __name__ == "__main__":
    print_alone(measure)
