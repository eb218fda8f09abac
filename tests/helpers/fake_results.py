"""Made-up result folders in the form that an evaluation writes: seeded, and synthetic by name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

LENGTHS = ("50", "100", "200", "400", "800", "1600", "3200", "6400")
TOKENS_PER_DOCUMENT = 141
CHUNK = 5000


def write_run(
    folder: Path,
    *,
    lengths: Sequence[str] = LENGTHS,
    skill: float = 0.8,
    decay: float = 0.0,
    questions: int = 64,
    samples: int = 1,
    task: str = "",
    mode: str = "recurrent",
    failures: float = 0.0,
    data: str = "same",
    seed: int = 0,
    model: str = "",
) -> Path:
    """A run that answers with probability ``skill``, ``decay`` less at each further length."""
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    stems = [f"{task}_{length}" if task else length for length in lengths]
    settings = {"agent": "memagent", "mem_chunk_tokens": CHUNK, "eval_temperature": 0.7, "eval_top_p": 0.95, "seed": 1,
                "prompts": "A made-up template that is longer than a line of settings.\n" * 3}
    run = {"model": f"synthetic{seed:07d}", "mode": mode, "settings": settings, "samples": samples,
           "data": {stem: f"{data}-{stem}" for stem in stems}, "questions": dict.fromkeys(stems, questions)}
    run |= {"model_name": model} if model else {}
    (folder / "run.json").write_bytes(orjson.dumps(run))
    for number, (length, stem) in enumerate(zip(lengths, stems, strict=True)):
        rows = [
            make_row(rng, str(q), sample, length, task, mode, skill - decay * number, failures)
            for q in range(questions) for sample in range(samples)
        ]
        write_rows(folder, stem, rows)
    return folder


def write_folder(
    folder: Path, rows: Sequence[dict[str, Any]], stem: str = "50", *, data: str = "same", questions: int = 0,
    samples: int = 1,
) -> Path:
    """A folder of just these rows, which were to be answers to so many questions (those of the rows unless given)."""
    folder.mkdir(parents=True)
    asked = questions or len({row.get("_id") for row in rows})
    run = {"model": "m", "mode": "recurrent", "settings": {"seed": 1}, "samples": samples, "data": {stem: data},
           "questions": {stem: asked}}
    (folder / "run.json").write_bytes(orjson.dumps(run))
    write_rows(folder, stem, rows)
    return folder


def plain_row(question: str, score: float = 1.0, sample: int = 0, failure: str | None = None, **more: Any) -> dict:
    """An answer with this score in every metric; ``more`` replaces fields."""
    counts = {"turns": 3, "document_tokens": 7000, "prompt_tokens": 9000, "response_tokens": 90, "memory_tokens": 30}
    return {
        "_id": question, "sample": sample, "length": "50", "task": "", "mode": "recurrent", "input": "Who?",
        "answers": ["x"], "response": "\\boxed{x}", "pred": "x",
        **dict.fromkeys(("em", "f1", "sub_em", "sub_em_legacy"), score),
        "outcome": "failed" if failure else "completed", "failure": failure, "failure_message": failure,
        "counts": counts, "memories": [], "seconds": 2.0, **more,
    }


def write_rows(folder: Path, stem: str, rows: Sequence[dict[str, Any]]) -> None:
    (folder / f"{stem}.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def make_row(
    rng: random.Random, question: str, sample: int, length: str, task: str, mode: str, skill: float, failures: float
) -> dict[str, Any]:
    """One answer; questions differ in how hard they are, alike for every run."""
    tokens = int(int(length) * (1 if task else TOKENS_PER_DOCUMENT * rng.uniform(0.92, 1.08)))
    turns = max(1, -(-tokens // CHUNK)) if mode == "recurrent" else 0
    hardness = random.Random(f"{question} {length}").uniform(-0.35, 0.35)
    failure = rng.choice(("EngineError", "Timeout")) if rng.random() < failures else None
    right = failure is None and rng.random() < skill + hardness
    lenient = right or (failure is None and rng.random() < 0.04)
    scores = {"ruler": float(right)} if task else {
        "em": float(right and rng.random() < 0.8), "f1": 0.9 if right else 0.1 * (failure is None),
        "sub_em": float(right), "sub_em_legacy": float(lenient),
    }
    return {
        "_id": question, "sample": sample, "length": f"{task}_{length}" if task else length, "task": task,
        "mode": mode, "input": f"Synthetic question {question}: who founded the <b>club</b> & when?",
        "answers": ["Ada & Co", "<Ada>"],
        "response": "\\boxed{...}", "pred": "Ada & Co" if right else "<script>alert('no')</script>", **scores,
        "outcome": "failed" if failure else "completed", "failure": failure,
        "failure_message": f"{failure}: no answer | after <60 s>" if failure else None,
        "counts": {
            "turns": turns + 1, "chunks": turns, "memory_tokens": 400 if turns else 0,
            "prompt_tokens": tokens + 600 * turns, "cached_tokens": 0, "response_tokens": 300 * turns + 60,
            "document_tokens": tokens, "dropped_tokens": 0, "truncated_memories": 0, "empty_updates": 0,
        },
        "memories": [_memory(rng, turn, turns, right) for turn in range(1, turns + 1)],
        "seconds": round(2 + 2.1 * turns * rng.uniform(0.8, 1.3), 3) if turns else round(1 + tokens / 9000, 3),
    }


def _memory(rng: random.Random, turn: int, turns: int, right: bool) -> dict[str, Any]:
    found = rng.random() < (0.9 * turn / turns if right else 0.35 * turn / turns)
    return {"tokens": int(650 * (1 - 0.7**turn) * rng.uniform(0.8, 1.2)), "gold": found}
