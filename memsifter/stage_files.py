"""Where the stages' files lie, and which command makes one that is missing. ::

    DATA_DIR/locomo/test.parquet                          histories and questions (DATA_DIR/locomo_test.parquet too)
    OUTPUT_DIR/bge-m3/locomo_test_embed.parquet           stage 1
    OUTPUT_DIR/my-ranker/locomo_test_ranking.parquet      stage 2
    OUTPUT_DIR/a_mem/locomo_test_retrieved_memory.parquet from elsewhere: a text in the column retrieved_memory
    OUTPUT_DIR/gpt-x/my-ranker/locomo_test_chat.parquet   stage 3, of the chat model gpt-x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from ..system.errors import ConfigError, MemAgentError
from .stage_options import EmbedOptions, StageOptions

EMBED, RANKING, MEMORY, CHAT = "embed", "ranking", "retrieved_memory", "chat"
_MADE_BY = {EMBED: "mem-agent session-embedding", RANKING: "mem-agent session-ranking"}


class MissingStage(MemAgentError):
    """A file that an earlier stage writes is not there; the message names the command."""


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
            remedy = f"; {_MADE_BY[kind]} makes it" if kind in _MADE_BY else ""
            raise MissingStage(f"{path}: no such file{remedy}")
        return path

    def source(self, data_dir: str) -> Path:
        """Its histories and questions. Raises MissingStage."""
        places = [Path(data_dir, self.dataset, f"{self.split}.parquet"),
                  Path(data_dir, f"{self.dataset}_{self.split}.parquet")]
        found = next((path for path in places if path.is_file()), None)
        if found is None:
            raise MissingStage(f"{places[0]}: no such file; mem-agent prepare-sessions makes it")
        return found


def parts(options: StageOptions, kind: str, model: str) -> Sequence[Part]:
    """The data sets and splits that are named; without data sets those of which ``model``'s folder has the file of a
    stage.

    Raises:
        ConfigError: there is none, or a name is no name.
    """
    folder = Path(options.output_dir, folder_name(model))
    remedy = f"; {_MADE_BY[kind]} makes them" if kind in _MADE_BY else ""
    return _chosen(options, lambda part: part.file(options.output_dir, kind, model), partial(_found, folder, kind),
                   lambda splits: f"{folder}: no *_{{{splits}}}_{kind}.parquet{remedy}")


def source_parts(options: EmbedOptions) -> Sequence[Part]:
    """As ``parts``, without data sets those that the data folder has."""
    folder = Path(options.data_dir)

    def found(splits: Sequence[str]) -> list[str]:
        return sorted({file.parent.name for split in splits for file in folder.glob(f"*/{split}.parquet")})

    return _chosen(
        options, lambda part: folder / part.dataset / f"{part.split}.parquet", found,
        lambda splits: f"{folder}: no */{{{splits}}}.parquet; mem-agent prepare-sessions makes them",
    )


def _chosen(
    options: StageOptions, file: Callable[[Part], Path], found: Callable[[Sequence[str]], list[str]],
    absent: Callable[[str], str],
) -> Sequence[Part]:
    splits = options.splits.split()
    if not splits:
        raise ConfigError("--splits is empty; name some, as in --splits 'train test'")
    names = options.datasets.split() or found(splits)
    if bad := [name for name in (*names, *splits) if "/" in name or name in (".", "..")]:
        raise ConfigError(f"--datasets and --splits name files; {bad[0]!r} is no plain name")
    if not names:
        raise MissingStage(absent(",".join(splits)))
    every = [Part(name, split) for name in names for split in splits]
    return every if options.datasets.split() else [part for part in every if file(part).is_file()]


def has_files(options: StageOptions, kind: str, model: str) -> bool:
    """Whether ``model``'s folder has such a file of any data set and split that is named."""
    try:
        return any(part.file(options.output_dir, kind, model).is_file() for part in parts(options, kind, model))
    except MissingStage:
        return False


def folder_name(model: str) -> str:
    """A model's name as a folder of results: slashes stay, as in MemSifter/my-ranker. Raises ConfigError."""
    path = PurePosixPath(model.strip())
    if not model.strip() or path.is_absolute() or ".." in path.parts:
        raise ConfigError(f"a model called {model!r} has no folder of results; give a plain name with --model-name")
    return str(path)


def _found(folder: Path, kind: str, splits: Sequence[str]) -> list[str]:
    names = {path.name.removesuffix(f"_{split}_{kind}.parquet")
             for split in splits for path in folder.glob(f"*_{split}_{kind}.parquet")}
    return sorted(names)
