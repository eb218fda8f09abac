"""What makes two evaluations the same: rows made from other data, another model or other settings are never mixed in.

Invariant: more lengths and more samples of the same join; anything else is refused, and the line says what differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config import Config
from .questions import EvalError
from .results import Run, has_run, read_run, rows_path

ALWAYS = ("eval_mode", "eval_temperature", "eval_top_p", "seed", "mem_max_question", "mem_max_final", "mem_thinking")
BY_MODE = {
    "recurrent": ("agent", "mem_chunk_tokens", "mem_max_memory", "mem_max_chunks", "mem_layout"),
    "direct": ("engine_max_len",),
    "rag": ("eval_top_k", "eval_retriever", "eval_embedding"),
}


def settings_of(config: Config) -> dict[str, Any]:
    """The settings that shape an answer in this mode."""
    settings = {name: getattr(config, name) for name in (*ALWAYS, *BY_MODE[config.eval_mode])}
    if config.eval_mode == "recurrent":
        settings["prompts"] = Path(config.mem_prompts).read_text() if config.mem_prompts else ""
        # Only where they shape an answer: results that know nothing of them stay good.
        settings |= {"mem_query_blind": True} if config.mem_query_blind else {}
        settings |= {"mem_parallel": config.mem_parallel} if config.agent == "parallel" else {}
    if config.eval_mode == "recurrent" and config.agent == "rememr1":
        settings |= {name: getattr(config, name) for name in ("mem_recall", "mem_recall_model")}
    return settings


def model_hash(model: Path) -> str:
    """A hash of names, sizes and heads of the weight files: it tells checkpoints apart without reading them whole."""
    digest = hashlib.sha256()
    for path in sorted(p for p in model.iterdir() if p.suffix in (".safetensors", ".json", ".bin")):
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
    if known.settings != run.settings:
        raise EvalError(_other(output, "settings", _differences(known.settings, run.settings)))
    for length, digest in run.data.items():
        if known.data.get(length, digest) != digest:
            raise EvalError(f"{rows_path(output, length)} is of another eval_{length}.json; set another SAVE_FILE")
    return replace(
        run, samples=max(known.samples, run.samples),
        data={**known.data, **run.data}, questions={**known.questions, **run.questions},
    )


def _other(output: Path, what: str, differences: str = "") -> str:
    return f"{output} holds results of another {what}{differences}; set another SAVE_FILE or remove it"


def _differences(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = sorted(n for n in known.keys() | wanted.keys() if known.get(n) != wanted.get(n))
    shown = [f"{n.upper()} was {known.get(n)!r}, is {wanted.get(n)!r}"[:80] for n in names[:3]]
    return f" ({'; '.join(shown)})"
