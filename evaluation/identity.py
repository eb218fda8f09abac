"""What makes two evaluations the same: rows made from other data, another model or other settings are never mixed in.

Invariant: more lengths and more samples of the same join; anything else is refused, and the line says what differs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

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
    differing = [
        f"{name.upper()} was {known.settings.get(name)!r}, is {value!r}"[:80]
        for name, value in sorted(run.settings.items()) if known.settings.get(name) != value
    ]
    if differing:
        raise EvalError(_other(output, "settings", f" ({'; '.join(differing[:3])})"))
    for length, digest in run.data.items():
        if known.data.get(length, digest) != digest:
            raise EvalError(f"{rows_path(output, length)} is of another eval_{length}.json; set another SAVE_FILE")
    return replace(
        run, samples=max(known.samples, run.samples),
        data={**known.data, **run.data}, questions={**known.questions, **run.questions},
    )


def _other(output: Path, what: str, differences: str = "") -> str:
    remedy = "set another SAVE_FILE (of a training run: SAVE_PATH), or remove it"
    return f"{output} holds results of another {what}{differences}; {remedy}"
