"""Where the stages' files lie, how they are read, and the options that say so. ::

    DATA_DIR/locomo/test.parquet                          histories and questions
    OUTPUT_DIR/bge-m3/locomo_test_embed.parquet           stage 1
    OUTPUT_DIR/my-ranker/locomo_test_ranking.parquet      stage 2
    OUTPUT_DIR/a_mem/locomo_test_retrieved_memory.parquet from elsewhere: a text in the column retrieved_memory
    OUTPUT_DIR/gpt-x/my-ranker/locomo_test_chat.parquet   stage 3, of the chat model gpt-x

An option has the name of MemSifter's variable, and that variable is its default: ``OUTPUT_DIR=/results mem-agent
chat-infer`` is ``mem-agent chat-infer --output-dir /results``. Sampling (EVAL_TEMPERATURE, EVAL_TOP_P, SEED), BASE_URL
and ENGINE_MAX_LEN are settings of ``mem-agent config``, as in an evaluation.

A row may hold a history of millions of letters (3.5 MB each in LongMemEval_m), so files are read a few rows at a time.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ..config import Config
from ..system.command_line_types import positive_number
from ..system.errors import ConfigError, MemAgentError
from ..system.files import write_atomically
from ..system.logging_setup import log_to_terminal
from ..system.recipe import use_recipe
from ..system.signals import stop_on_signals

Row = dict[str, Any]
SOURCE, EMBED, RANKING, MEMORY, CHAT = "", "embed", "ranking", "retrieved_memory", "chat"
OK = "ok"
"""What a status column says of a good row."""
FINISHED_WITH_FAILURES = 3
"""Exit code where every row has its line, but some have no reply; the same command asks for those again."""
_MADE_BY = {SOURCE: "prepare-sessions", EMBED: "session-embedding", RANKING: "session-ranking"}
_AT_ONCE = 16
"""Rows in memory."""


def stage_parser(stage: str, description: str) -> argparse.ArgumentParser:
    """With the options of all stages: which files, and where they are worked on."""
    parser = argparse.ArgumentParser(prog=f"mem-agent {stage}", description=description)
    add_option(parser, "output_dir", "data/results", "folder of what the stages write")
    add_option(parser, "datasets", "", "data sets, separated by blanks; default: all that are there")
    add_option(parser, "splits", "test", "their splits, separated by blanks")
    add_option(parser, "embedding_model_name", "bge-m3", "the embedding model's name in the files of stage 1")
    add_option(parser, "workers", 1, "processes that work side by side", positive_number)
    parser.add_argument("--limit", type=positive_number, help="only so many questions of each file")
    parser.add_argument("--ray", help="auto, HEAD:6379 or ray://HEAD:10001 (RAY_ADDRESS, else this machine)")
    return parser


def add_option(parser: argparse.ArgumentParser, name: str, default: Any, help: str, kind: Any = str) -> None:
    """``--name``, with the variable NAME as its default where that is set."""
    given = os.environ.get(name.upper()) or default
    parser.add_argument(f"--{name.replace('_', '-')}", default=given, type=kind,
                        help=f"{help} ({str(given) or 'none'})")


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of a stage that begins: quiet, and stopped in order."""
    given = parser.parse_args(argv)
    log_to_terminal(logging.ERROR)
    stop_on_signals()
    return given


def stage_config(defaults: Mapping[str, Any] = {}) -> Config:
    """TEMPERATURE, which is that of training elsewhere, is here the name of EVAL_TEMPERATURE; 0.6 unless set.

    Raises ConfigError.
    """
    use_recipe()
    temperature = os.environ.get("TEMPERATURE") or 0.6
    own = {name: value for name, value in os.environ.items() if name != "TEMPERATURE"}
    return Config.from_env(own, {"EVAL_TEMPERATURE": temperature, **defaults})


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
        remedy = f"; mem-agent {_MADE_BY[kind]} makes it" if kind in _MADE_BY else ""
        raise MemAgentError(f"{where}: no such file{remedy}")
    return found


def stage_file(output_dir: str, data: str, kind: str, *models: str) -> Path:
    """Where a stage writes the file of a data set and split. A model's name may have slashes."""
    return Path("/".join([output_dir, *models, f"{data.replace('/', '_')}_{kind}.parquet"]))


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


def keep_settings(path: Path, settings: Mapping[str, Any], made: bool = True) -> None:
    """Write what shapes a result. Raises ConfigError where something was ``made`` with others."""
    before = orjson.loads(path.read_bytes()) if made and path.exists() else settings
    for name in sorted({*before, *settings}):
        if before.get(name) != settings.get(name):
            told = f"{name} was {before.get(name)!r:.80} and is {settings.get(name)!r:.80}"
            raise ConfigError(f"{path}: {told}; keep it, choose another output, or move what was made away")
    write_atomically(path, orjson.dumps(settings, option=orjson.OPT_INDENT_2))
