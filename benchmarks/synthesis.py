"""Speed of synthesis: ``python -m mem_agent.benchmarks.synthesis [--lengths "50 ... 6400"] [--runs 2]``.

Makes a raw file like HotpotQA's development set (66,635 different documents, 7,405 questions of ten paragraphs each),
has it written out at every length, and prints for each run the time, the peak memory of all its processes and the
SHA-256 over all files. Memory is the sum of resident sets, in which pages that processes share count several times,
and the sum of proportional sets, in which they count once.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson
import psutil

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


def measure(raw: Path, output: Path, lengths: str, processes: int) -> tuple[float, float, float]:
    """Seconds, and peak GB as resident and as proportional sets, of one command."""
    command = [sys.executable, "-m", "mem_agent.data.eval_files", "--raw", str(raw), "--output", str(output),
               "--lengths", lengths, "--processes", str(processes)]
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    root, resident, proportional = psutil.Process(child.pid), 0, 0
    while child.poll() is None:
        family = [root, *root.children(recursive=True)]
        infos = [info for info in map(_memory, family) if info]
        resident = max(resident, sum(info.rss for info in infos))
        proportional = max(proportional, sum(info.pss for info in infos))
        time.sleep(0.2)
    if child.returncode:
        sys.exit(f"the command failed with {child.returncode}")
    return time.monotonic() - began, resident / 1e9, proportional / 1e9


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", default="50 100 200 400 800 1600 3200 6400")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.json"
        write_raw(raw)
        print(f"raw file {raw.stat().st_size / 1e6:.0f} MB, {DOCUMENTS} documents, 128 of {QUESTIONS} questions")
        for number in range(options.runs):
            output = Path(folder) / f"run{number}"
            seconds, resident, proportional = measure(raw, output, options.lengths, options.processes)
            size = sum(path.stat().st_size for path in output.iterdir()) / 1e9
            print(f"{seconds:.1f} s, {size:.2f} GB written, peak {resident:.2f} GB resident, {proportional:.2f} GB "
                  f"proportional, sha256 {digest(output)} (target: 120 s, 2 GB)", flush=True)


if __name__ == "__main__":
    main()
