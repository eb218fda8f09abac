"""Writes the data of one round of training: a folder of shards, a test file, and files to evaluate with.

    mem-agent prepare-rl-data --recipe recipes/memsifter/mix-v1.yaml --data-dirs RESULTS/MODEL RESULTS/bge-m3 \
        --output-dir data --tokenizer Qwen/Qwen3-4B

    data/rl_train_data/v1121-0/
        train_0.parquet ...     rows of the task rank_sessions, at most 2000 in each; TRAIN_DATA is the folder
        test.parquet            rows of the same shape; EVAL_DATA of a host
        eval_locomo.json ...    the same questions by data set; DATA_ROOT is the folder, LENGTH=locomo
        parquet.docs/           the sessions that prompts show
        prepared.json           counts by data set: chosen, and left out for which reason
        manifest.json           what each file was made from

A recipe names data sets and how many questions of each are trained and tested; 0 leaves a data set out::

    memory_datasets:
      train: {locomo: 500, zh4o: 500}
      test: {locomo: 60}
    deepsearch_datasets:
      train: {HotpotQA: 750}

The names of the sections are free, and ``train`` and ``test`` may stand alone, as in older recipes of MemSifter
(``data/rl_train_data_propare.py`` at 92f0eae). Of each data set the first of ``--data-dirs`` that has it is read: from
``{name}_{split}_ranking.parquet`` questions are chosen by how the last round ranked them, from
``{name}_{split}_embed.parquet`` at random. More than there are means all, which is said.

The score of a question is ``rewards.ranking.anchor_score`` of the last ranking; its priority is ``1 - |score - 0.2|``,
and the highest are taken: those that were ranked neither well nor hopelessly (MemSifter, ``EvalSelectActor``; its
column is called ndcg, but is not ideal-normalised). One gold session each, at place 1, 9 and nowhere of the ranking::

    1 / log2(2) = 1       priority 0.2
    1 / log2(10) = 0.301  priority 0.899      taken first
    0                     priority 0.8

Equal priorities, and chance, are ordered by a hash of seed, data set and id, never by the order of the rows, so that
the first n are an exact choice, and the next takes the place of one that turns out to have no room. Test questions are
chosen at random, so that they are the same in every round.

The prompt shows all gold sessions, and of the others the most similar to the question, as many as the budget takes
(``rewards.sessions``), in the order of time. What stands in the prompt is stored once beside the files::

    {"sessions": [[{"role": "user", "content": ...}], ...], "ids": [...], "dates": [...]}

and a row names it by ``history_id`` (``data.document_store``). A question whose gold sessions exceed the budget by
themselves has no row: MemSifter's own preparation includes them and then cuts off the prompt's beginning (reference
A15: 15).

Invariants:
- exact counts; equal files, recipe and seed give equal bytes;
- no question of a test file is trained: neither its id nor its text, capitals and blanks aside;
- files appear whole. The same command finds them, one of other inputs is refused;
- memory holds a few rows: files are read twice, once to choose, once to make rows, which wait on disk.

RECIPE (a YAML), VERSION, OUTPUT_DIR and HF_CKPT are the defaults of ``--recipe``, ``--version``, ``--output-dir`` and
``--tokenizer``. Exit codes: 0 written or there already, 2 the input cannot be used, 130 interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from datasets import Dataset, disable_progress_bars
from pydantic import BaseModel, NonNegativeInt, TypeAdapter

from ..checkpoints.hf_model import load_vocabulary, local_folder, tokenizer_hash
from ..config import Config
from ..data.document_store import SHARED_STORE, DocumentStore
from ..data.eval_files import Manifest, locked_manifest, sha256_of
from ..data.rows import BATCH_ROWS
from ..rewards import sessions
from ..rewards.ranking import anchor_score
from ..rewards.sessions import BadRow, HistoryQuestion, NoRoom, RankingPrompts
from ..system.cli import one_line_errors, positive_number, whole_number
from ..system.errors import MemAgentError, reason_of
from ..system.files import scratch_folder
from .stages import EMBED, RANKING, Row, read_rows

SUMMARY = "prepared.json"
PROMPT_TOKENS = 130 * 1024
"""Of a whole prompt, as published."""
ROWS_PER_FILE = 2000
ANCHOR = 0.2
BY_RANKING, BY_CHANCE = "by the last ranking", "at random"
_TEXTS, _NUMBERS = pa.list_(pa.string()), pa.list_(pa.int32())
SCHEMA = pa.schema([
    ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    ("label", pa.string()),
    ("metadata", pa.struct([
        ("task", pa.string()), ("id", pa.string()), ("dataset", pa.string()), ("shown", pa.int32()),
        ("gold", _NUMBERS), ("question", pa.string()), ("question_date", pa.string()), ("language", pa.string()),
        ("answers", _TEXTS), ("options", _TEXTS), ("history_id", pa.string()), ("session_tokens", _NUMBERS),
    ])),
])
"""Of all shards, so that hosts may read them as one file."""


class DataRecipe(BaseModel, extra="forbid"):
    """Questions by data set, in the order of the file."""

    train: dict[str, NonNegativeInt] = {}
    test: dict[str, NonNegativeInt] = {}


def read_recipe(path: Path) -> DataRecipe:
    """Raises MemAgentError: one line with the file, the place and what is expected there."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        parts = TypeAdapter(dict[str, DataRecipe]).validate_python({"": content} if "train" in content else content)
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise MemAgentError(f"{path}: {reason_of(error)}") from None
    recipe = DataRecipe()
    for section in parts.values():
        recipe.train |= {name: count for name, count in section.train.items() if count}
        recipe.test |= {name: count for name, count in section.test.items() if count}
    if not recipe.train:
        raise MemAgentError(f"{path}: no data set to train; expected one under memory_datasets.train, say")
    return recipe


# --- rows of one file ------------------------------------------------------------------------------------------------


@dataclass
class Part:
    """One file of a data set and split, and what became of its rows."""

    dataset: str
    split: str
    wanted: int
    sampling: str
    """BY_RANKING or BY_CHANCE."""
    path: Path
    rows: int = 0
    chosen: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """By reason."""

    def line(self) -> str:
        few = f", fewer than the {self.wanted} wanted: all that can be used" if self.chosen < self.wanted else ""
        out = "".join(f", {count} left out ({why})" for why, count in sorted(self.left_out.items()))
        return f"{self.dataset} {self.split}: {self.chosen} of {self.rows} rows, {self.sampling}{few}{out}"


def find_parts(recipe: DataRecipe, folders: Sequence[Path]) -> Iterator[Part]:
    """The file of every data set and split, those of the test first. Raises MemAgentError."""
    for split, counts in (("test", recipe.test), ("train", recipe.train)):
        for dataset, wanted in counts.items():
            places = [folder / f"{dataset}_{split}_{kind}.parquet" for folder in folders for kind in (RANKING, EMBED)]
            path = next(filter(Path.is_file, places), None)
            if path is None:
                raise MemAgentError(f"{dataset}: no {' nor '.join(map(str, places))}; make it, or leave that out")
            by_ranking = split == "train" and path.stem.endswith(RANKING)
            yield Part(dataset, split, wanted, BY_RANKING if by_ranking else BY_CHANCE, path)


def usable_rows(part: Part, tested: set[object], seed: int) -> list[int]:
    """The numbers of the rows that can be taken if their prompts have room, first those to take first.

    ``tested`` has every test question, taken or not, by data set and id and by text.
    """
    found: list[tuple[float, str, int]] = []
    seen: set[str] = set()
    for number, row in enumerate(read_rows(part.path)):
        part.rows += 1
        try:
            asked = sessions.question_of(row, str(part.path), number)
        except BadRow:
            part.left_out["bad row"] += 1
            continue
        keys = {(part.dataset, asked.id), " ".join(asked.question.casefold().split())}
        reasons = {
            "id repeated": asked.id in seen, "in a test file": part.split == "train" and tested & keys,
            "no sessions": not asked.sessions, "no gold session": not asked.gold,
            "no similarities": len(row.get("similarities") or ()) != len(asked.sessions),
        }
        seen.add(asked.id)
        tested |= keys if part.split == "test" else set()
        if reason := next((reason for reason, holds in reasons.items() if holds), ""):
            part.left_out[reason] += 1
        else:
            first = -priority(asked, row) if part.sampling == BY_RANKING else 0.0
            chance = hashlib.sha256(f"{seed}/{part.dataset}/{asked.id}".encode()).hexdigest()
            found.append((first, chance, number))
    return [number for _, _, number in sorted(found)]


def priority(asked: HistoryQuestion, row: Row) -> float:
    """By the last ranking; by the order of similarity, which is used in its place, where it names nothing."""
    named = list(dict.fromkeys(row.get("haystack_session_gen_rankings") or ()))
    return 1 - abs(anchor_score(named or sessions.by_score(row["similarities"]), asked.gold_positions) - ANCHOR)


def made_rows(part: Part, order: Sequence[int], prompts: RankingPrompts) -> Iterator[tuple[Row, str]]:
    """The rows and documents that are wanted, the first of ``order``, in the file's order.

    One whose prompt has no room for its gold is left out, and counted so; the next of ``order`` takes its place, for
    which the file is read once more.
    """
    waiting = iter(order)
    while numbers := {*islice(waiting, part.wanted - part.chosen)}:
        for number, row in enumerate(read_rows(part.path)):
            if number in numbers:
                try:
                    made = rank_row(part.dataset, sessions.question_of(row, str(part.path), number), row, prompts)
                except NoRoom:
                    part.left_out["gold sessions exceed the budget"] += 1
                else:
                    part.chosen += 1
                    yield made


def rank_row(dataset: str, asked: HistoryQuestion, row: Row, prompts: RankingPrompts) -> tuple[Row, str]:
    """The row of a usable question, without its ``history_id``, and the document that this is to name.

    ``row`` is of stage 1. Raises NoRoom.
    """
    gold = asked.gold_positions
    order = [*gold, *(position for position in sessions.by_score(row["similarities"]) if position not in gold)]
    prompt, shown, tokens = prompts.fill(asked, order, needed=gold)
    counted = row.get("session_tokens") or ()  # by stage 1, as stage 3 packs
    if len(counted) == len(asked.sessions):
        tokens = dict(enumerate(counted))
    told = [asked.sessions[position] for position in shown]
    history = orjson.dumps({"sessions": sessions.talks_of(told), "ids": [session.id for session in told],
                            "dates": [session.date for session in told]})
    metadata = {
        "task": "rank_sessions", "id": f"{dataset}/{asked.id}", "dataset": dataset, "shown": len(shown),
        "gold": [number for number, position in enumerate(shown) if position in gold],
        "question": asked.question, "question_date": asked.date, "language": asked.language.value,
        "answers": list(asked.answers), "options": list(asked.options),
        "session_tokens": [tokens[position] for position in shown]}
    return {"prompt": [{"role": "user", "content": prompt}], "label": "", "metadata": metadata}, history.decode()


# --- the files -------------------------------------------------------------------------------------------------------


def write_files(manifest: Manifest, source: Row, parts: Sequence[Part], prompts: RankingPrompts, seed: int) -> None:
    tested, store = set[object](), DocumentStore(manifest.folder / SHARED_STORE)
    with scratch_folder(".rows-", manifest.folder) as scratch:
        with pa.ipc.new_stream(scratch / "rows.arrow", SCHEMA) as spool:
            for part in parts:
                for row, history in made_rows(part, usable_rows(part, tested, seed), prompts):
                    row["metadata"]["history_id"] = store.add(history)
                    spool.write_table(pa.Table.from_pylist([row], SCHEMA))
        rows, lines = Dataset.from_file(str(scratch / "rows.arrow")), [part.line() for part in parts]
        tests, files = 0, {}
        for part in parts:  # the test's come first
            if part.split == "test" and part.chosen:
                files[f"eval_{part.dataset}.json"] = rows.select(range(tests, tests + part.chosen))
                tests += part.chosen
        if len(rows) == tests:
            raise MemAgentError("no row to train; " + "; ".join(lines))
        train, shards = rows.select(range(tests, len(rows))).shuffle(seed), -(-(len(rows) - tests) // ROWS_PER_FILE)
        files |= {f"train_{number}.parquet": train.shard(shards, number, contiguous=True) for number in range(shards)}
        files |= {"test.parquet": rows.select(range(tests))} if tests else {}
        for name, content in files.items():
            with manifest.draft(name, source) as out:
                (write_rows if name.endswith(".parquet") else write_evaluation)(content, out)
    counts = [{name: value for name, value in vars(part).items() if name != "path"} for part in parts]
    summary = {"train": len(train), "test": tests, "shards": shards, "lines": lines, "datasets": counts}
    with manifest.draft(SUMMARY, source) as out:
        out.write(orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def write_rows(rows: Dataset, file: BinaryIO) -> None:
    """One parquet file, in groups that a host may read a row out of."""
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for group in rows.with_format("arrow").iter(BATCH_ROWS):
            writer.write_table(group.combine_chunks())


def write_evaluation(rows: Dataset, file: BinaryIO) -> None:
    """Entries of ``eval_<dataset>.json`` (``evaluation.questions``): an answer is the numbers of the gold sessions,
    and no stored history is needed.
    """
    entries = []
    for row in rows:
        own = {name: value for name, value in row["metadata"].items() if name not in ("task", "id", "history_id")}
        entries.append(orjson.dumps({
            "index": row["metadata"]["id"], "task": "rank_sessions", "input": row["prompt"][0]["content"],
            "answers": [",".join(map(str, own["gold"]))], "metadata": own}))
    file.write(b"[\n" + b",\n".join(entries) + b"\n]\n")


# --- the command -----------------------------------------------------------------------------------------------------


@one_line_errors("files that are there stay as they are", codes={MemAgentError: 2, OSError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent prepare-rl-data", description="The data of a round of training.")
    add = parser.add_argument
    add("--recipe", type=Path, **from_variable("DATA_RECIPE"), help="YAML: data sets with numbers of questions")
    add("--data-dirs", type=Path, nargs="+", required=True, metavar="DIR",
        help="rankings of the last round and files of stage 1; the first that has a data set counts")
    add("--output-dir", type=Path, **from_variable("OUTPUT_DIR"), help="gets rl_train_data/VERSION")
    add("--version", default=os.environ.get("VERSION") or f"v{date.today():%m%d}-0", help="of the folder (v{MMDD}-0)")
    add("--tokenizer", **from_variable("HF_CKPT", "MODEL_PATH"), help="of the model that is trained")
    add("--max-prompt-tokens", type=positive_number, default=PROMPT_TOKENS, help=f"of a prompt ({PROMPT_TOKENS})")
    add("--prompts", default="", help="YAML file with another wording, as session-ranking's")
    add("--seed", type=whole_number, default=42, help="of choices and order (42)")
    given = parser.parse_args(argv)
    disable_progress_bars()
    recipe, wording = read_recipe(given.recipe), sessions.load_wording(given.prompts)
    parts = list(find_parts(recipe, given.data_dirs))
    folder = local_folder(given.tokenizer, "--tokenizer", weights=False)
    source = {  # what decides every byte of the files
        "kind": "rl_train_data", "recipe": recipe.model_dump(), "seed": given.seed,
        "prompt_tokens": given.max_prompt_tokens, "tokenizer": tokenizer_hash(folder), "wording": wording.digest,
        "inputs": {f"{part.dataset}/{part.split}": [part.path.parent.name, part.path.name, sha256_of(part.path)]
                   for part in parts}}
    vocabulary = load_vocabulary(folder, Config.from_env().trust_remote_code)
    prompts = RankingPrompts(wording, lambda text: len(vocabulary.encode_text(text)), given.max_prompt_tokens)
    with locked_manifest(given.output_dir / "rl_train_data" / given.version) as manifest:
        if not manifest.has(SUMMARY, source):
            write_files(manifest, source, parts, prompts, given.seed)
        summary = orjson.loads((manifest.folder / SUMMARY).read_bytes())
    print(*summary["lines"], sep="\n")
    print(f"{manifest.folder}: {summary['train']} rows in {summary['shards']} shards, {summary['test']} to test")
    return 0


def from_variable(*names: str) -> dict[str, Any]:
    """Of a required option: the first of these variables that is set stands in for it."""
    default = next((os.environ[name] for name in names if os.environ.get(name)), None)
    return {"default": default, "required": default is None}
