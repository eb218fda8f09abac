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

A recipe names data sets and how many questions of each are trained and tested; 0 leaves a data set out::

    memory_datasets:
      train: {locomo: 500, zh4o: 500}
      test: {locomo: 60}
    deepsearch_datasets:
      train: {HotpotQA: 750}

``train`` and ``test`` may also stand by themselves, as in older recipes of MemSifter, whose code at 92f0eae reads both
(``data/rl_train_data_propare.py``). Of each data set ``{primary}/{name}_{split}_ranking.parquet`` is read, and its
questions are chosen by how the last round ranked them; else ``{fallback}/{name}_{split}_embed.parquet``, at random
(``row_choice``). More than there are means all, which is said. Test questions are chosen at random, so that they are
the same in every round; ``--test-sampling anchor`` is the published way.

The prompt shows all gold sessions, and of the others the most similar to the question, as many as the budget takes
(``sessions.packing``), in the order of time. What stands in the prompt is stored once beside the files::

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
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from datasets import Dataset, disable_progress_bars
from pydantic import BaseModel, BeforeValidator, NonNegativeInt, ValidationError
from tqdm import tqdm

from ..checkpoints.hf_model import load_vocabulary, local_folder, tokenizer_hash
from ..config import Config
from ..data.document_store import SHARED_STORE, DocumentWriter
from ..data.manifest import Manifest, locked_manifest, sha256_of
from ..data.rows import BATCH_ROWS, open_file
from ..rewards.ranking import anchor_score
from ..sessions.packing import by_score, pack
from ..sessions.records import BadRow, HistoryQuestion, question_of
from ..sessions.wording import Wording, load_wording, render_history, render_session
from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError, reason_of
from ..system.files import scratch_folder
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .row_choice import Candidate, in_order

SUMMARY = "prepared.json"
TASK = "rank_sessions"
PROMPT_TOKENS = 130 * 1024
"""Of a whole prompt, as published."""
_GOLD_TOO_LARGE = "gold sessions exceed the budget"
_WIDEST = 999
"""A session's number while its tokens are counted: no shown one is written longer, in histories of up to 1,000."""
_SEAMS = 50
"""A prompt of known sessions is too long by at most this part, for their numbers and what stands between them."""
_TEXTS = pa.list_(pa.string())
_NUMBERS = pa.list_(pa.int32())
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


# --- recipe ----------------------------------------------------------------------------------------------------------

Counts = Annotated[dict[str, NonNegativeInt], BeforeValidator(lambda counts: {} if counts is None else counts)]


class DataRecipe(BaseModel, extra="forbid"):
    """Questions by data set, in the order of the file."""

    train: Counts = {}
    test: Counts = {}


class _RecipeFile(DataRecipe):
    memory_datasets: DataRecipe | None = None
    deepsearch_datasets: DataRecipe | None = None


def read_recipe(path: Path) -> DataRecipe:
    """Raises MemAgentError: one line with the file, the place and what is expected there."""
    try:
        content = _RecipeFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise MemAgentError(f"{path}: {place}: {first['msg']}, not {first['input']!r:.40}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise MemAgentError(f"{path}: {reason_of(error)}") from None
    found: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    for part in filter(None, (content.memory_datasets, content.deepsearch_datasets, content)):
        for split, counts in found.items():
            for name, count in getattr(part, split).items():
                if counts.setdefault(name, count) != count:
                    raise MemAgentError(f"{path}: {split}.{name}: {count}, and {counts[name]} before; leave one")
    wanted = {split: {name: count for name, count in counts.items() if count} for split, counts in found.items()}
    if not wanted["train"]:
        raise MemAgentError(f"{path}: no data set to train; expected one under memory_datasets.train, say")
    return DataRecipe(**wanted)


# --- one row ---------------------------------------------------------------------------------------------------------


class Unusable(ValueError):
    """A question that no row can be made of; the message is the reason, by which such questions are counted."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """How prompts are made, for all rows alike."""

    wording: Wording
    tokens_of: Callable[[str], int]
    """Tokens of a text for the model that is trained."""
    most: int
    """Tokens of a whole prompt."""

    def prompt(self, asked: HistoryQuestion, shown: Sequence[int]) -> str:
        """That shows the sessions at these positions."""
        history = render_history([asked.sessions[position] for position in shown])
        return self.wording.ranking_prompt(asked.question, history, len(shown), asked.language, asked.date)

    def room(self, asked: HistoryQuestion) -> int:
        """Tokens that are left for sessions."""
        empty = self.wording.ranking_prompt(asked.question, "", len(asked.sessions), asked.language, asked.date)
        return self.most - self.tokens_of(empty)


class Counted(Sequence[int]):
    """The tokens of each session of a question, counted when asked for: a prompt shows few of a long history."""

    def __init__(self, asked: HistoryQuestion, prompting: Prompting) -> None:
        self._asked, self._prompting = asked, prompting
        self._known: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._asked.sessions)

    def __getitem__(self, position: Any) -> Any:
        if position not in self._known:
            text = render_session(self._asked.sessions[position], _WIDEST) + "\n"
            self._known[position] = self._prompting.tokens_of(text)
        return self._known[position]


def rank_row(
    dataset: str, asked: HistoryQuestion, similarities: Sequence[float | None], tokens: Sequence[int],
    prompting: Prompting,
) -> tuple[dict[str, Any], str]:
    """The row of a usable question, without its ``history_id``, and the document that this is to name.

    ``similarities`` and ``tokens`` are by session. Raises Unusable.
    """
    gold = asked.gold_positions
    order = [*gold, *(position for position in by_score(similarities) if position not in gold)]
    room = prompting.room(asked)
    shown, prompt, over = _filled(asked, order, tokens, room, prompting)
    if over > prompting.most // _SEAMS or not set(gold) <= set(shown):  # as the tokens are another model's
        tokens = Counted(asked, prompting)
        shown, prompt, over = _filled(asked, order, tokens, room, prompting)
    while over > 0:  # by the little that numbers and seams make
        room -= over
        shown, prompt, over = _filled(asked, order, tokens, room, prompting)
    if not set(gold) <= set(shown):
        raise Unusable(_GOLD_TOO_LARGE)
    sessions = [asked.sessions[position] for position in shown]
    talks = [[{"role": turn.role, "content": turn.content} for turn in session.turns] for session in sessions]
    history = orjson.dumps({"sessions": talks, "ids": [s.id for s in sessions], "dates": [s.date for s in sessions]})
    metadata = {
        "task": TASK, "id": f"{dataset}/{asked.id}", "dataset": dataset, "shown": len(shown),
        "gold": [number for number, position in enumerate(shown) if position in gold],
        "question": asked.question, "question_date": asked.date, "language": asked.language.value,
        "answers": list(asked.answers), "options": list(asked.options),
        "session_tokens": [tokens[position] for position in shown],
    }
    return {"prompt": [{"role": "user", "content": prompt}], "label": "", "metadata": metadata}, history.decode()


def _filled(
    asked: HistoryQuestion, order: Sequence[int], tokens: Sequence[int], room: int, prompting: Prompting
) -> tuple[tuple[int, ...], str, int]:
    """The sessions of ``order`` that ``room`` takes, their prompt, and how many tokens that is too long.

    The whole prompt is counted, as stage 2 does (``ranking_prompt``): ``tokens`` may be another model's.
    """
    shown = pack(order, tokens, room).shown
    prompt = prompting.prompt(asked, shown)
    return shown, prompt, prompting.tokens_of(prompt) - prompting.most if shown else 0


def evaluation_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of ``eval_<dataset>.json`` (``evaluation.questions``) of a training row; its answer are the numbers of
    the gold sessions, and no stored history is needed.
    """
    metadata = row["metadata"]
    own = {name: value for name, value in metadata.items() if name not in ("task", "id", "history_id")}
    answer = ",".join(map(str, metadata["gold"]))
    return {"index": metadata["id"], "task": TASK, "input": row["prompt"][0]["content"], "answers": [answer],
            "metadata": own}


# --- which rows ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Part:
    """One file of a data set and split, and what became of its rows."""

    dataset: str
    split: str
    wanted: int
    path: Path
    anchored: bool
    """Chosen by the last ranking, not at random."""
    rows: int = 0
    chosen: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """By reason."""

    @property
    def ranked(self) -> bool:
        return self.path.name.endswith("_ranking.parquet")

    @property
    def sampling(self) -> str:
        return "by the last ranking" if self.anchored else "at random"

    def counts(self) -> dict[str, Any]:
        return {"dataset": self.dataset, "split": self.split, "wanted": self.wanted, "sampling": self.sampling,
                "rows": self.rows, "chosen": self.chosen, "left_out": dict(self.left_out)}

    def line(self) -> str:
        few = f", fewer than the {self.wanted} wanted: all that can be used" if self.chosen < self.wanted else ""
        out = "".join(f", {count} left out ({why})" for why, count in sorted(self.left_out.items()))
        return f"{self.dataset} {self.split}: {self.chosen} of {self.rows} rows, {self.sampling}{few}{out}"

    def read(self) -> Iterator[tuple[Mapping[str, Any], HistoryQuestion | None]]:
        """Each row and its question, None of a bad row. Raises DataError."""
        rows = tqdm(open_file(self.path), f"{self.dataset} {self.split}", unit=" rows", disable=None)
        for number, row in enumerate(rows):
            stop_if_asked()
            fields = row.fields
            try:
                yield fields, question_of(fields, str(self.path), number)
            except BadRow:
                yield fields, None


def find_parts(recipe: DataRecipe, primary: Path | None, fallback: Path | None, anchored_test: bool) -> Iterator[Part]:
    """The file of every data set and split, those of the test first. Raises MemAgentError."""
    for split, counts in (("test", recipe.test), ("train", recipe.train)):
        for dataset, wanted in counts.items():
            places = [folder / f"{dataset}_{split}_{kind}.parquet"
                      for folder, kind in ((primary, "ranking"), (fallback, "embed")) if folder]
            found = next((path for path in places if path.is_file()), None)
            if found is None:
                looked = " nor ".join(map(str, places)) or "file: --primary-data-dir or --fallback-data-dir is needed"
                raise MemAgentError(f"{dataset}: no {looked}; embed its sessions first, or leave it out of the recipe")
            part = Part(dataset, split, wanted, found, anchored=False)
            part.anchored = part.ranked and (split == "train" or anchored_test)
            yield part


def usable_rows(part: Part, prompting: Prompting, tested: set[object], seed: int) -> list[int]:
    """The numbers of the rows that can be taken, first those to take first.

    ``tested`` has every test question, taken or not, by data set and id and by text.
    """
    candidates: list[Candidate] = []
    seen: set[str] = set()
    for number, (row, asked) in enumerate(part.read()):
        part.rows += 1
        try:
            if asked is None:
                raise Unusable("bad row")
            if asked.id in seen:
                raise Unusable("id repeated")
            keys = {(part.dataset, asked.id), " ".join(asked.question.casefold().split())}
            if part.split == "train" and tested & keys:
                raise Unusable("in a test file")
            seen.add(asked.id)
            if part.split == "test":
                tested |= keys
            _check(asked, row, prompting)
        except Unusable as why:
            part.left_out[str(why)] += 1
        else:
            candidates.append(Candidate(number, asked.id, _score(asked, row) if part.anchored else None))
    ordered = in_order(candidates, seed=seed, dataset=part.dataset, anchored=part.anchored)
    return [candidate.number for candidate in ordered]


def made_rows(
    part: Part, order: Sequence[int], prompting: Prompting, recount: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """The rows and documents that are wanted, the first of ``order``, in the file's order.

    One whose whole prompt, counted at last, leaves no room for its gold is left out, and counted so; the next of
    ``order`` takes its place, for which the file is read once more.
    """
    waiting = iter(order)
    while numbers := frozenset(islice(waiting, part.wanted - part.chosen)):
        for number, (row, asked) in enumerate(part.read()):
            if number not in numbers:
                continue
            assert asked is not None, "only usable rows are in order"
            tokens = row.get("session_tokens") or ()  # as stage 1 counted them
            if recount or None in tokens or len(tokens) != len(asked.sessions):
                tokens = Counted(asked, prompting)
            try:
                made = rank_row(part.dataset, asked, row["similarities"], tokens, prompting)
            except Unusable as why:
                part.left_out[str(why)] += 1
                continue
            part.chosen += 1
            yield made


def _check(asked: HistoryQuestion, row: Mapping[str, Any], prompting: Prompting) -> None:
    """Raises Unusable."""
    if not asked.sessions:
        raise Unusable("no sessions")
    if not asked.gold:
        raise Unusable("no gold session")
    tokens = Counted(asked, prompting)
    if sum(tokens[position] for position in asked.gold_positions) > prompting.room(asked):
        raise Unusable(_GOLD_TOO_LARGE)
    if len(row.get("similarities") or ()) != len(asked.sessions):
        raise Unusable("no similarities")


def _score(asked: HistoryQuestion, row: Mapping[str, Any]) -> float:
    """Of the last ranking; of the order by similarity, which is used in its place, where it names nothing."""
    named = row.get("haystack_session_gen_rankings") or ()
    return anchor_score(list(dict.fromkeys(named)) or by_score(row["similarities"]), asked.gold_positions)


# --- the files -------------------------------------------------------------------------------------------------------


def write_rows(rows: Dataset, file: BinaryIO) -> None:
    """One parquet file, in groups that a host may read a row out of."""
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for group in rows.with_format("arrow").iter(BATCH_ROWS):
            writer.write_table(group.combine_chunks())


def shards_of(rows: Dataset, most: int, seed: int) -> list[Dataset]:
    """As few as there can be of at most ``most`` rows, of nearly equal sizes, in an order of ``seed``."""
    order = list(range(len(rows)))
    random.Random(f"{seed}/shards").shuffle(order)
    count = -(-len(rows) // most)
    bounds = [len(rows) * shard // count for shard in range(count + 1)]
    return [rows.select(order[bounds[shard]:bounds[shard + 1]]) for shard in range(count)]


def _write_evaluation(rows: Dataset, file: BinaryIO) -> None:
    entries = (orjson.dumps(evaluation_entry(row)) for row in rows)
    file.write(b"[\n" + next(entries))
    for entry in entries:
        file.write(b",\n" + entry)
    file.write(b"\n]\n")


def _write(manifest: Manifest, source: Mapping[str, Any], parts: Sequence[Part], args: argparse.Namespace) -> None:
    vocabulary = load_vocabulary(args.tokenizer, Config.from_env().trust_remote_code)
    prompting = Prompting(load_wording(args.prompts), lambda text: len(vocabulary.encode_text(text)),
                          args.max_prompt_tokens)
    tested: set[object] = set()
    spans: dict[str, range] = {}
    with (
        scratch_folder(".rows-", manifest.folder) as scratch,
        DocumentWriter(manifest.folder / SHARED_STORE) as documents,
    ):
        tests = 0
        with pa.ipc.new_stream(scratch / "rows.arrow", SCHEMA) as spool:
            for part in parts:  # the test's come first
                order = usable_rows(part, prompting, tested, args.seed)
                for row, history in made_rows(part, order, prompting, args.recount):
                    row["metadata"]["history_id"] = documents.add(history)
                    spool.write_table(pa.Table.from_pylist([row], SCHEMA))
                if part.split == "test" and part.chosen:
                    spans[part.dataset] = range(tests, tests + part.chosen)
                    tests += part.chosen
        rows = Dataset.from_file(str(scratch / "rows.arrow"))
        lines = [part.line() for part in parts]
        trained = len(rows) - tests
        if not trained:
            raise MemAgentError("no row to train; " + "; ".join(lines))
        shards = shards_of(rows.select(range(tests, len(rows))), args.rows_per_file, args.seed)
        files: dict[str, Callable[[BinaryIO], None]] = {
            f"train_{number}.parquet": partial(write_rows, shard) for number, shard in enumerate(shards)
        }
        if tests:
            files["test.parquet"] = partial(write_rows, rows.select(range(tests)))
        files |= {f"eval_{name}.json": partial(_write_evaluation, rows.select(span)) for name, span in spans.items()}
        for name, write in files.items():
            if not manifest.has(name, source):
                with manifest.draft(name, source) as out:
                    write(out)
    summary = {"train": trained, "test": tests, "shards": len(shards), "files": sorted(files),
               "lines": lines, "datasets": [part.counts() for part in parts]}
    with manifest.draft(SUMMARY, source) as out:
        out.write(orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _source(recipe: DataRecipe, parts: Sequence[Part], args: argparse.Namespace) -> dict[str, Any]:
    """What decides every byte of the files."""
    local = Path(args.tokenizer)
    folder = local if local.is_dir() else local_folder(args.tokenizer, "--tokenizer", weights=False)
    return {
        "kind": "rl_train_data", "recipe": recipe.model_dump(), "seed": args.seed,
        "prompt_tokens": args.max_prompt_tokens, "rows_per_file": args.rows_per_file,
        "test_sampling": args.test_sampling, "tokenizer": tokenizer_hash(folder), "recount": args.recount,
        "wording": sha256_of(Path(args.prompts))[:16] if args.prompts else "",
        "inputs": {f"{part.dataset}/{part.split}": {
            "from": "ranking" if part.ranked else "embed", "round": part.path.parent.name,
            "sha256": sha256_of(part.path)} for part in parts},
    }


def _is_there(manifest: Manifest, source: Mapping[str, Any]) -> bool:
    """Whether all files are. Raises ManifestError where some are of another source."""
    if not manifest.has(SUMMARY, source) or not (manifest.folder / SHARED_STORE).is_dir():
        return False
    return all(manifest.has(name, source) for name in _summary(manifest)["files"])


def _summary(manifest: Manifest) -> dict[str, Any]:
    return dict(orjson.loads((manifest.folder / SUMMARY).read_bytes()))


# --- the command -----------------------------------------------------------------------------------------------------


@one_line_errors("files that are there stay as they are", codes={MemAgentError: 2, OSError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    disable_progress_bars()
    recipe = read_recipe(args.recipe)
    parts = list(find_parts(recipe, args.primary_data_dir, args.fallback_data_dir, args.test_sampling == "anchor"))
    folder = args.output_dir / "rl_train_data" / (args.version or f"v{date.today():%m%d}-0")
    source = _source(recipe, parts, args)
    with locked_manifest(folder) as manifest:
        if not _is_there(manifest, source):
            _write(manifest, source, parts, args)
        summary = _summary(manifest)
    print(*summary["lines"], sep="\n")
    print(f"{folder}: {summary['train']} rows in {summary['shards']} shards, {summary['test']} to test")
    return 0


def from_variable(*names: str) -> dict[str, Any]:
    """Of a required option: the first of these variables that is set stands in for it."""
    default = next((os.environ[name] for name in names if os.environ.get(name)), None)
    return {"default": default, "required": default is None}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent prepare-rl-data",
                                     description="Write the training data of a round of MemSifter.")
    parser.add_argument("--recipe", type=Path, **from_variable("DATA_RECIPE"), metavar="YAML",
                        help="data sets with numbers of questions")
    parser.add_argument("--primary-data-dir", type=Path, metavar="DIR", help="rankings of the last round")
    parser.add_argument("--fallback-data-dir", type=Path, metavar="DIR", help="embedding files of stage 1")
    parser.add_argument("--output-dir", type=Path, **from_variable("OUTPUT_DIR"), metavar="DIR",
                        help="gets rl_train_data/VERSION")
    parser.add_argument("--version", default=os.environ.get("VERSION", ""), help="name of the folder (v{MMDD}-0)")
    parser.add_argument("--tokenizer", **from_variable("HF_CKPT", "MODEL_PATH"), metavar="MODEL",
                        help="of the model that is trained")
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
