"""The trainer's step against that of TRL's GRPOTrainer: the same model, rows and arithmetic, one thread each.

TRL has an environment of its own (requirements/bench-trl.txt; TRL_VENV names another folder than .venv-trl) and runs
as a process that steps when told (``trl_worker.py``), so the two take turns. Both do one GRPO step without KL on the
256 rows of a pocket rollout: forward, backward, clipping, AdamW, in float32. TRL pads micro-batches of 64 rows. Before
anything is timed, their log-probs are compared: they must be the same numbers.

Every row is given an advantage, so that none is skipped: groups of equal rewards have none, and cost ours nothing and
TRL a full pass.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..config import Config
from ..system.process_environment import process_environment
from ..training.trainer import Trainer
from .outcome import BenchmarkError, Outcome, cpu_seconds, ratios
from .trainer import FIRST, LAST, POCKET, pocket_rows

NAME = "against_trl"
PACK = Path(__file__).parents[1]
MICRO_BATCH, TARGET = 64, 7.0
SAME = 1e-4
"""Of the sum of all log-probs, relative: both compute in float32."""


def measure(quick: bool = False) -> list[Outcome]:
    torch.set_num_threads(1)
    python = trl_python()
    trainer = Trainer(Config(hf_ckpt=str(POCKET), kl_coef=0.0, lr=0.0))
    return [compare(trainer, python, rollout, 2 if quick else 5) for rollout in ((FIRST,) if quick else (FIRST, LAST))]


def compare(trainer: Trainer, python: Path, rollout: str, rounds: int) -> Outcome:
    rows = [replace(row, advantage=row.advantage or 0.1) for row in pocket_rows(rollout)]
    quiet = {"HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true", "OMP_NUM_THREADS": "1"}
    command = [python, "-P", Path(__file__).with_name("trl_worker.py")]
    with tempfile.TemporaryDirectory() as scratch, subprocess.Popen(
        command, env=os.environ | process_environment(1) | quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as process:
        def ask(content: Any) -> Any:
            print(json.dumps(content), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                raise BenchmarkError("TRL's process ended without an answer; its own lines above say why")
            return json.loads(answer)

        try:
            version = ask({"model": str(POCKET), "micro_batch": MICRO_BATCH, "scratch": scratch,
                           "rows": [[row.tokens, row.response_length, row.advantage] for row in rows]})
            old = trainer.log_probs(rows)
            ours, trl = sum(map(sum, old)), ask("score")
            if abs(ours - trl) > SAME * abs(ours):
                raise BenchmarkError(f"TRL does other arithmetic: log-probs add to {trl:.6g}, ours to {ours:.6g}")
            ask("step")
            trainer.train_step(rows, old)
            found = ratios(lambda: ask("step"), lambda: cpu_seconds(lambda: trainer.train_step(rows, old)), rounds)
        finally:
            process.terminate()
    return Outcome(NAME, f"step, pocket's {rollout} rollout: times TRL's speed", found,
                   target=TARGET if rollout == FIRST else None,
                   note=f"TRL {version}; log-probs add to {ours:.2f} in ours, {trl:.2f} in TRL's")


def trl_python() -> Path:
    """The Python of TRL's environment, installed by ``_common.sh`` if it is not there. Raises BenchmarkError."""
    folder = os.environ.get("TRL_VENV") or f"{sys.prefix}-trl"
    script = 'source "$1/_common.sh"; install_once "$2" trl "$(fingerprint bench-trl)" install_beside "$2" bench-trl'
    done = subprocess.run(["bash", "-c", script, "bash", PACK, folder], stdout=sys.stderr,
                          env=os.environ | {"VENV": sys.prefix})
    if done.returncode:
        raise BenchmarkError("TRL's environment cannot be installed (requirements/bench-trl.txt); the log says why")
    return Path(folder) / "bin" / "python"
