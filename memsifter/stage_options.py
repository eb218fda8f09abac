"""Options of the stages' commands: which files, whose, and what a model is shown.

An option has the name of MemSifter's variable, and that variable is its default: ``OUTPUT_DIR=/results mem-agent
chat-infer`` is ``mem-agent chat-infer --output-dir /results``. Sampling (EVAL_TEMPERATURE, EVAL_TOP_P, SEED), BASE_URL
and ENGINE_MAX_LEN are settings of ``mem-agent config``, as in an evaluation.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from ..config import Config
from ..sessions import wording
from ..system.command_line_types import positive_number, whole_number
from ..system.recipe import use_recipe

FINISHED_WITH_FAILURES = 3
"""Exit code where every row has its line, but some have no reply; the same command asks for those again."""
_TEMPERATURE = 0.6

T = TypeVar("T")


def seconds(text: str) -> float:
    """A positive number of seconds, for argparse."""
    if not 0 < (value := float(text)) < float("inf"):
        raise ValueError(text)
    return value


def option(default: Any, help: str, type: Any = str) -> Any:
    return field(default=default, metadata={"help": help, "type": type})


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """Which files a stage reads and writes."""

    output_dir: str = option("data/results", "folder of what the stages write")
    datasets: str = option("", "data sets, separated by blanks; default: all that are there")
    splits: str = option("test", "their splits, separated by blanks")
    embedding_model_name: str = option("bge-m3", "the embedding model's name in the files of stage 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOptions(StageOptions):
    """Of stage 1."""

    data_dir: str = option("data", "folder with {data set}/{split}.parquet, histories and questions about them")
    embed_store_path: str = option("data/embedding_store", "vectors and token counts of texts, by data set and model")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions(StageOptions):
    """Of stages 2 and 3, which ask a model."""

    model_name: str = option("", "the model's name in the files' names and at BASE_URL; default: its folder's, or "
                             "that of the only model at BASE_URL")
    prompts: str = ""
    """YAML file with another wording (``sessions/wording.yaml``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions(AskOptions):
    """Of stage 2."""

    rank_top_k: int = option(0, "most similar sessions that the ranker is shown; 0: as many as fit its prompt",
                             whole_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions(AskOptions):
    """Of stage 3."""

    methods: str = option("", "whose order of sessions, separated by blanks: an embedding model, a ranker, bm25, full "
                          "or a folder of *_retrieved_memory.parquet; default: the embedding model's")
    top_k: int = option(10, "sessions that are shown at most; the method full has no such limit", positive_number)
    max_input_tokens: int = option(8192, "tokens of the sessions", positive_number)
    full_input_tokens: int = option(131072, "tokens of the sessions of the method full", positive_number)
    max_output_token: int = option(4096, "tokens of a reply", positive_number)
    chat_concurrency: int = option(64, "requests in flight", positive_number)
    chat_timeout: float = option(300.0, "seconds for one attempt", seconds)
    chat_retries: int = option(5, "further attempts on timeouts, connection errors, 429 and 5xx", whole_number)


def add_options(parser: argparse.ArgumentParser, options: type[StageOptions]) -> None:
    for each in fields(options):
        if each.metadata:
            default = os.environ.get(each.name.upper()) or each.default
            shown = f" ({each.default})" if each.default != "" else ""
            parser.add_argument(f"--{each.name.replace('_', '-')}", default=default, type=each.metadata["type"],
                                help=each.metadata["help"] + shown)
        else:
            parser.add_argument("--prompts", default=each.default, metavar="YAML",
                                help="file with another wording, in the shape of sessions/wording.yaml")


def options_of(options: type[T], given: argparse.Namespace) -> T:
    return options(**{each.name: getattr(given, each.name) for each in fields(options)})  # type: ignore[arg-type]


def stage_config(defaults: Mapping[str, Any] | None = None) -> Config:
    """TEMPERATURE, which is that of training elsewhere, is here the name of EVAL_TEMPERATURE; 0.6 unless set.

    Raises ConfigError.
    """
    use_recipe()
    own = {name: value for name, value in os.environ.items() if name != "TEMPERATURE"}
    if os.environ.get("TEMPERATURE") and not os.environ.get("EVAL_TEMPERATURE"):
        own["EVAL_TEMPERATURE"] = os.environ["TEMPERATURE"]
    return Config.from_env(own, {"EVAL_TEMPERATURE": _TEMPERATURE, **(defaults or {})})


def identity(prompts: str, **shared: object) -> str:
    """What two runs must share for their rows to belong together, in one line: ``shared`` and the wording."""
    wording.load_wording(prompts)  # says what is wrong with it
    texts = b"\n".join(Path(path).read_bytes() for path in (wording.OWN, prompts) if path)
    said = " ".join(f"{name}={value}" for name, value in shared.items())
    return f"{said} wording={hashlib.sha256(texts).hexdigest()[:12]}"
