"""What makes two evaluations the same: rows of other data, another model or other settings are never mixed in.

More lengths and more samples join an earlier run; anything else is refused in one line that names what differs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config import Config
from .questions import EvalError
from .results import Run, has_run, read_run

_EVERY_MODE = ("task", "task_args", "mem_max_final", "mem_max_question", "mem_prompts", "mem_thinking",
               "eval_temperature", "eval_top_p", "eval_mode", "seed")
_READING = ("agent", "agent_args", "mem_chunk_tokens", "mem_max_memory", "mem_layout")
_SHAPE_ANSWERS = {"recurrent": (*_EVERY_MODE, *_READING), "direct": (*_EVERY_MODE, "engine_max_len"),
                  "rag": _EVERY_MODE}
"""The settings that shape an answer, by EVAL_MODE."""


def settings_of(config: Config, api: str, served_model: str) -> dict[str, Any]:
    """All that two evaluations must share for their answers to belong together; of MEM_PROMPTS what the file holds."""
    values = {name: getattr(config, name) for name in _SHAPE_ANSWERS[config.eval_mode.partition(":")[0]]}
    if config.mem_prompts:
        values["mem_prompts"] = Path(config.mem_prompts).read_text(encoding="utf-8")
    return values | {"eval_api": api, "served_model": served_model}


def model_hash(model: Path) -> str:
    """Of names, sizes and heads of the weight files: it tells checkpoints apart without reading them whole."""
    digest = hashlib.sha256()
    for path in sorted(p for p in model.iterdir() if p.suffix in (".safetensors", ".json", ".bin") and p.is_file()):
        with path.open("rb") as file:
            size = path.stat().st_size
            for position in (0, max(0, size // 2), max(0, size - 2**20)):
                file.seek(position)
                digest.update(file.read(2**20))
        digest.update(f"{path.name} {size}".encode())
    return digest.hexdigest()[:16]


def joined(output: Path, run: Run) -> Run:
    """``run`` with the lengths and samples that ``output`` has already.

    Raises:
        EvalError: the rows of ``output`` were made from something else.
    """
    if not has_run(output):
        return run
    known = read_run(output)
    found = [
        f"{name.upper()} was {known.settings.get(name)!r}, is {value!r}"[:80]
        for name, value in run.settings.items() if known.settings.get(name) != value
    ]
    if (known.model, known.weights) != (run.model, run.weights):
        found.insert(0, "another model")
    found += [f"another eval_{length}.json" for length, digest in run.data.items()
              if known.data.get(length, digest) != digest]
    if found:
        raise EvalError(f"{output} holds other results ({'; '.join(found[:3])}); set another SAVE_FILE (of a "
                        "training run: SAVE_PATH), or remove it")
    return replace(
        run, samples=max(known.samples, run.samples),
        data={**known.data, **run.data}, questions={**known.questions, **run.questions},
    )
