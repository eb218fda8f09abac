"""Rows of a parquet file through an async worker on Ray Data; a second run asks only for what has no good result.

::

    OUTPUT                      the finished file: the input's rows and columns, in its order, and what the stage adds
    OUTPUT.parts/               while it is at work
        settings.json           what shapes a result beside the rows: model, sampling, wording
        wanted.txt              keys of the rows that this run asks for
        1732690000-4711.jsonl   rows that one worker process has finished: [key, added columns] a line

Ray is one of this machine that lives as long as the command, or a cluster whose machines see the same folders. A
worker appends a row the moment it has its result, so a kill at any moment costs what was in flight and no more. Many
rows are in flight at once, whatever the blocks are that they came in: a slow reply holds up no other row.

A row is known by a digest of all its columns. Rows that are added, changed or were not good are asked again, wherever
they stand now; all others keep what they have. OUTPUT holds its settings and its rows' keys as metadata, and is
replaced by one rename.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ..system.errors import ConfigError, MemAgentError, reason_of
from ..system.files import append_whole, folder_lock, remove, remove_drafts, replacing, write_atomically
from ..system.gather import gather_or_cancel
from ..system.signals import stop_on_signals
from .files import DATA, OK, Row, open_table, read_batches, stage_config

Work = Callable[[Row], Awaitable[Row]]
"""A row to the columns that it adds, its status among them. Raises MemAgentError where no row could do better."""
_SETTINGS, _KEYS = b"mem_agent.about", b"mem_agent.rows"
_BLOCK = 8
"""Rows of a block of Ray's. Of 8 exponential waits the longest is 2.7 times the mean, so a window of n requests takes
3 n / 8 blocks at once."""
_WANTED = "wanted.txt"
_RAY = {"RAY_enable_worker_prestart": "0", "RAY_worker_niceness": "0", "RAY_LOG_TO_DRIVER_EVENT_LEVEL": "ERROR",
        "RAY_BACKEND_LOG_LEVEL": "fatal"}
"""No process for each core, of which few are needed; as urgent as the command itself; without Ray's own lines."""
_STARTS = 3
_PACKAGE_PARENT = str(Path(__file__).parents[2])


class OtherSettings(MemAgentError):
    """A file was made with other settings; the message names both."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where rows are worked on."""

    address: str = "local"
    workers: int = 1
    gpus: float = 0.0
    """Of each worker."""


@dataclass
class StageRun:
    """One file of a stage."""

    source: Path
    output: Path
    adds: pa.Schema
    status: str
    """The added column that says OK of a good row."""
    settings: Mapping[str, Any]
    """Everything beside the rows that shapes a result."""
    data: str
    """The data set and split; the output says it."""
    limit: int | None = None

    @property
    def parts(self) -> Path:
        return self.output.with_name(f"{self.output.name}.parts")

    @cached_property
    def keys(self) -> list[str]:
        return [key_of(row) for batch in read_batches(self.source, self.limit) for row in batch.to_pylist()]

    def wanted(self) -> set[str]:
        """Keys of rows that have no good result yet. Raises OtherSettings."""
        check_settings(self.output, self.settings)
        known = self._known()
        return {key for key in self.keys if known.get(key, {}).get(self.status) != OK}

    def run(self, make: Callable[[bool], Work], cluster: Cluster, concurrency: int, describe: str) -> Counter[str]:
        """Ask for what is missing, write ``output``, and count the statuses of its rows.

        Args:
            make: the worker, made once in each process, which is told whether any row has a good result.
            concurrency: requests that a worker has in flight.
            describe: what runs, for the progress line.

        Raises:
            OtherSettings: ``output`` is of other settings.
            MemAgentError: what the worker raises; another run writes ``output``.
        """
        self.output.parent.mkdir(parents=True, exist_ok=True)
        busy = f"{self.output.name}: another run writes it; wait for it to end, or choose another output"
        with folder_lock(self.output.parent, busy=busy, name=f".{self.output.name}.lock"):
            wanted = self.wanted()
            remove_drafts(self.output.parent)
            if wanted:
                self.parts.mkdir(exist_ok=True)
                write_atomically(self.parts / "settings.json", orjson.dumps(dict(self.settings)))
                (self.parts / _WANTED).write_text(" ".join(wanted))
                worker = (make, len(wanted) < len(self.keys), self.status, self.parts)
                with tqdm(total=len(wanted), desc=describe, unit="row", disable=None) as progress:
                    for finished in ask(self.source, worker, cluster, concurrency, len(self.keys)):
                        progress.update(finished)
            known = self._known()
            self._write(known)
            asked = set(self.keys)
            self._remove_parts({key: row for key, row in known.items() if key not in asked})
        return Counter(known[key][self.status] for key in self.keys)

    def _known(self) -> dict[str, Row]:
        """What was added to rows, by key: by the output, then by what is newer; a good result is never replaced."""
        found = dict(self._finished())
        for key, row in read_parts(self.parts):
            if row[self.status] == OK or found.get(key, {}).get(self.status) != OK:
                found[key] = row
        return found

    def _finished(self) -> Iterator[tuple[str, Row]]:
        if self.output.exists():
            with open_table(self.output) as file:
                keys = file.schema_arrow.metadata[_KEYS].decode().split()
                yield from zip(keys, file.read(self.adds.names).to_pylist(), strict=True)

    def _write(self, known: Mapping[str, Row]) -> None:
        metadata = {_KEYS: " ".join(self.keys)}
        write_output(self.source, self.output, self.adds, lambda rows: [known[key_of(row)] for row in rows],
                     self.settings, self.data, self.limit, metadata)

    def _remove_parts(self, others: Mapping[str, Row]) -> None:
        """What is known of rows that are not asked for today stays."""
        kept = self.parts / "0-kept.jsonl"
        if others:
            self.parts.mkdir(exist_ok=True)
            write_atomically(self.parts / "settings.json", orjson.dumps(dict(self.settings)))
            write_atomically(kept, b"".join(orjson.dumps(pair) + b"\n" for pair in others.items()))
            for path in self.parts.glob("[1-9]*.jsonl"):
                path.unlink()
        else:
            remove(self.parts)


class RowWorker:
    """In each worker process of Ray: asks for the wanted rows of a block side by side."""

    def __init__(self, make: Callable[[bool], Work], any_known: bool, status: str, parts: Path) -> None:
        # Ray makes a worker that died anew: what it had finished is in its file.
        finished = {key for key, row in read_parts(parts) if row[status] == OK}
        self._wanted = set((parts / _WANTED).read_text().split()) - finished
        self._file = (parts / f"{time.time_ns()}-{os.getpid()}.jsonl").open("ab", buffering=0)
        self._work = make(any_known)

    async def __call__(self, block: pa.Table) -> Any:
        rows = [(key, row) for row in block.to_pylist() if (key := key_of(row)) in self._wanted]
        try:
            await gather_or_cancel(*(self._one(key, row) for key, row in rows))
        except MemAgentError as error:
            yield {"finished": [0], "error": [str(error)]}
        else:
            yield {"finished": [len(rows)], "error": [""]}

    async def _one(self, key: str, row: Row) -> None:
        added = await self._work(row)
        append_whole(self._file, orjson.dumps([key, added]) + b"\n")


def ask(source: Path, worker: tuple[Any, ...], cluster: Cluster, concurrency: int, rows: int) -> Iterator[int]:
    """Rows of ``source`` through ``RowWorker(*worker)`` on Ray; how many are finished, as they are.

    Raises MemAgentError: a worker raised one, or is gone.
    """
    ray = connect(cluster)
    calls = 1 + 3 * concurrency // _BLOCK
    pool = ray.data.ActorPoolStrategy(size=cluster.workers, max_tasks_in_flight_per_actor=calls,
                                      max_concurrent_calls_per_actor=calls)
    blocks = ray.data.read_parquet(str(source.absolute()), override_num_blocks=-(-rows // _BLOCK))
    blocks = blocks.repartition(target_num_rows_per_block=_BLOCK)
    asked = blocks.map_batches(RowWorker, fn_constructor_args=worker, batch_format="pyarrow", batch_size=None,
                               compute=pool, num_gpus=cluster.gpus or None)
    with lost_workers():
        for found in asked.iter_rows():
            if found["error"]:
                raise MemAgentError(found["error"])
            yield int(found["finished"])


@contextmanager
def lost_workers() -> Iterator[None]:
    """A worker's process that has ended becomes a MemAgentError."""
    from ray.exceptions import RayActorError

    try:
        yield
    except RayActorError as error:
        raise MemAgentError(f"a worker has ended ({reason_of(error)}); the same command continues") from None


def connect(cluster: Cluster) -> Any:
    """``ray``, with a Ray of this machine started, or a cluster joined. Raises ConfigError: it is not there."""
    for name, value in _RAY.items():  # some are read where it is imported
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ImportError:
        raise ConfigError("no Ray is installed: pip install 'mem-agent[memsifter]'") from None
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {}
    if cluster.address == "local":
        cpus = (os.cpu_count() or 1) + cluster.workers + 2  # two tasks read
        options = {"num_cpus": cpus, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    path = ":".join(dict.fromkeys([_PACKAGE_PARENT, *filter(None, sys.path)]))
    for attempt in range(_STARTS):
        try:
            ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR,
                     runtime_env={"env_vars": {"PYTHONPATH": path}}, **options)
            break
        except Exception as error:  # plain ones, where a busy machine takes longer than Ray's half minute
            if attempt + 1 == _STARTS or cluster.address != "local":
                raise ConfigError(f"--ray {cluster.address}: no Ray answers there ({reason_of(error, 160)})") from None
    stop_on_signals()  # Ray's own handlers end the process without a word
    ray.data.DataContext.get_current().enable_progress_bars = False
    for name in ("ray.data", "ray.util"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray


def cluster_of(address: str | None, workers: int, gpus: float = 0.0) -> Cluster:
    """``address`` of ``--ray``, else RAY_ADDRESS. Raises ConfigError."""
    address = address if address is not None else stage_config().ray_address
    if address.startswith(("http://", "https://")):
        raise ConfigError(f"RAY_ADDRESS={address}: is a job server's; workers join a cluster by --ray auto, HEAD:6379 "
                          "or ray://HEAD:10001, or start a Ray of this machine by --ray local")
    return Cluster(address or "local", workers, gpus)


# --- files ----------------------------------------------------------------------------------------------------------


def key_of(row: Row) -> str:
    """What a row is known by: a digest of its columns."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS
    return hashlib.sha256(orjson.dumps(row, default=repr, option=options)).hexdigest()[:16]


def read_parts(parts: Path) -> Iterator[tuple[str, Row]]:
    """Keys and added columns of all finished rows, oldest worker first."""
    for path in sorted(parts.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            with suppress(orjson.JSONDecodeError):  # cut by a kill
                key, row = orjson.loads(line)
                yield key, row


def check_settings(output: Path, settings: Mapping[str, Any]) -> None:
    """Raises OtherSettings where ``output``, or what there is of it, was not made with ``settings``."""
    parts = output.with_name(f"{output.name}.parts")
    found: list[bytes] = []
    if output.exists():
        found.append((open_table(output).schema_arrow.metadata or {}).get(_SETTINGS, b""))
    with suppress(FileNotFoundError):
        found.append((parts / "settings.json").read_bytes())
    for told in found:
        before = {}
        with suppress(orjson.JSONDecodeError):
            before = orjson.loads(told)
        if before != settings:
            names = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
            changed = ", ".join(f"{name} {before.get(name)!r}, now {settings.get(name)!r}" for name in names)
            raise OtherSettings(f"{output}: was made with other settings ({changed:.300}); choose another output, or "
                                f"move this file and {parts.name} away")


def write_output(
    source: Path, output: Path, adds: pa.Schema, added: Callable[[list[Row]], Iterable[Row]],
    settings: Mapping[str, Any], data: str, limit: int | None = None, metadata: Mapping[bytes, str] | None = None,
) -> None:
    """Rows of ``source`` with the columns ``adds``, in place of its own of these names, a few rows in memory."""
    own = [field for field in open_table(source).schema_arrow if field.name not in adds.names]
    about = {_SETTINGS: orjson.dumps(dict(settings)), DATA: data, **(metadata or {})}
    schema = pa.schema([*own, *adds], metadata=about)
    with replacing(output) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in read_batches(source, limit):
            beside = pa.Table.from_pylist(list(added(batch.to_pylist())), schema=adds)
            columns = [batch[field.name] for field in own] + beside.columns
            writer.write_table(pa.table(columns, schema=schema))
