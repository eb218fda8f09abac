"""Made-up result folders in the form that an evaluation writes: seeded, and synthetic by name."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson


def write_run(
    folder: Path, *, lengths: Sequence[str] = ("50",), skill: float = 0.8, questions: int = 64, samples: int = 1,
    task: str = "", data: str = "same", seed: int = 0, model: str = "",
) -> Path:
    """A run that answers with probability ``skill``; questions differ in how hard they are, alike for every run."""
    rng = random.Random(seed)
    files = {
        f"{task}_{length}" if task else length: [
            made_row(rng, str(question), sample, length, task, skill)
            for question in range(questions) for sample in range(samples)]
        for length in lengths}
    return write_files(folder, files, data=data, samples=samples, model_name=model)


def write_folder(folder: Path, rows: Sequence[dict[str, Any]], stem: str = "50", **run: Any) -> Path:
    return write_files(folder, {stem: rows}, **run)


def write_files(
    folder: Path, files: Mapping[str, Sequence[dict[str, Any]]], *, data: str = "same", questions: int = 0,
    samples: int = 1, model_name: str = "",
) -> Path:
    """A folder of just these rows, which were to be answers to so many questions (those of the rows unless given)."""
    folder.mkdir(parents=True)
    asked = {stem: questions or len({row.get("_id") for row in rows}) for stem, rows in files.items()}
    settings = {"seed": 1, "mem_prompts": "A made-up template that is longer than a line of settings.\n" * 3}
    run = {"model": "m", "mode": "recurrent", "settings": settings, "samples": samples, "model_name": model_name,
           "data": dict.fromkeys(files, data), "questions": asked}
    (folder / "run.json").write_bytes(orjson.dumps(run))
    for stem, rows in files.items():
        (folder / f"{stem}.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return folder


def plain_row(question: str, score: float = 1.0, sample: int = 0, failure: str | None = None, **more: Any) -> dict:
    """An answer with this score in every metric of question answering, unless ``more`` names a headline of its own;
    ``more`` replaces fields."""
    counts = {"turns": 3, "document_tokens": 7000, "prompt_tokens": 9000, "response_tokens": 90, "memory_tokens": 30}
    scores = {} if "headline" in more else dict.fromkeys(("em", "f1", "sub_em", "sub_em_legacy"), score)
    return {
        "_id": question, "sample": sample, "length": "50", "task": "", "mode": "recurrent", "input": "Who?",
        "answers": ["x"], "response": "\\boxed{x}", "pred": "x", **scores,
        "outcome": "failed" if failure else "completed", "failure": failure, "failure_message": failure,
        "counts": counts, "memories": [], "seconds": 2.0, **more,
    }


def made_row(rng: random.Random, question: str, sample: int, length: str, task: str, skill: float) -> dict[str, Any]:
    right = rng.random() < skill + random.Random(f"{question} {length}").uniform(-0.35, 0.35)
    own = {"headline": "ruler", "ruler": float(right)} if task else {}
    return plain_row(
        question, float(right), sample, length=f"{task}_{length}" if task else length, task=task,
        input=f"Synthetic question {question}: who founded the <b>club</b> & when?", answers=["Ada & Co", "<Ada>"],
        pred="Ada & Co" if right else "<script>alert('no')</script>",
        memories=[{"tokens": 90 * turn, "gold": right and turn > 1} for turn in (1, 2, 3)], **own)
