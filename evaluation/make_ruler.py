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
from dataclasses import replace
from pathlib import Path
from random import Random

import orjson
from tqdm import tqdm

from ..agents.one_prompt import Direct
from ..agents.prompts import chat_frame, load_prompts
from ..agents.vocabulary import Vocabulary
from ..checkpoints.hf_model import load_vocabulary, local_folder
from ..config import Config
from ..data.eval_files import parse_lengths
from ..data.ruler.sample import READERS, Haystack, LengthError, RulerError, Wording, load_wording, read_essay
from ..data.ruler.tasks import TASKS
from ..system.cli import one_line_errors, positive_number
from ..system.files import replacing

_SEAMS = 2
"""Tokens by which a text may be longer than its parts, one for each seam between a document and what is around it."""


@one_line_errors("files written so far are whole")
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent ruler", description="Write RULER evaluation data.")
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DATA_ROOT", help="folder of the files")
    add("--tokenizer", required=True, metavar="MODEL", help="HF folder or id whose tokenizer counts")
    add("--tasks", default="", help=f"tasks, separated by blanks, of {', '.join(TASKS)} (all with data)")
    add("--lengths", default="8192", help="tokens per sample, separated by blanks (8192)")
    add("--samples", type=positive_number, default=128, metavar="N", help="samples per file (128)")
    add("--seed", type=int, default=42)
    add("--haystack", type=Path, nargs="+", default=[], metavar="FILE", help="essays: texts, or .json with `text`")
    add("--squad", type=Path, metavar="FILE", help="SQuAD JSON, for qa_1")
    add("--hotpotqa", type=Path, metavar="FILE", help="HotpotQA distractor JSON, for qa_2")
    add("--wording", type=Path, metavar="FILE", help="YAML of sentences in place of the built-in ones")
    options = parser.parse_args(argv)
    corpora = {raw: read(path, Random(f"{options.seed}/{raw}")) for raw, read, path in
               zip(READERS, READERS.values(), (options.squad, options.hotpotqa), strict=True) if path}
    names = options.tasks.split() or [name for name, task in TASKS.items() if not task.raw or task.raw in corpora]
    for name in names:
        if name not in TASKS:
            raise RulerError(f"--tasks: no task {name!r}; allowed: {', '.join(TASKS)}")
        if (raw := TASKS[name].raw) and raw not in corpora:
            raise RulerError(f"--tasks: {name} needs --{raw} FILE, or leave it out")
    if not options.haystack and (essays := [name for name in names if TASKS[name].essay]):
        print(f"no --haystack: {', '.join(essays)} use the built-in repeated sentences as essay", file=sys.stderr)
    wording = load_wording(options.wording) if options.wording else Wording()
    haystack = Haystack(wording, read_essay(options.haystack, wording))
    vocabulary, config = load_vocabulary(local_folder(options.tokenizer, "--tokenizer", weights=False)), Config()
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, {})
    prompt_tokens = Direct(config, vocabulary, load_prompts(config.mem_layout), frame).frame_tokens
    options.output.mkdir(parents=True, exist_ok=True)
    for length in parse_lengths(options.lengths):
        for name in names:
            corpus = corpora.get(TASKS[name].raw or "")
            _write(options, name, length, vocabulary, prompt_tokens, replace(haystack, corpus=corpus))
    return 0


def _write(
    options: argparse.Namespace, name: str, length: int, vocabulary: Vocabulary, prompt_tokens: int, haystack: Haystack
) -> None:
    """One file. Raises RulerError: the task does not fit the length, or too few questions."""
    task, path, corpus = TASKS[name], options.output / f"eval_{name}_{length}.json", haystack.corpus
    before, behind = haystack.wording.around(task.words, task.kind)
    seams = _SEAMS if before + behind else 0

    def count(text: str) -> int:
        """Tokens as the agent sees them, none of a document's being a control token."""
        return len(vocabulary.encode_text(text))

    haystack = replace(haystack, reserved=prompt_tokens + task.reply_tokens + count(before) + count(behind) + seams)
    if corpus and options.samples > len(corpus.questions):
        raise RulerError(f"{name}: {corpus.name} has {len(corpus.questions)} questions; lower --samples")
    with replacing(path) as out:
        for index in tqdm(range(options.samples), path.name, unit="sample", leave=False, disable=None):
            if corpus:
                haystack = replace(haystack, question=corpus.questions[index])
            try:
                sample = task.make(Random(f"{options.seed}/{name}/{length}/{index}"), length, count, haystack)
            except LengthError as error:
                raise RulerError(f"{name} at {length} tokens, sample {index}: {error}; lengthen it") from None
            origin = {"prompt_tokens": prompt_tokens, "wording": haystack.wording.name, "seed": options.seed}
            out.write((b",\n" if index else b"[\n") + orjson.dumps({
                "context": f"{before}{sample.context}{behind}", "input": sample.input, "answers": sample.answers,
                "index": index, "task": name, "length": length, "length_tokens": sample.length_tokens,
                "answer_prefix": sample.answer_prefix, "example": sample.example,
                "tokens_to_generate": task.reply_tokens, "metric": task.metric, "extra": {**sample.extra, **origin},
            }))
        out.write(b"\n]\n")
    print(f"{path}: {options.samples} samples", flush=True)
