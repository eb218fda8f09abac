"""Evaluate a memory agent on RULER-HQA files: one question, one long document, all accepted answers.

    python -m mem_agent.eval_ruler_hqa --data-root DATA --length "50 200" --model HF_FOLDER --url http://HOST:PORT \
        --output results/NAME
    python -m mem_agent.eval_ruler_hqa --table results/before results/after

Reads ``DATA/eval_<length>.json``: a list of ``{"context", "input", "answers", "index"}``. Every question runs through
the very hook that training uses (``rollout.generate``).

Invariants:
- every question has a row; a failed one counts as wrong in every mean and is listed by reason;
- a row is on disk as soon as it is known; a second run does only what is missing, and retries what failed;
- rows made from other data, another model or other settings are never mixed in: the run refuses.

``OUTPUT/<length>.jsonl`` holds the rows, ``OUTPUT/run.json`` what they were made from.
"""

from __future__ import annotations

if not __package__:
    from _bootstrap import run_in_package

    run_in_package(__file__)

import argparse
import asyncio
import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import orjson
from tqdm import tqdm

from . import rollout
from .atomic_file import write_atomically
from .config import Config
from .errors import MemAgentError
from .host.hf_model import local_folder, with_engine_length
from .host.hook_args import hook_args
from .host.sample import Sample
from .host.signals import stop_on_signals
from .rewards.boxed import last_boxed
from .rewards.qa_metrics import score_answer
from .rollout_client import close_clients

FINISHED_WITH_FAILURES = 3
"""Exit code when every question has a row, but some of them failed; 1 is an error that ended the evaluation."""
METRICS = ("sub_em", "em", "f1", "sub_em_legacy")
_SHAPING = (
    "agent", "mem_chunk_tokens", "mem_max_memory", "mem_max_final", "mem_max_chunks", "mem_max_question",
    "mem_layout", "mem_prompts", "mem_thinking", "eval_temperature", "eval_top_p", "seed",
)


class EvalError(MemAgentError):
    """Evaluation cannot go on: bad data, or results of another run in the way."""


@dataclass(frozen=True, slots=True)
class Question:
    length: str
    id: str
    text: str
    answers: list[str]
    context: str


# --- data ---------------------------------------------------------------------------------------------------------


def load_questions(data_root: Path, length: str) -> list[Question]:
    """The questions of ``eval_<length>.json``.

    Raises:
        EvalError: the file is missing or damaged, an id is repeated, or a question lacks a field; names the entry.
    """
    path = data_root / f"eval_{length}.json"
    if not path.is_file():
        raise EvalError(f"{path}: no such file; see prepare-eval-data.sh, or set DATA_ROOT and LENGTH")
    try:
        entries = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise EvalError(f"{path}: not JSON ({error}); fetch or make it again") from None
    if not isinstance(entries, list) or not entries:
        raise EvalError(f"{path}: expected a non-empty list")
    questions = [_question(path, length, number, entry) for number, entry in enumerate(entries)]
    repeated = [i for i, count in Counter(q.id for q in questions).items() if count > 1]
    if repeated:
        raise EvalError(f"{path}: index {repeated[0]} is there {Counter(q.id for q in questions)[repeated[0]]} times")
    return questions


def _question(path: Path, length: str, number: int, entry: Any) -> Question:
    fields = (("context", str), ("input", str), ("answers", list))
    for name, kind in fields:
        if not isinstance(entry, dict) or not isinstance(entry.get(name), kind) or not entry[name]:
            raise EvalError(f"{path}: entry {number} has no usable `{name}`")
    answers = [str(a) for a in entry["answers"]]
    return Question(length, str(entry.get("index", number)), entry["input"], answers, entry["context"])


# --- running ------------------------------------------------------------------------------------------------------


async def evaluate(
    questions: Sequence[Question], args: SimpleNamespace, config: Config, output: Path, *, quiet: bool = False
) -> None:
    """Answer every question and append its row; longest documents first, so that none is left running alone."""
    slots = asyncio.Semaphore(config.mem_concurrency)
    bar = tqdm(total=len(questions), unit="question", disable=quiet or None)
    files = {length: (output / f"{length}.jsonl").open("ab") for length in {q.length for q in questions}}

    async def answer(question: Question) -> None:
        async with slots:
            row = await _answer(question, args, config)
        files[question.length].write(orjson.dumps(row) + b"\n")
        files[question.length].flush()
        bar.update()

    try:
        await asyncio.gather(*map(answer, sorted(questions, key=lambda q: -len(q.context))))
    finally:
        bar.close()
        for file in files.values():
            file.close()
        await close_clients()


async def _answer(question: Question, args: SimpleNamespace, config: Config) -> dict[str, Any]:
    metadata = {"context": question.context, "ground_truth": question.answers}
    sample = Sample(prompt=question.text, metadata=metadata)
    seed = config.seed_for(question.id)
    sampling = {"temperature": config.eval_temperature, "top_p": config.eval_top_p, "top_k": -1, "seed": seed}
    began = time.monotonic()
    sample = await rollout.generate(args, sample, sampling, evaluation=True)
    prediction = last_boxed(sample.response) or ""
    return {
        "_id": question.id,
        "input": question.text,
        "answers": question.answers,
        "response": sample.response,
        "pred": prediction,
        **score_answer(prediction, question.answers),
        "outcome": sample.status.value,
        "failure": sample.train_metadata["failure"],
        "failure_message": sample.train_metadata["failure_message"],
        "counts": sample.train_metadata["counts"],
        "seconds": round(time.monotonic() - began, 3),
    }


def claim(data_root: Path, lengths: Sequence[str], model: Path, config: Config, output: Path) -> dict[str, list]:
    """Check the data and make ``output`` this run's; returns the questions by length."""
    by_length = {length: load_questions(data_root, length) for length in lengths}
    _claim(output, _provenance(data_root, lengths, model, config), lengths)
    return by_length


def run(data_root: Path, lengths: Sequence[str], model: Path, url: str, config: Config, output: Path) -> None:
    """Evaluate what is missing in ``output``."""
    by_length = claim(data_root, lengths, model, config, output)
    done = {length: {r["_id"] for r in read_rows(output, length) if not r["failure"]} for length in lengths}
    missing = [q for length, questions in by_length.items() for q in questions if q.id not in done[length]]
    router = urlsplit(url)
    args = hook_args(replace(config, hf_ckpt=str(model)), router.hostname, router.port)
    total = sum(map(len, by_length.values()))
    print(f"{len(missing)} of {total} questions to answer, {total - len(missing)} already in {output}", flush=True)
    asyncio.run(evaluate(missing, args, config, output))


def _provenance(data_root: Path, lengths: Sequence[str], model: Path, config: Config) -> dict[str, Any]:
    prompts = Path(config.mem_prompts).read_text() if config.mem_prompts else ""
    return {
        "model": _model_hash(model),
        "settings": {name: getattr(config, name) for name in _SHAPING} | {"prompts": prompts},
        "data": {n: _sha256((data_root / f"eval_{n}.json").read_bytes()) for n in lengths},
    }


def _model_hash(model: Path) -> str:
    """Of names, sizes and heads of the weight files: enough to tell checkpoints apart without reading them whole."""
    digest = hashlib.sha256()
    for path in sorted(p for p in model.iterdir() if p.suffix in (".safetensors", ".json", ".bin")):
        with path.open("rb") as file:
            size = path.stat().st_size
            for position in (0, max(0, size // 2), max(0, size - 2**20)):
                file.seek(position)
                digest.update(file.read(2**20))
        digest.update(f"{path.name} {size}".encode())
    return digest.hexdigest()[:16]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _claim(output: Path, provenance: dict[str, Any], lengths: Sequence[str]) -> None:
    """Make ``output`` this run's, or refuse if its rows were made from something else."""
    path = output / "run.json"
    if path.is_file():
        known = orjson.loads(path.read_bytes())
        for what in ("model", "settings"):
            if known[what] != provenance[what]:
                raise EvalError(f"{output} holds results of another {what}; set another SAVE_FILE or remove it")
        for length in lengths:
            if known["data"].get(length, provenance["data"][length]) != provenance["data"][length]:
                raise EvalError(f"{output}/{length}.jsonl is of another eval_{length}.json; set another SAVE_FILE")
        provenance = known | {"data": known["data"] | provenance["data"]}
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(path, orjson.dumps(provenance, option=orjson.OPT_INDENT_2))


# --- results ------------------------------------------------------------------------------------------------------


def read_rows(output: Path, length: str) -> list[dict[str, Any]]:
    """The newest row of each question; half a line of a killed run is dropped from the file."""
    path = output / f"{length}.jsonl"
    if not path.is_file():
        return []
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        content = content[: content.rfind(b"\n") + 1]
        path.write_bytes(content)
    return list({row["_id"]: row for row in map(orjson.loads, content.splitlines())}.values())


def summarise(output: Path, length: str) -> dict[str, float]:
    """Means over ALL rows, failed ones as 0, with the number of rows and of failures."""
    rows = read_rows(output, length)
    if not rows:
        raise EvalError(f"{output / length}.jsonl: no results")
    means = {name: 100 * fmean(row[name] for row in rows) for name in METRICS}
    return means | {"n": len(rows), "failed": sum(row["failure"] is not None for row in rows)}


def table(outputs: Sequence[Path]) -> str:
    """A Markdown table: one line per run and length."""
    lines = [f"| run | length | n | failed | {' | '.join(METRICS)} |", "|---" * (4 + len(METRICS)) + "|"]
    for output in outputs:
        if not any(output.glob("*.jsonl")):
            raise EvalError(f"{output}: no results")
        for path in sorted(output.glob("*.jsonl"), key=lambda p: (len(p.stem), p.stem)):
            s = summarise(output, path.stem)
            numbers = " | ".join(f"{s[name]:.1f}" for name in METRICS)
            lines.append(f"| {output.name} | {path.stem} | {s['n']:.0f} | {s['failed']:.0f} | {numbers} |")
    return "\n".join(lines)


def failures(output: Path, lengths: Sequence[str]) -> list[str]:
    """One line per failed question."""
    return [
        f"{length}/{row['_id']}: {row['failure']}: {row['failure_message']}"
        for length in lengths
        for row in read_rows(output, length)
        if row["failure"]
    ]


# --- command line -------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description="Evaluate a memory agent on RULER-HQA files.")
    parser.add_argument("--table", nargs="+", type=Path, metavar="OUTPUT", help="only print the table of these runs")
    parser.add_argument("--data-root", type=Path, help="folder of eval_<length>.json (default: DATA_ROOT)")
    parser.add_argument("--length", help="lengths, separated by blanks (default: LENGTH)")
    parser.add_argument("--model", help="HF folder or id whose tokenizer the server uses")
    parser.add_argument("--url", help="router or server, http://HOST:PORT")
    parser.add_argument("--output", type=Path, help="folder of the results")
    parser.add_argument("--check", action="store_true", help="only check settings, data and output folder")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    stop_on_signals()
    try:
        if options.table:
            print(table(options.table))
            return 0
        for name in ("model", "output") if options.check else ("model", "url", "output"):
            if getattr(options, name) is None:
                parser.error(f"--{name} is needed")
        config = Config.from_env()
        data_root = options.data_root or Path(config.data_root or ".")
        lengths = (options.length or config.length).split()
        model = local_folder(options.model, "MODEL_PATH")
        config = with_engine_length(config, model)
        if options.check:
            claim(data_root, lengths, model, config, options.output)
            return 0
        run(data_root, lengths, model, options.url, config, options.output)
        print(table([options.output]))
        failed = failures(options.output, lengths)
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return 130
    except (MemAgentError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for line in failed[:20]:
        print(f"failed: {line}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} questions failed and count as wrong; run again to retry them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


if __name__ == "__main__":
    sys.exit(main())
