"""Rows of a parquet file through an async worker on Ray Data; a second run asks only for what has no good result.

::

    OUTPUT                       the input's rows and columns, in its order, and what the stage adds
    OUTPUT.parts/settings.json   what shapes a result beside the rows: model, sampling, wording
    OUTPUT.parts/1732690000.jsonl    what one worker process has added to rows: [key, columns] a line

A worker appends a row the moment it has its result, so a kill at any moment costs what was in flight and no more. Many
rows are in flight at once, whatever the blocks are that they came in: a slow reply holds up no other row.

A row is known by its question_id and by what an earlier stage says of it (``KNOWN_BY``): where stage 2 ranks a
question again, stage 3 asks it again. OUTPUT is made of all parts, and replaced by one rename.

Ray is one of this machine that lives as long as the command, or a cluster whose machines see the same folders.

Stages 2 and 3 ask a chat endpoint: at BASE_URL, or engines that are started for them and end with them.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import os
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ..agents.records import FailureKind
from ..config import Config
from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings, Reply
from ..system.errors import ConfigError, MemAgentError, reason_of
from ..system.files import append_whole, folder_lock, replacing
from ..system.gather import gather_or_cancel
from ..system.server_url import key_from, without_key
from ..system.signals import stop_on_signals
from ..system.text import one_line
from .files import FINISHED_WITH_FAILURES, OK, Row, keep_settings, read_batches, read_rows, stage_config

Work = Callable[[Row], Awaitable[Row]]
"""A row to the columns that it adds. Raises MemAgentError where no row could do better."""
KNOWN_BY = ("question_id", "question", "haystack_session_ids", "session_tokens", "haystack_session_gen_rankings",
            "retrieved_memory")
_BLOCK = 8
"""Rows of a block of Ray's. Of 8 exponential waits the longest is 2.7 times the mean, so a window of n requests takes
3 n / 8 blocks at once."""
_RAY = {"RAY_enable_worker_prestart": "0", "RAY_worker_niceness": "0", "RAY_LOG_TO_DRIVER_EVENT_LEVEL": "ERROR",
        "RAY_BACKEND_LOG_LEVEL": "fatal"}
"""No process for each core, of which few are needed; as urgent as the command itself; without Ray's own lines."""
BUSY = "another run writes it; wait for it to end"
_EMPTY = {pa.string(): "", pa.int64(): 0}


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

    def left(self) -> set[str]:
        """Keys of rows that have no good result yet. Raises ConfigError: the output is of other settings."""
        settle(self.output, self.settings)
        known = self._known()
        return {key for key in self._keys() if known.get(key, {}).get(self.adds.names[-1]) != OK}

    def run(self, make: Callable[[], Work], given: argparse.Namespace, concurrency: int) -> Counter[str]:
        """Ask for what is missing, write ``output``, and count the statuses of its rows.

        Args:
            make: the worker, made once in each process.
            given: ``ray`` and ``workers``.
            concurrency: requests in flight, of all workers.

        Raises:
            MemAgentError: what the worker raises; another run writes ``output``, or it is of other settings.
        """
        with folder_lock(parts_of(self.output), busy=BUSY):
            if left := self.left():
                worker = (make, left, parts_of(self.output))
                with tqdm(total=len(left), desc=self.output.stem, unit="row", disable=None) as progress:
                    for finished in ask(self.source, worker, given, concurrency // given.workers):
                        progress.update(finished)
            known = self._known()
            write_output(self.source, self.output, self.adds, lambda row: known[key_of(row)], self.limit)
        return Counter(known[key][self.adds.names[-1]] for key in self._keys())

    def _keys(self) -> list[str]:
        return [key_of(row) for row in read_rows(self.source, KNOWN_BY, self.limit)]

    def _known(self) -> dict[str, Row]:
        """What was added to rows, by key, the newest of each."""
        found = {}
        for path in sorted(parts_of(self.output).glob("*.jsonl")):
            for line in path.read_bytes().splitlines():
                with suppress(orjson.JSONDecodeError):  # cut by a kill
                    key, found[key] = orjson.loads(line)
        return found


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


def ask(source: Path, worker: tuple[Any, ...], given: argparse.Namespace, concurrency: int) -> Iterator[int]:
    """Rows of ``source`` through ``RowWorker(*worker)`` on Ray; how many are finished, as they are.

    Raises MemAgentError, as a worker does.
    """
    ray = connect(given)
    calls = 1 + 3 * concurrency // _BLOCK
    pool = ray.data.ActorPoolStrategy(size=given.workers, max_tasks_in_flight_per_actor=calls,
                                      max_concurrent_calls_per_actor=calls)
    count = -(-pq.read_metadata(source).num_rows // _BLOCK)
    blocks = ray.data.read_parquet(str(source.absolute()), override_num_blocks=count)
    asked = blocks.repartition(target_num_rows_per_block=_BLOCK).map_batches(
        RowWorker, fn_constructor_args=worker, batch_format="pyarrow", batch_size=None, compute=pool)
    for found in asked.iter_rows():
        if found["error"]:
            raise MemAgentError(found["error"])
        yield int(found["finished"])


def connect(given: argparse.Namespace) -> Any:
    """``ray``, with a Ray of this machine started, or a cluster joined. Raises ConfigError: it is not there."""
    for name, value in _RAY.items():  # some are read where it is imported
        os.environ.setdefault(name, value)
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


# --- a chat endpoint ------------------------------------------------------------------------------------------------


class AskingWorker(ABC):
    """A row to the columns that a model's reply adds; made once in each process."""

    adds: pa.Schema
    name: str
    """Of the stage, in the seeds of its rows."""

    def __init__(self, settings: ChatSettings, config: Config) -> None:
        self._key, self._client, self.config = settings.key, ChatClient(settings), config

    @abstractmethod
    def prepare(self, row: Row) -> tuple[str, Row]:
        """A prompt, and the columns that are known before the reply. Raises MemAgentError: a bad row."""

    @abstractmethod
    def read(self, reply: Reply, added: Row) -> Row:
        """The columns of a reply, beside those ``added``."""

    async def __call__(self, row: Row) -> Row:
        """Raises ChatFailed where the server is gone, or refuses what every row would ask."""
        status = self.adds.names[-1]
        added: Row = {field.name: _EMPTY.get(field.type, []) for field in self.adds}
        try:
            prompt, known = await asyncio.to_thread(self.prepare, row)
            added |= known
            seed = self.config.seed_for(f"{row.get('question_id')}/{self.name}")
            (reply,) = await self._client.replies([{"role": "user", "content": prompt}], seed)
        except MemAgentError as error:
            kind = error.kind if isinstance(error, ChatFailed) else "bad row"
            if isinstance(error, ChatFailed) and (error.holds_for_all or kind is FailureKind.CONNECTION):
                raise
            return added | {status: f"{kind}: {error}"}
        reply = Reply(without_key(reply.text, self._key), reply.cut)
        return added | {"generated_text": reply.text, **self.read(reply, added), status: OK}


def models_at(url: str) -> dict[str, int]:
    """The models at BASE_URL, and the tokens of their contexts; 0 where it does not say. Raises ChatFailed."""
    return asyncio.run(ChatClient(ChatSettings(url=url, model="", key=key_from(os.environ), timeout_s=30.0)).served())


@contextmanager
def endpoint(
    config: Config, model: Path | None, called: str, folder: Path, stages: Sequence[Stage]
) -> Iterator[dict[str, Any]]:
    """``url``, ``model`` and ``key`` of ChatSettings: ``called`` at BASE_URL, else engines of ``model`` with a context
    of ENGINE_MAX_LEN tokens, which log to ``folder``/logs; none where ``stages`` have nothing left.

    Raises FleetError where they do not start; before, ConfigError of other settings.
    """
    left = [stage.left() for stage in stages]
    if config.base_url:
        yield {"url": config.base_url, "model": called, "key": key_from(os.environ)}
    elif model is None or not any(left):
        yield {"url": "http://127.0.0.1:9", "model": called}  # which nobody asks
    else:
        from ..serving.fleet import Fleet  # which imports torch
        from ..serving.servers import SERVED_NAME

        print(f"serving {model}, {config.engine_max_len} tokens; logs in {folder}/logs", file=sys.stderr)
        fleet = Fleet(config, model, run_folder=folder)
        with asyncio.Runner() as loop:
            loop.run(fleet.__aenter__())
            try:
                yield {"url": fleet.url, "model": SERVED_NAME}
            finally:
                loop.run(fleet.stop())


def ask_all(
    stages: Sequence[Stage], makers: Sequence[Callable[[], Work]], given: argparse.Namespace, concurrency: int,
    told: Callable[[Path], str] = lambda output: "",
) -> int:
    """Run every stage, with its worker, and say what became of it, and ``told`` of its output; the exit code."""
    failed = 0
    for stage, make in zip(stages, makers, strict=True):
        statuses = stage.run(make, given, concurrency)
        count, answered = statuses.total(), statuses.pop(OK, 0)
        print(f"{answered} of {count} questions answered, {count - answered} failed{told(stage.output)} -> "
              f"{stage.output}", flush=True)
        for status, times in statuses.most_common(4):
            print(f"failed: {times} x {one_line(status, 500)}", file=sys.stderr)
        failed += count - answered
    if failed:
        print(f"{failed} questions have no reply; run again to ask for them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


# --- files ----------------------------------------------------------------------------------------------------------


def key_of(row: Row) -> str:
    """What a row is known by."""
    known = orjson.dumps([row.get(name) for name in KNOWN_BY], default=str)
    return hashlib.sha256(known).hexdigest()[:16]


def parts_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.parts")


def settle(output: Path, settings: Mapping[str, Any]) -> None:
    """Keep ``settings`` beside ``output``. Raises ConfigError: it, or a part of it, was made with others."""
    parts = parts_of(output)
    parts.mkdir(parents=True, exist_ok=True)
    made = output.exists() or any(part.stat().st_size for part in parts.glob("*.jsonl"))
    keep_settings(parts / "settings.json", settings, made)


def write_output(
    source: Path, output: Path, adds: pa.Schema, added: Callable[[Row], Row], limit: int | None
) -> None:
    """Rows of ``source`` with the columns ``adds``, in place of its own of these names, a few rows in memory."""
    own = [field for field in pq.read_schema(source) if field.name not in adds.names]
    schema = pa.schema([*own, *adds])
    with replacing(output) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in read_batches(source, limit=limit):
            beside = pa.RecordBatch.from_pylist([added(row) for row in batch.to_pylist()], schema=adds)
            columns = [batch[field.name] for field in own] + beside.columns
            writer.write_batch(pa.record_batch(columns, schema=schema))
