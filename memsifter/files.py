"""Where the stages' files lie, how they are read, and the options that say so. ::

    DATA_DIR/locomo/test.parquet                          histories and questions (DATA_DIR/locomo_test.parquet too)
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
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..config import Config
from ..system.command_line_types import positive_number
from ..system.errors import ConfigError, MemAgentError, reason_of
from ..system.recipe import use_recipe

Row = dict[str, Any]
EMBED, RANKING, MEMORY, CHAT = "embed", "ranking", "retrieved_memory", "chat"
OK = "ok"
"""What a status column says of a good row."""
FINISHED_WITH_FAILURES = 3
"""Exit code where every row has its line, but some have no reply; the same command asks for those again."""
DATA = b"mem_agent.data"
"""Metadata of a stage's file: its data set and split."""
_MADE_BY = {EMBED: "mem-agent session-embedding", RANKING: "mem-agent session-ranking"}
_TEMPERATURE = 0.6
_AT_ONCE = 16
"""Rows in memory."""


class NoTable(MemAgentError):
    """A file that is no parquet table, or a damaged one; the message names it."""


class MissingStage(MemAgentError):
    """A file that an earlier stage writes is not there; the message names the command."""


# --- options --------------------------------------------------------------------------------------------------------


def stage_parser(stage: str, description: str) -> argparse.ArgumentParser:
    """With the options of all stages: which files, and where they are worked on."""
    parser = argparse.ArgumentParser(prog=f"mem-agent {stage}", description=description)
    add_option(parser, "output_dir", "data/results", "folder of what the stages write")
    add_option(parser, "datasets", "", "data sets, separated by blanks; default: all that are there")
    add_option(parser, "splits", "test", "their splits, separated by blanks")
    add_option(parser, "embedding_model_name", "bge-m3", "the embedding model's name in the files of stage 1")
    parser.add_argument("--limit", type=positive_number, help="only so many questions of each file")
    parser.add_argument("--ray", metavar="ADDRESS", help="a Ray cluster: auto, HEAD:6379 or ray://HEAD:10001 "
                        "(default: RAY_ADDRESS; none, or local: a Ray of this machine for this run)")
    parser.add_argument("--workers", type=positive_number, default=1, help="processes that work side by side (1)")
    return parser


def add_option(parser: argparse.ArgumentParser, name: str, default: Any, help: str, kind: Any = str) -> None:
    """``--name``, with the variable NAME as its default where that is set."""
    shown = f"{help} ({default})" if default != "" else help
    parser.add_argument(f"--{name.replace('_', '-')}", default=os.environ.get(name.upper()) or default, type=kind,
                        help=shown)


def stage_config(defaults: Mapping[str, Any] | None = None) -> Config:
    """TEMPERATURE, which is that of training elsewhere, is here the name of EVAL_TEMPERATURE; 0.6 unless set.

    Raises ConfigError.
    """
    use_recipe()
    own = {name: value for name, value in os.environ.items() if name != "TEMPERATURE"}
    if os.environ.get("TEMPERATURE") and not os.environ.get("EVAL_TEMPERATURE"):
        own["EVAL_TEMPERATURE"] = os.environ["TEMPERATURE"]
    return Config.from_env(own, {"EVAL_TEMPERATURE": _TEMPERATURE, **(defaults or {})})


# --- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A split of a data set."""

    dataset: str
    split: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.split}"

    def file(self, output_dir: str, kind: str, *models: str) -> Path:
        """Where a stage writes it."""
        return Path(output_dir, *map(folder_name, models), f"{self.dataset}_{self.split}_{kind}.parquet")

    def made(self, output_dir: str, kind: str, model: str) -> Path:
        """As ``file``, of an earlier stage. Raises MissingStage."""
        path = self.file(output_dir, kind, model)
        if not path.is_file():
            raise MissingStage(f"{path}: no such file{_remedy(kind)}")
        return path

    def source(self, data_dir: str) -> Path:
        """Its histories and questions. Raises MissingStage."""
        places = [Path(data_dir, self.dataset, f"{self.split}.parquet"),
                  Path(data_dir, f"{self.dataset}_{self.split}.parquet")]
        for path in places:
            if path.is_file():
                return path
        raise MissingStage(f"{places[0]}: no such file; mem-agent prepare-sessions makes it")


def parts(given: argparse.Namespace, kind: str, model: str) -> list[Part]:
    """The data sets and splits that are named; without data sets those of which ``model``'s folder has the file of a
    stage.

    Raises:
        MissingStage: there is none.
        ConfigError: a name is no name.
    """
    folder = Path(given.output_dir, folder_name(model))
    found = {
        Part(file.name.removesuffix(f"_{split}_{kind}.parquet"), split)
        for split in given.splits.split() for file in folder.glob(f"*_{split}_{kind}.parquet")
    }
    splits = ",".join(given.splits.split())
    return _chosen(given, found, f"{folder}: no *_{{{splits}}}_{kind}.parquet{_remedy(kind)}")


def source_parts(given: argparse.Namespace) -> list[Part]:
    """As ``parts``, without data sets those that the data folder has."""
    folder = Path(given.data_dir)
    found = {
        Part(file.parent.name, split)
        for split in given.splits.split() for file in folder.glob(f"*/{split}.parquet")
    }
    splits = ",".join(given.splits.split())
    return _chosen(given, found, f"{folder}: no */{{{splits}}}.parquet; mem-agent prepare-sessions makes them")


def _chosen(given: argparse.Namespace, found: set[Part], absent: str) -> list[Part]:
    names, splits = given.datasets.split(), given.splits.split()
    if not splits:
        raise ConfigError("--splits is empty; name some, as in --splits 'train test'")
    if bad := [name for name in (*names, *splits) if "/" in name or name in (".", "..")]:
        raise ConfigError(f"--datasets and --splits name files; {bad[0]!r} is no plain name")
    if names:
        return [Part(name, split) for name in names for split in splits]
    if not found:
        raise MissingStage(absent)
    return sorted(found, key=lambda part: (part.dataset, splits.index(part.split)))


def has_files(given: argparse.Namespace, kind: str, model: str) -> bool:
    """Whether ``model``'s folder has such a file of any data set and split that is named."""
    try:
        return any(part.file(given.output_dir, kind, model).is_file() for part in parts(given, kind, model))
    except MissingStage:
        return False


def folder_name(model: str) -> str:
    """A model's name as a folder of results: slashes stay, as in MemSifter/my-ranker. Raises ConfigError."""
    path = PurePosixPath(model.strip())
    if not model.strip() or path.is_absolute() or ".." in path.parts:
        raise ConfigError(f"a model called {model!r} has no folder of results; give a plain name with --model-name")
    return str(path)


def _remedy(kind: str) -> str:
    return f"; {_MADE_BY[kind]} makes it" if kind in _MADE_BY else ""


# --- reading --------------------------------------------------------------------------------------------------------


def open_table(path: Path) -> pq.ParquetFile:
    """Raises NoTable."""
    with _reading(path):
        return pq.ParquetFile(path)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """All of a file, or these columns. Raises NoTable."""
    with _reading(path):
        return pq.ParquetFile(path).read(None if columns is None else list(columns))


def read_batches(path: Path, limit: int | None = None) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows, or all, a few in memory. Raises NoTable."""
    with _reading(path), pq.ParquetFile(path) as file:
        left = file.metadata.num_rows if limit is None else limit
        for batch in file.iter_batches(_AT_ONCE):
            if left <= 0:
                return
            yield batch[:left]
            left -= len(batch)


def read_rows(path: Path, columns: Sequence[str], at_once: int) -> Iterator[list[Row]]:
    """Rows, ``at_once`` of them in memory, of those of ``columns`` that the file has. Raises NoTable."""
    with _reading(path), pq.ParquetFile(path) as file:
        held = [name for name in columns if name in file.schema_arrow.names]
        yield from (batch.to_pylist() for batch in file.iter_batches(at_once, columns=held))


def data_of(path: Path) -> str:
    """The data set and split that a stage's file says it is of; empty where it does not."""
    return (open_table(path).schema_arrow.metadata or {}).get(DATA, b"").decode()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Names the file in what reading raises."""
    try:
        yield
    except FileNotFoundError:
        raise NoTable(f"{path}: no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise NoTable(f"{path}: no parquet file, or a damaged one ({reason_of(error, 120)})") from None
