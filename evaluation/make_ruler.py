"""Writes RULER data: one file per task and length.

    mem-agent ruler --output DATA_ROOT --tokenizer MODEL_FOLDER --tasks "niah_single_1 vt" \
        --lengths "8192 16384" --samples 128 --seed 42 --haystack essays.txt

``DATA_ROOT/eval_<task>_<length>.json`` is a list of::

    {"context": document, "input": question, "answers": [...], "index": 0, "task": "vt", "length": 8192,
     "length_tokens": 8160, "answer_prefix": "...", "example": "...", "tokens_to_generate": 30,
     "metric": "string_match_all", "extra": {"haystack": "...", ...}}

``length`` is RULER's: all that the engine must hold, the reply included. ``length_tokens`` counts document, question,
answer prefix, the solved example (vt and cwe; else empty), ``tokens_to_generate``, and ``extra.prompt_tokens`` for the
prompt around them, which is that of EVAL_MODE=direct: so nothing is cut where ENGINE_MAX_LEN is the length. ``extra``
also says which haystack, wording and seed the sample was made from. Without ``--haystack`` the essay tasks hide their
needles among built-in repeated sentences, and ``extra.haystack`` says so. ``qa_1`` needs ``--squad``, ``qa_2``
``--hotpotqa``.

A sample depends on (seed, task, length, index), its inputs and nothing else: the same options write the same bytes,
and more samples leave the first ones as they are. QA asks the same questions at every length. A file appears
whole by one rename; memory does not grow with the number of samples.

Exit codes: 0 all files written, 1 an error (one line says which), 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
from tqdm import tqdm

from ..agents.one_prompt import Direct
from ..agents.prompts import chat_frame, load_prompts
from ..checkpoints.hf_model import load_vocabulary
from ..config import Config
from ..data.eval_files import parse_lengths
from ..data.ruler.sample import Corpus, CountTokens, Haystack, LengthError, RulerError, Wording, load_wording
from ..data.ruler.tasks import TASKS, read_essay, read_hotpotqa, read_squad
from ..system.cli import one_line_errors, positive_number, run_main
from ..system.files import replacing

_SEAMS = 2
"""Tokens by which a text may be longer than its parts, one for each seam between a document and what is around it."""


@one_line_errors("files written so far are whole")
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = _parser().parse_args(argv)
    tasks, lengths = _tasks(options), parse_lengths(options.lengths)
    essays = [task for task in tasks if TASKS[task].essay]
    if essays and not options.haystack:
        print(f"no --haystack: {', '.join(essays)} use the built-in repeated sentences as essay", file=sys.stderr)
    count, prompt_tokens = _counter(options.tokenizer)
    wording = load_wording(options.wording) if options.wording else Wording()
    haystack = Haystack(wording, read_essay(options.haystack, wording))
    corpora = {raw: read(path, Random(f"{options.seed}/{raw}")) for raw, read, path in
               (("squad", read_squad, options.squad), ("hotpotqa", read_hotpotqa, options.hotpotqa)) if path}
    options.output.mkdir(parents=True, exist_ok=True)
    for task, length in ((task, length) for length in lengths for task in tasks):
        path, began, tokens = options.output / f"eval_{task}_{length}.json", time.monotonic(), list[int]()
        with replacing(path) as out:
            for index in tqdm(range(options.samples), path.name, unit="sample", leave=False, disable=None):
                corpus = corpora.get(TASKS[task].raw or "")
                entry = _entry(task, length, index, options.seed, count, prompt_tokens, haystack, corpus)
                tokens.append(entry["length_tokens"])
                out.write((b",\n" if index else b"[\n") + orjson.dumps(entry))
            out.write(b"\n]\n")
        took = time.monotonic() - began
        print(f"{path}: {len(tokens)} samples of {min(tokens)} to {max(tokens)} tokens in {took:.1f} s", flush=True)
    return 0


def _tasks(options: argparse.Namespace) -> list[str]:
    has_data = {name: task.raw is None or getattr(options, task.raw) is not None for name, task in TASKS.items()}
    names = [name for name in TASKS if has_data[name]]
    if options.tasks is not None:
        names = list(dict.fromkeys(options.tasks.split()))
    if not names or (unknown := [name for name in names if name not in TASKS]):
        raise RulerError(f"--tasks: no task {unknown[0] if names else ''!r}; allowed: {', '.join(TASKS)}")
    if without := [name for name in names if not has_data[name]]:
        raise RulerError(f"--tasks: {without[0]} needs --{TASKS[without[0]].raw} FILE, or leave it out")
    return names


def _counter(folder: Path) -> tuple[CountTokens, int]:
    """Counts tokens as the agent sees them, none of a document's being a control token; and those of its prompt."""
    if not folder.is_dir():
        raise RulerError(f"--tokenizer {folder}: no such folder; name a model folder with a tokenizer.json")
    vocabulary = load_vocabulary(folder)
    config = Config()
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, {})
    direct = Direct(config, vocabulary, load_prompts(config.mem_layout), frame)
    return lambda text: len(vocabulary.encode_text(text)), direct.frame_tokens


def _entry(
    name: str, length: int, index: int, seed: int, count: CountTokens, prompt_tokens: int, haystack: Haystack,
    corpus: Corpus | None,
) -> dict[str, Any]:
    """Sample ``index`` of a file; raises RulerError: the task does not fit the length, or too few questions."""
    task = TASKS[name]
    before, behind = haystack.wording.around(task.words, task.kind)
    around = prompt_tokens + task.reply_tokens
    if before + behind:
        around += count(before) + count(behind) + _SEAMS
    haystack = replace(haystack, reserved=around)
    if corpus:
        if index >= len(corpus.questions):
            raise RulerError(f"{name}: {corpus.name} has {len(corpus.questions)} questions; lower --samples")
        haystack = replace(haystack, corpus=corpus, question=corpus.questions[index])
    try:
        sample = task.make(Random(f"{seed}/{name}/{length}/{index}"), length, count, haystack)
    except LengthError as error:
        raise RulerError(f"{name} at {length} tokens, sample {index}: {error}; choose a longer length") from None
    origin = {"prompt_tokens": prompt_tokens, "wording": haystack.wording.name, "seed": seed}
    return {
        "context": f"{before}{sample.context}{behind}", "input": sample.input, "answers": sample.answers,
        "index": index, "task": name, "length": length, "length_tokens": sample.length_tokens,
        "answer_prefix": sample.answer_prefix, "example": sample.example, "tokens_to_generate": task.reply_tokens,
        "metric": task.metric, "extra": {**sample.extra, **origin},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent ruler", description="Write RULER evaluation data.")
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DATA_ROOT", help="folder of the files")
    add("--tokenizer", type=Path, required=True, metavar="FOLDER", help="model folder that counts")
    add("--tasks", help=f"tasks, separated by blanks, of {', '.join(TASKS)} (all with data)")
    add("--lengths", default="8192", help="tokens per sample, separated by blanks (8192)")
    add("--samples", type=positive_number, default=128, metavar="N", help="samples per file (128)")
    add("--seed", type=int, default=42)
    add("--haystack", type=Path, nargs="+", default=[], metavar="FILE", help="essays: texts, or .json with `text`")
    add("--squad", type=Path, metavar="FILE", help="SQuAD JSON, for qa_1")
    add("--hotpotqa", type=Path, metavar="FILE", help="HotpotQA distractor JSON, for qa_2")
    add("--wording", type=Path, metavar="FILE", help="YAML of sentences in place of the built-in ones")
    return parser


if __name__ == "__main__":
    run_main(main)
