"""What makes two evaluations the same: rows made from other data, another model or other settings are never mixed in.

Invariant: more lengths and more samples of the same join; anything else is refused, and the line says what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..config import Config
from ..rewards.ruler import TASKS as RULER_TASKS
from .questions import EvalError
from .results import Run, has_run, read_run, rows_path


def model_hash(model: Path) -> str:
    """A hash of names, sizes and heads of the weight files: it tells checkpoints apart without reading them whole."""
    digest = hashlib.sha256()
    for path in sorted(p for p in model.iterdir() if p.suffix in (".safetensors", ".json", ".bin") and p.is_file()):
        with path.open("rb") as file:
            size = path.stat().st_size
            for position in (0, max(0, size // 2), max(0, size - 2**20)):
                file.seek(position)
                digest.update(file.read(2**20))
        digest.update(f"{path.name} {size}".encode())
    return digest.hexdigest()[:16]


def check_same_run(output: Path, run: Run) -> Run:
    """``run`` with the lengths and samples that ``output`` has already.

    Raises:
        EvalError: the rows of ``output`` were made from something else.
    """
    if not has_run(output):
        return run
    known = read_run(output)
    if known.model != run.model:
        raise EvalError(_other(output, "model"))
    differing = _differing(_settings_of(known), run.settings)
    if differing:
        raise EvalError(_other(output, "settings", f" ({'; '.join(differing[:3])})"))
    for length, digest in run.data.items():
        if known.data.get(length, digest) != digest:
            raise EvalError(f"{rows_path(output, length)} is of another eval_{length}.json; set another SAVE_FILE")
    return replace(
        run, samples=max(known.samples, run.samples),
        data={**known.data, **run.data}, questions={**known.questions, **run.questions},
    )


def _settings_of(known: Run) -> Mapping[str, Any]:
    """Its settings; before there was EVAL_ANSWER, RULER's answers were read from boxes, and before there was
    EVAL_MAX_CHUNKS, MEM_MAX_CHUNKS cut what was evaluated.
    """
    boxed = any(name.rpartition("_")[0] in RULER_TASKS for name in known.data)
    cut = {"eval_max_chunks": known.settings["mem_max_chunks"]} if "mem_max_chunks" in known.settings else {}
    return ({"eval_answer": "boxed"} if boxed else {}) | cut | dict(known.settings)


def _other(output: Path, what: str, differences: str = "") -> str:
    remedy = "set another SAVE_FILE (of a training run: SAVE_PATH), or remove it"
    return f"{output} holds results of another {what}{differences}; {remedy}"


def _differing(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What is not the same, in words: of all that shapes an answer now; what was made before there was such a setting
    has its default."""
    # Results made before MEM_PROMPTS was recorded under its own name have its content as ``prompts``.
    defaults = {f.name: f.default for f in fields(Config)} | {"mem_prompts": known.get("prompts", "")}
    pairs = [(name, known.get(name, defaults.get(name)), wanted[name]) for name in sorted(wanted)]
    return [f"{name.upper()} was {was!r}, is {now!r}"[:80] for name, was, now in pairs if was != now]
