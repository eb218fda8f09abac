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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..config import Config
from ..system.process_environment import process_environment
from ..training.rows import TrainRow
from ..training.trainer import Trainer
from .outcome import BenchmarkError, Outcome, Sample, interleaved, ratio, timed
from .trainer import FIRST, LAST, POCKET, pocket_rows

NAME = "against_trl"
PACK = Path(__file__).parents[1]
MICRO_BATCH, TARGET = 64, 7.0
Ask = Callable[[Any], dict[str, Any]]
SAME = 1e-4
"""Of the sum of all log-probs, relative: both compute in float32."""


def measure(quick: bool = False) -> list[Outcome]:
    torch.set_num_threads(1)
    python = trl_python()
    trainer = Trainer(Config(hf_ckpt=str(POCKET), kl_coef=0.0, lr=0.0))
    return [
        line
        for rollout in ((FIRST,) if quick else (FIRST, LAST))
        for line in compare(trainer, python, rollout, pocket_rows(rollout), 2 if quick else 5)
    ]


def compare(trainer: Trainer, python: Path, rollout: str, rows: Sequence[TrainRow], rounds: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as scratch, trl_process(python, rows, Path(scratch)) as (ask, about):
        old = trainer.log_probs(rows)
        ours, trl = sum(map(sum, old)), ask("score")["result"]
        if abs(ours - trl) > SAME * abs(ours):
            raise BenchmarkError(f"TRL does other arithmetic: log-probs add to {trl:.6g}, ours to {ours:.6g}")

        def step() -> Sample:
            told = ask("step")
            return Sample(told["cpu"], told["wall"])

        step()
        trainer.train_step(rows, old)
        every = [replace(row, advantage=row.advantage or 0.1) for row in rows]
        samples = interleaved(
            {"TRL": step, "ours": lambda: timed(lambda: trainer.train_step(every, old)),
             "ours, own advantages": lambda: timed(lambda: trainer.train_step(rows, old))}, rounds
        )
    tokens = sum(len(row.tokens) for row in rows)
    note = (f"TRL {about['trl']}; log-probs add to {ours:.2f} in ours, {trl:.2f} in TRL's; {tokens:,} row tokens, "
            f"{about['tokens']:,} with TRL's padding")
    what = f"step, pocket's {rollout} rollout: times TRL's speed"
    rates = tuple(tokens / s.cpu for s in samples["ours"])
    return [
        ratio(NAME, what, samples["TRL"], samples["ours"], TARGET if rollout == FIRST else None, note),
        ratio(NAME, f"{what}, with the rows' own advantages", samples["TRL"], samples["ours, own advantages"]),
        Outcome(NAME, f"ours, {rollout} rollout", rates, unit="tokens/s", note="row tokens a CPU second"),
    ]


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


@contextmanager
def trl_process(python: Path, rows: Sequence[TrainRow], scratch: Path) -> Iterator[tuple[Ask, dict[str, Any]]]:
    """TRL's process as a function that asks it something, and what it says about itself."""
    quiet = {"HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true", "OMP_NUM_THREADS": "1"}
    command = [python, "-P", Path(__file__).with_name("trl_worker.py")]
    with subprocess.Popen(command, env=os.environ | process_environment(1) | quiet, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(content: Any) -> dict[str, Any]:
            print(json.dumps(content), file=stdin, flush=True)
            line = stdout.readline()
            if not line:
                raise BenchmarkError("TRL's process ended without an answer; its own lines above say why")
            return json.loads(line)

        try:
            yield ask, ask({
                "model": str(POCKET), "micro_batch": MICRO_BATCH, "scratch": str(scratch),
                "rows": [[row.tokens, row.response_length, row.advantage] for row in rows],
            })
        finally:
            process.terminate()
