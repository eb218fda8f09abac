"""What the three stages share: where their files lie, the options that say so, and rows of a file through an async
worker on Ray Data, of which a second run asks only for what has no good result. ::

    DATA_DIR/locomo/test.parquet                          histories and questions
    OUTPUT_DIR/bge-m3/locomo_test_embed.parquet           stage 1
    OUTPUT_DIR/my-ranker/locomo_test_ranking.parquet      stage 2
    OUTPUT_DIR/gpt-x/my-ranker/locomo_test_chat.parquet   stage 3, of the chat model gpt-x

    OUTPUT                            the input's rows and columns, in its order, and what the stage adds
    OUTPUT.parts/settings.json        what shapes a result beside the rows: model, sampling, wording
    OUTPUT.parts/1732690000.jsonl     what one worker process has added to rows: [key, columns] a line

An option has the name of MemSifter's variable, and that variable is its default: ``OUTPUT_DIR=/results mem-agent
chat-infer`` is ``mem-agent chat-infer --output-dir /results``. Sampling (EVAL_TEMPERATURE, EVAL_TOP_P, SEED), BASE_URL
and ENGINE_MAX_LEN are settings of ``mem-agent config``, as in an evaluation.

A worker appends a row the moment it has its result, so a kill at any moment costs what was in flight and no more. Many
rows are in flight at once, whatever the blocks are that they came in: a slow reply holds up no other row. A row is
known by its question and history and by what an earlier stage says of it (``KNOWN_BY``): where stage 2 ranks a
question again, stage 3 asks it again. OUTPUT is made of all parts, and replaced by one rename.

A row may hold a history of millions of letters (3.5 MB each in LongMemEval_m), so files are read a few rows at a time.
Ray is one of this machine that lives as long as the command, or a cluster whose machines see the same folders.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ..config import Config
from ..rewards.sessions import BadRow, HistoryQuestion
from ..system.cli import log_to_terminal, positive_number, stop_on_signals, use_recipe
from ..system.concurrency import gather_or_cancel
from ..system.errors import ConfigError, MemAgentError, reason_of
from ..system.files import append_whole, folder_lock, replacing, write_atomically

Row = dict[str, Any]
Work = Callable[[Row], Awaitable[Row]]
"""A row to the columns that it adds. Raises MemAgentError where no row could do better."""
SOURCE, EMBED, RANKING, CHAT = "", "embed", "ranking", "chat"
OK = "ok"
"""What a status column says of a good row."""
FINISHED_WITH_FAILURES = 3
"""Exit code where every row has its line, but some have no reply; the same command asks for those again."""
KNOWN_BY = ("question_id", "question", "haystack_sessions", "session_tokens", "haystack_session_gen_rankings")
_MADE_BY = {SOURCE: "prepare-sessions", EMBED: "session-embedding", RANKING: "session-ranking"}
_AT_ONCE = 16
"""Rows in memory."""
_BLOCK = 16
"""Rows of a block of Ray's. Of 16 exponential waits the longest is 3.4 times the mean, so a window of n requests takes
7 n / 32 blocks at once."""
_RAY = {"RAY_enable_worker_prestart": "0", "RAY_worker_niceness": "0", "RAY_LOG_TO_DRIVER_EVENT_LEVEL": "ERROR",
        "RAY_BACKEND_LOG_LEVEL": "fatal"}
"""No process for each core, of which few are needed; as urgent as the command itself; without Ray's own lines."""


# --- options and files -----------------------------------------------------------------------------------------------


class StageParser(argparse.ArgumentParser):
    """With the options of all stages: which files, and where they are worked on."""

    def __init__(self, stage: str, description: str) -> None:
        super().__init__(prog=f"mem-agent {stage}", description=description)
        self.option("output_dir", "data/results", "folder of what the stages write")
        self.option("datasets", "", "data sets, separated by blanks; default: all that are there")
        self.option("splits", "test", "their splits, separated by blanks")
        self.option("embedding_model_name", "bge-m3", "the embedding model's name in the files of stage 1")
        self.option("workers", 1, "processes that work side by side", positive_number)
        self.add_argument("--limit", type=positive_number, help="only so many questions of each file")
        self.add_argument("--ray", help="auto, HEAD:6379 or ray://HEAD:10001 (RAY_ADDRESS, else this machine)")

    def option(self, name: str, default: Any, help: str, kind: Any = str) -> None:
        """``--name``, with the variable NAME as its default where that is set."""
        given = os.environ.get(name.upper()) or default
        self.add_argument(f"--{name.replace('_', '-')}", default=given, type=kind, help=f"{help} ({given or 'none'})")

    def parsed(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The options of a stage that begins: quiet, and stopped in order."""
        given = self.parse_args(argv)
        log_to_terminal(logging.ERROR)
        stop_on_signals()
        return given


def stage_config(defaults: Mapping[str, Any] = {}) -> Config:
    """TEMPERATURE, which is that of training elsewhere, is here the name of EVAL_TEMPERATURE; 0.6 unless set.

    Raises ConfigError.
    """
    use_recipe()
    own = {"EVAL_TEMPERATURE": os.environ.get("TEMPERATURE") or 0.6, **defaults}
    return Config.from_env(os.environ | {"TEMPERATURE": ""}, own)


def find_files(given: argparse.Namespace, folder: Path, kind: str) -> dict[str, Path]:
    """The files of a stage, or SOURCE, in a folder, by data set and split: ``locomo/test``.

    Those that ``--datasets`` and ``--splits`` name; without data sets all that are there. Raises MemAgentError.
    """
    found = {}
    for split in given.splits.split():
        ending = f"_{split}_{kind}.parquet" if kind else f"/{split}.parquet"
        there = (str(path)[len(f"{folder}/") : -len(ending)] for path in folder.glob(f"*{ending}"))
        for name in given.datasets.split() or sorted(there):
            found[f"{name}/{split}"] = Path(f"{folder}/{name}{ending}")
    absent = [path for path in found.values() if not path.is_file()]
    if absent or not found:
        where = absent[0] if absent else folder / f"*_{given.splits}_{kind}.parquet"
        raise MemAgentError(f"{where}: no such file; mem-agent {_MADE_BY[kind]} makes it")
    return found


def stage_file(output_dir: str, data: str, kind: str, *models: str) -> Path:
    """Where a stage writes the file of a data set and split. A model's name may have slashes."""
    return Path(output_dir, *models, f"{data.replace('/', '_')}_{kind}.parquet")


def read_batches(
    path: Path, columns: Sequence[str] | None = None, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows, or all, a few in memory, of those of ``columns`` that the file has."""
    with pq.ParquetFile(path) as file:
        held = columns and [name for name in columns if name in file.schema_arrow.names]
        left = file.metadata.num_rows if limit is None else limit
        for batch in file.iter_batches(_AT_ONCE, columns=held):
            if left <= 0:
                return
            yield batch[:left]
            left -= len(batch)


def read_rows(path: Path, columns: Sequence[str] | None = None, limit: int | None = None) -> Iterator[Row]:
    """The same, row by row."""
    for batch in read_batches(path, columns, limit):
        yield from batch.to_pylist()


def of_sessions(row: Mapping[str, Any], name: str, asked: HistoryQuestion) -> list[Any]:
    """A column of stage 1 with a value for each session. Raises BadRow."""
    values = list(row.get(name) or [])
    if len(values) != len(asked.sessions):
        raise BadRow(f"question {asked.id}: {len(values)} {name} for {len(asked.sessions)} sessions")
    return values


def keep_settings(path: Path, settings: Mapping[str, Any], made: bool = True) -> None:
    """Write what shapes a result. Raises ConfigError where something was ``made`` with others."""
    before = orjson.loads(path.read_bytes()) if made and path.exists() else settings
    for name in sorted({*before, *settings}):
        if before.get(name) != settings.get(name):
            told = f"{name} was {before.get(name)!r:.80} and is {settings.get(name)!r:.80}"
            raise ConfigError(f"{path}: {told}; keep it, choose another output, or move what was made away")
    write_atomically(path, orjson.dumps(settings, option=orjson.OPT_INDENT_2))


# --- rows through a worker -------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """One file of a stage."""

    source: Path
    output: Path
    adds: pa.Schema
    """Added columns; the last one says OK of a good row."""
    settings: Mapping[str, Any]
    """Everything beside the rows that shapes a result."""
    limit: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    """Of Ray's for each worker."""

    @property
    def parts(self) -> Path:
        return self.output.with_name(f"{self.output.name}.parts")

    def statuses(self) -> dict[str, str]:
        """Of every row, by its key; empty where it has no result yet. Raises ConfigError: the output is of other
        settings."""
        self.parts.mkdir(parents=True, exist_ok=True)
        made = self.output.exists() or any(part.stat().st_size for part in self.parts.glob("*.jsonl"))
        keep_settings(self.parts / "settings.json", self.settings, made)
        known, status = self._known(), self.adds.names[-1]
        keys = map(key_of, read_rows(self.source, KNOWN_BY, self.limit))
        return {key: orjson.loads(known[key])[1][status] if key in known else "" for key in keys}

    def run(self, make: Callable[[], Work], given: argparse.Namespace, concurrency: int) -> Counter[str]:
        """Ask for what is missing, write ``output``, and count the statuses of its rows.

        Args:
            make: the worker, made once in each process.
            given: ``ray`` and ``workers``.
            concurrency: requests in flight, of all workers.

        Raises:
            MemAgentError: what the worker raises; another run writes ``output``, or it is of other settings.
        """
        with folder_lock(self.parts, busy="another run writes it; wait for it to end"):
            if left := {key for key, status in self.statuses().items() if status != OK}:
                worker, each = (make, left, self.parts), concurrency // given.workers
                with tqdm(total=len(left), desc=self.output.stem, unit="row", disable=None) as progress:
                    for finished in ask(self.source, worker, given, each, self.resources):
                        progress.update(finished)
            self._write()
        return Counter(self.statuses().values())

    def _known(self) -> dict[str, bytes]:
        """Lines of the parts, by key, the newest of each."""
        found = {}
        for path in sorted(self.parts.glob("*.jsonl")):
            for line in path.read_bytes().splitlines():
                with suppress(orjson.JSONDecodeError):  # cut by a kill
                    found[orjson.loads(line)[0]] = line
        return found

    def _write(self) -> None:
        """The rows with the columns added, in place of their own of these names, a few rows in memory."""
        known = self._known()
        own = [field for field in pq.read_schema(self.source) if field.name not in self.adds.names]
        schema = pa.schema([*own, *self.adds])
        with replacing(self.output) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in read_batches(self.source, limit=self.limit):
                added = [orjson.loads(known[key_of(row)])[1] for row in batch.to_pylist()]
                beside = pa.RecordBatch.from_pylist(added, schema=self.adds)
                columns = [batch[field.name] for field in own] + beside.columns
                writer.write_batch(pa.record_batch(columns, schema=schema))


class RowWorker:
    """In each worker process of Ray: asks for the rows of a block that are ``left``, side by side."""

    def __init__(self, make: Callable[[], Work], left: Collection[str], parts: Path) -> None:
        self._work, self._left = make(), left
        self._file = (parts / f"{time.time_ns()}.jsonl").open("ab", buffering=0)

    async def __call__(self, block: pa.Table) -> Any:
        rows = [(key, row) for row in block.to_pylist() if (key := key_of(row)) in self._left]
        error = ""
        try:
            await gather_or_cancel(*(self._one(key, row) for key, row in rows))
        except MemAgentError as failed:
            error = str(failed)
        yield {"finished": [len(rows)], "error": [error]}

    async def _one(self, key: str, row: Row) -> None:
        append_whole(self._file, orjson.dumps([key, await self._work(row)]) + b"\n")


def ask(
    source: Path, worker: tuple[Any, ...], given: argparse.Namespace, concurrency: int, resources: Mapping[str, float]
) -> Iterator[int]:
    """Rows of ``source`` through ``RowWorker(*worker)`` on Ray; how many are finished, as they are.

    Raises MemAgentError, as a worker does.
    """
    ray = connect(given)
    calls = 1 + 7 * concurrency // (2 * _BLOCK)
    pool = ray.data.ActorPoolStrategy(size=given.workers, max_tasks_in_flight_per_actor=calls,
                                      max_concurrent_calls_per_actor=calls)
    count = -(-pq.read_metadata(source).num_rows // _BLOCK)
    blocks = ray.data.read_parquet(str(source.absolute()), override_num_blocks=count)
    asked = blocks.repartition(target_num_rows_per_block=_BLOCK).map_batches(
        RowWorker, fn_constructor_args=worker, batch_format="pyarrow", batch_size=None, compute=pool, **resources)
    for found in asked.iter_rows():
        if found["error"]:
            raise MemAgentError(found["error"])
        yield int(found["finished"])


def connect(given: argparse.Namespace) -> Any:
    """``ray``, with a Ray of this machine started, or a cluster joined. Raises ConfigError: it is not there."""
    os.environ.update(_RAY | os.environ)  # some are read where it is imported
    import ray
    import ray.data

    address = given.ray or stage_config().ray_address or "local"
    path = ":".join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    options: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": path}}}
    if address == "local":  # two tasks read beside the workers
        cpus = (os.cpu_count() or 1) + given.workers + 2
        options |= {"num_cpus": cpus, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # plain ones
        raise ConfigError(f"--ray {address}: no Ray answers there ({reason_of(error)})") from None
    stop_on_signals()  # Ray's own handlers end the process without a word
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return ray


def key_of(row: Row) -> str:
    """What a row is known by."""
    known = orjson.dumps([row.get(name) for name in KNOWN_BY], default=str)
    return hashlib.sha256(known).hexdigest()[:16]
