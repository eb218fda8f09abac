"""Writes RULER data: one file per task and length.

    mem-agent ruler --output DATA_ROOT --tokenizer MODEL_FOLDER --tasks "niah_single_1 vt" \
        --lengths "8192 16384" --samples 128 --seed 42 --haystack essays.txt --processes 2

``DATA_ROOT/eval_<task>_<length>.json`` is a list of::

    {"context": document, "input": question, "answers": [...], "index": 0, "task": "vt", "length": 8192,
     "length_tokens": 8160, "answer_prefix": "...", "example": "...", "tokens_to_generate": 30,
     "metric": "string_match_all", "extra": {"haystack": "...", ...}}

``length`` is RULER's: all that the engine must hold, the reply included. ``length_tokens`` counts document, question,
answer prefix, the solved example (vt and cwe; else empty), ``tokens_to_generate``, and ``extra.prompt_tokens`` for the
prompt around them, which is that of EVAL_MODE=direct unless ``--prompt-tokens`` says otherwise: so nothing is cut
where ENGINE_MAX_LEN is the length. ``extra`` also says which haystack, wording and seed the sample was made from.
Without ``--haystack`` the essay tasks hide their needles among built-in repeated sentences, and
``extra.haystack`` says so. ``qa_1`` needs ``--squad``, ``qa_2`` ``--hotpotqa``.

A sample depends on (seed, task, length, index), its inputs and nothing else: any number of processes writes the same
bytes, and more samples leave the first ones as they are. QA asks the same questions at every length. A file appears
whole by one rename; memory does not grow with the number of samples.

Exit codes: 0 all files written, 1 an error (one line says which), 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from ..agents.one_prompt import Direct
from ..agents.prompts import chat_frame, load_prompts
from ..checkpoints.hf_model import load_vocabulary
from ..config import Config
from ..data.lengths import parse_lengths
from ..data.ruler.sample import RulerError
from ..data.ruler.tasks import TASKS, Maker
from ..data.workers import in_order
from ..system.command_line_types import positive_number, whole_number
from ..system.files import replacing
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals


@one_line_errors("files written so far are whole")
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = _parser().parse_args(argv)
    tasks, lengths = _tasks(options), parse_lengths(options.lengths)
    essays = [task for task in tasks if TASKS[task].essay]
    if essays and not options.haystack:
        print(f"no --haystack: {', '.join(essays)} use the built-in repeated sentences as essay", file=sys.stderr)
    options.output.mkdir(parents=True, exist_ok=True)
    files = [(task, length) for length in lengths for task in tasks]
    wanted = [(task, length, index) for task, length in files for index in range(options.samples)]
    # Forked with the tokenizer loaded, which takes seconds.
    with in_order(_maker(options).make, wanted, options.processes) as samples:
        for task, length in files:
            _write(options.output / f"eval_{task}_{length}.json", samples, options.samples)
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


def _maker(options: argparse.Namespace) -> Maker:
    """Counts tokens as the agent will see them: none of a document's is a control token."""
    vocabulary = load_vocabulary(options.tokenizer)
    config = Config()
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, {})
    direct = Direct(config, vocabulary, load_prompts(config.mem_layout), frame)
    return Maker(
        lambda text: len(vocabulary.encode_text(text)),
        direct.frame_tokens if options.prompt_tokens is None else options.prompt_tokens,
        options.seed, essays=options.haystack, squad=options.squad, hotpotqa=options.hotpotqa,
        wording=options.wording,
    )


def _write(path: Path, samples: Iterator[tuple[int, bytes]], number: int) -> None:
    """One file from the next ``number`` samples."""
    began, tokens = time.monotonic(), []
    with replacing(path) as out:
        for place in tqdm(range(number), desc=path.name, unit="sample", leave=False, disable=None):
            length, entry = next(samples)
            tokens.append(length)
            out.write((b",\n" if place else b"[\n") + entry)
        out.write(b"\n]\n")
    took = time.monotonic() - began
    print(f"{path}: {number} samples of {min(tokens)} to {max(tokens)} tokens in {took:.1f} s", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent ruler", description="Write RULER evaluation data.")
    parser.add_argument("--output", type=Path, required=True, metavar="DATA_ROOT", help="folder of the files")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="FOLDER", help="model folder that counts")
    parser.add_argument("--tasks", help=f"tasks, separated by blanks, of {', '.join(TASKS)} (all with data)")
    parser.add_argument("--lengths", default="8192", help="tokens per sample, separated by blanks (8192)")
    parser.add_argument("--samples", type=positive_number, default=128, metavar="N", help="samples per file (128)")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--haystack", type=Path, nargs="+", default=[], metavar="FILE",
                        help="essays: text files, or .json files with a field `text`")
    parser.add_argument("--squad", type=Path, metavar="FILE", help="SQuAD JSON, for qa_1")
    parser.add_argument("--hotpotqa", type=Path, metavar="FILE", help="HotpotQA distractor JSON, for qa_2")
    parser.add_argument("--wording", type=Path, metavar="FILE", help="YAML of sentences in place of the built-in ones")
    parser.add_argument("--prompt-tokens", type=whole_number, metavar="N",
                        help="tokens of the prompt around document and question, which are part of the length (those "
                        "of EVAL_MODE=direct in the model's chat template)")
    parser.add_argument("--processes", type=positive_number, default=1, metavar="N", help="processes at work (1)")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
