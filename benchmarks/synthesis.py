"""Synthesis: evaluation files of 50 to 6400 documents, 128 questions each, by two processes.

A raw file like HotpotQA's development set (66,635 different documents, 7,405 questions of ten paragraphs each) is
written out at every length. Memory is that of all processes together, as proportional sets, in which pages that
processes share count once.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import tempfile
import time
from pathlib import Path

import orjson
import psutil

from ..system.python_command import python_module
from .outcome import BenchmarkError, Outcome, print_alone

NAME = "synthesis"
LENGTHS = (50, 100, 200, 400, 800, 1600, 3200, 6400)
DOCUMENTS, QUESTIONS, PARAGRAPHS = 66_635, 7_405, 10
WORDS_PER_DOCUMENT = 95
"""About 620 characters, 140 tokens, as in HotpotQA."""


def write_raw(path: Path) -> None:
    """Documents of random words; answers are rare enough that distractors without them can be found."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))) for _ in range(30_000)]
    words += ["the", "a", "of", "in", "is"] * 2_000
    texts = [" ".join(rng.choices(words, k=WORDS_PER_DOCUMENT)) + "." for _ in range(DOCUMENTS)]
    # Every document once, then repeats, as paragraphs of HotpotQA serve several questions.
    order = [*range(DOCUMENTS), *rng.choices(range(DOCUMENTS), k=QUESTIONS * PARAGRAPHS - DOCUMENTS)]
    rows = []
    for i in range(QUESTIONS):
        own = list(dict.fromkeys(order[i::QUESTIONS]))
        answer = next(word for word in texts[own[0]].split() if len(word) > 6)
        rows.append({
            "_id": f"{i:024x}", "question": f"EvalQuestion {i}?", "answer": answer,
            "supporting_facts": [[f"Title {own[0]}", 0], [f"Title {own[1]}", 0]],
            "context": [[f"Title {number}", [texts[number]]] for number in own],
        })
    path.write_bytes(orjson.dumps(rows))


def measure(quick: bool = False) -> list[Outcome]:
    lengths = LENGTHS[:3] if quick else LENGTHS
    with tempfile.TemporaryDirectory() as folder:
        raw, output = Path(folder) / "raw.json", Path(folder) / "files"
        write_raw(raw)
        seconds, proportional = write_files(raw, output, " ".join(map(str, lengths)))
        size = sum(path.stat().st_size for path in output.iterdir()) / 1e9
        note = f"up to {lengths[-1]} documents, {size:.2f} GB written, sha256 {digest(output)[:12]}"
    return [
        Outcome(NAME, "time", (seconds,), unit="s", target=None if quick else 120, at_most=True, note=note),
        Outcome(NAME, "memory", (proportional,), unit="GB", target=None if quick else 2, at_most=True),
    ]


def write_files(raw: Path, output: Path, lengths: str) -> tuple[float, float]:
    """Seconds and peak GB of one command."""
    command = python_module("mem_agent.data.eval_files", "--raw", str(raw), "--output", str(output),
                            "--lengths", lengths, "--processes", "2")
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    root, proportional = psutil.Process(child.pid), 0
    while child.poll() is None:
        family = [root, *root.children(recursive=True)]
        proportional = max(proportional, sum(info.pss for info in map(_memory, family) if info))
        time.sleep(0.2)
    if child.returncode:
        raise BenchmarkError(f"synthesis ended with {child.returncode}; its own lines above say why")
    return time.monotonic() - began, proportional / 1e9


def _memory(process: psutil.Process):
    try:
        return process.memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def digest(folder: Path) -> str:
    """Over all files of a folder, by name."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.json*")):
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


if __name__ == "__main__":
    print_alone(measure)
