"""Writes the data of one round of training: a folder of shards, a test file, and files to evaluate with.

    mem-agent prepare-rl-data --recipe recipes/memsifter/mix.yaml --primary-data-dir RESULTS/MODEL \
        --fallback-data-dir RESULTS/bge-m3 --output-dir data --tokenizer Qwen/Qwen3-4B

    data/rl_train_data/v1121-0/
        train_0.parquet ...     rows of the task rank_sessions, at most 2000 in each; TRAIN_DATA is the folder
        test.parquet            rows of the same shape; EVAL_DATA of a host
        eval_locomo.json ...    the same questions by data set; DATA_ROOT is the folder, LENGTH=locomo
        parquet.docs/           the sessions that prompts show
        prepared.json           counts by data set: chosen, and left out for which reason
        manifest.json           what each file was made from

Of each data set of the recipe ``{primary}/{name}_{split}_ranking.parquet`` is read, and its questions are chosen by
how the last round ranked them; else ``{fallback}/{name}_{split}_embed.parquet``, at random (``row_choice``). More than
there are means all, which is said. Test questions are chosen at random, so that they are the same in every round;
``--test-sampling anchor`` is the published way.

Invariants:
- exact counts; equal files, recipe and seed give equal bytes;
- no question of a test file is trained: neither its id nor its text, capitals and blanks aside;
- files appear whole. The same command finds them, one of other inputs is refused;
- memory holds a few rows; ``row_shards`` spools the others.

Exit codes: 0 written or there already, 2 the input cannot be used, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import orjson

from ...checkpoints.hf_model import load_vocabulary, local_folder, tokenizer_hash
from ...config import Config
from ...data.document_store import SHARED_STORE, DocumentWriter
from ...data.manifest import Manifest, locked_manifest, sha256_of
from ...sessions.wording import load_wording
from ...system.command_line_types import positive_number, whole_number
from ...system.errors import MemAgentError
from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from .data_recipe import DataRecipe, read_recipe
from .rank_rows import PROMPT_TOKENS, Prompting, evaluation_entry
from .round_rows import Input, Tested, find_inputs, made_rows, usable_rows
from .row_shards import Spool, shuffled_shards, write_shard

SUMMARY = "prepared.json"


class PrepareError(MemAgentError):
    """A round would have no rows, or a file is damaged; says what became of those of every file, or which one."""


@one_line_errors("files that are there stay as they are", codes={MemAgentError: 2, OSError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    recipe = read_recipe(args.recipe)
    inputs = list(find_inputs(recipe, args.primary_data_dir, args.fallback_data_dir,
                              anchored_test=args.test_sampling == "anchor"))
    version = args.version or f"v{date.today():%m%d}-0"
    folder = args.output_dir / "rl_train_data" / version
    source = _source(recipe, inputs, args)
    with locked_manifest(folder) as manifest:
        if not _is_there(manifest, source):
            _write(manifest, source, inputs, args)
        told = _summary(folder)
    print(*told["lines"], sep="\n")
    print(f"{folder}: {told['train']} rows in {told['shards']} shards, {told['test']} to test")
    return 0


def _source(recipe: DataRecipe, inputs: Sequence[Input], args: argparse.Namespace) -> dict[str, Any]:
    """What decides every byte of the files."""
    return {
        "kind": "rl_train_data", "recipe": asdict(recipe), "seed": args.seed, "prompt_tokens": args.max_prompt_tokens,
        "rows_per_file": args.rows_per_file, "test_sampling": args.test_sampling,
        "tokenizer": _tokenizer_hash(args.tokenizer), "recount": args.recount,
        "wording": sha256_of(Path(args.prompts))[:16] if args.prompts else "",
        "inputs": {f"{each.dataset}/{each.split}": {
            "from": "ranking" if each.ranked else "embed", "round": each.path.parent.name,
            "sha256": sha256_of(each.path)} for each in inputs},
    }


def _tokenizer_hash(name: str) -> str:
    return tokenizer_hash(Path(name) if Path(name).is_dir() else local_folder(name, "--tokenizer", weights=False))


def _is_there(manifest: Manifest, source: Mapping[str, Any]) -> bool:
    """Whether all files are. Raises ManifestError where some are of another source."""
    if not manifest.has(SUMMARY, source) or not (manifest.folder / SHARED_STORE).is_dir():
        return False
    return all(manifest.has(name, source) for name in _summary(manifest.folder)["files"])


def _summary(folder: Path) -> dict[str, Any]:
    """What ``_write`` has told of the folder. Raises PrepareError where that cannot be read."""
    try:
        return dict(orjson.loads((folder / SUMMARY).read_bytes()))
    except ValueError:
        raise PrepareError(f"{folder / SUMMARY}: is damaged; remove it and run again") from None


def _write(manifest: Manifest, source: Mapping[str, Any], inputs: Sequence[Input], args: argparse.Namespace) -> None:
    vocabulary = load_vocabulary(args.tokenizer, Config.from_env().trust_remote_code)
    prompting = Prompting(load_wording(args.prompts), lambda text: len(vocabulary.encode_text(text)),
                          args.max_prompt_tokens)
    tested, told = Tested(), []
    with (
        closing(Spool(manifest.folder)) as train, closing(Spool(manifest.folder)) as test,
        DocumentWriter(manifest.folder / SHARED_STORE) as documents,
    ):
        of_dataset: dict[str, range] = {}
        for each in inputs:
            note, order = usable_rows(each, prompting, tested, seed=args.seed)
            told.append(note)
            spool = test if each.split == "test" else train
            begin = len(spool)
            for row in made_rows(each, order, prompting, note, recount=args.recount):
                spool.put(row.training(documents.add(row.history)))
            if each.split == "test":
                of_dataset[each.dataset] = range(begin, len(spool))
        if not len(train):
            raise PrepareError("no row to train; " + "; ".join(note.line() for note in told))
        shards = shuffled_shards(len(train), args.rows_per_file, args.seed)
        parts = {f"train_{number}.parquet": train.rows(shard) for number, shard in enumerate(shards)}
        if len(test):
            parts["test.parquet"] = test.rows(range(len(test)))
        for name, rows in parts.items():
            _write_shard(manifest, name, source, rows)
        tests = {f"eval_{dataset}.json": test.rows(numbers) for dataset, numbers in of_dataset.items() if len(numbers)}
        for name, rows in tests.items():
            _write_evaluation(manifest, name, source, rows)
        summary = {"train": len(train), "test": len(test), "shards": len(shards), "files": sorted([*parts, *tests]),
                   "lines": [note.line() for note in told], "datasets": [asdict(note) for note in told]}
    with manifest.draft(SUMMARY, source) as out:
        out.write(orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _write_shard(manifest: Manifest, name: str, source: Mapping[str, Any], rows: Iterator[dict[str, Any]]) -> None:
    if not manifest.has(name, source):
        draft = manifest.folder / f".{name}.{os.getpid()}.tmp"  # as system.files names drafts
        write_shard(draft, rows)
        manifest.move_in(draft, name, source)


def _write_evaluation(
    manifest: Manifest, name: str, source: Mapping[str, Any], rows: Iterator[dict[str, Any]]
) -> None:
    if not manifest.has(name, source):
        with manifest.draft(name, source) as out:
            for number, row in enumerate(rows):
                out.write((b",\n" if number else b"[\n") + orjson.dumps(evaluation_entry(row)))
            out.write(b"\n]\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent prepare-rl-data",
                                     description="Write the training data of a round of MemSifter.")
    parser.add_argument("--recipe", type=Path, required=True, metavar="YAML",
                        help="data sets with numbers of questions")
    parser.add_argument("--primary-data-dir", type=Path, metavar="DIR", help="rankings of the last round")
    parser.add_argument("--fallback-data-dir", type=Path, metavar="DIR", help="embedding files of stage 1")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="DIR", help="gets rl_train_data/VERSION")
    parser.add_argument("--version", default="", help="name of the folder (v{MMDD}-0)")
    parser.add_argument("--tokenizer", required=True, metavar="MODEL", help="of the model that is trained")
    parser.add_argument("--max-prompt-tokens", type=positive_number, default=PROMPT_TOKENS, metavar="N",
                        help=f"of a whole prompt ({PROMPT_TOKENS})")
    parser.add_argument("--recount", action="store_true",
                        help="count the tokens of sessions again; stage 1 counted with another tokenizer")
    parser.add_argument("--rows-per-file", type=positive_number, default=2000, metavar="N", help="at most (2000)")
    parser.add_argument("--test-sampling", choices=("random", "anchor"), default="random",
                        help="how test questions are chosen; random ones are the same in every round (random)")
    parser.add_argument("--prompts", default="", metavar="YAML", help="another wording, as session-ranking's")
    parser.add_argument("--seed", type=whole_number, default=42, help="of choices and order (42)")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
