"""The ``README.md`` of a converted model: what it is, what it was trained on and how, and how to do that again.

Written at conversion from ``SAVE_PATH/mem_agent.yaml``. What evaluation found comes between two marks, now or later
(``with_evaluation``), and replaces what stood there. The head is in the hub's format (``huggingface_hub``). Folders of
the machine that trained are named by their last part alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .. import __version__
from ..config import SETTINGS_FILE, Config, read_yaml
from ..data.manifest import sha256_of
from ..data.shards import ShardError, training_files
from ..system.errors import MemAgentError
from ..system.files import write_atomically
from ..system.text import markdown_cell, markdown_table

CARD = "README.md"
_BEGIN, _END = "<!-- evaluation -->", "<!-- end of evaluation -->"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_PATH = re.compile(r"(?<![\w./~-])~?(?:/[^\s/'\",;:=|()]+)+/?")
PLACES = (
    "HOST", "SAVE_PATH", "DATA_ROOT", "TRACKER", "TRUST_REMOTE_CODE", "ANSWER_URL", "OVER_SAMPLING_BATCH_SIZE",
    "SAVE_INTERVAL", "KEEP_CHECKPOINTS", "KEEP_TRAJECTORIES", "MEM_CONCURRENCY", "NUM_ENGINES", "LENGTH",
    "EVAL_SAMPLES", "EVAL_INTERVAL", "EVAL_DATA", "BASE_URL", "EVAL_API",
    "HOST_ROOT", "MEGATRON_ROOT", "NUM_NODES", "NUM_GPUS", "MASTER_ADDR", "RAY_ADDRESS",
)
"""Settings that a card leaves out: they say nothing about the model."""


class CardError(MemAgentError):
    """A model's card cannot be written or read."""


def card_of_run(run: Path, checkpoint: str, model: str) -> str:
    """The card of the model that ``checkpoint`` of ``run`` became, which started from ``model``.

    Raises:
        ConfigError: the run's settings are damaged.
    """
    source = run / SETTINGS_FILE
    settings = read_yaml(source) if source.is_file() else {}
    model = str(settings.get("HF_CKPT") or model)
    name = markdown_cell(_name(model))
    data = ModelCardData(
        base_model=model if _HUB_ID.fullmatch(model) and not Path(model).exists() else None,
        library_name="transformers",
        tags=["mem-agent", "memory-agent", "long-context", "reinforcement-learning"],
    )
    title = f"# {name}, trained as a memory agent"
    parts = [f"---\n{data.to_yaml()}\n---", title, _ABOUT, _from(checkpoint, name)]
    if settings:
        trained_on = data_table(str(settings.get("TRAIN_DATA") or ""))
        parts += ["## Training", _settings_table(settings), "## Data", trained_on]
        parts += ["## To do it again", f"```bash\n{command(settings)}\n```"]
    return "\n\n".join([*parts, "## Evaluation", f"{_BEGIN}\nNone is recorded.\n{_END}"]) + "\n"


_ABOUT = (
    "It reads a document of any length chunk by chunk, rewrites a short memory as it reads, and answers from the "
    f"memory alone. How it reads is in `{SETTINGS_FILE}`, beside the weights; asked without that loop it is an "
    "ordinary chat model."
)


def _from(checkpoint: str, name: str) -> str:
    return f"Made from `{checkpoint}` of a run that began with `{name}`, by mem_agent {__version__}."


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings that are not the default; paths by their last part."""
    default = Config().to_mapping()
    return {
        name: _name(settings[name]) for name, value in default.items()
        if name not in PLACES and settings.get(name, value) != value
    }


def command(settings: Mapping[str, Any]) -> str:
    """The line that trains it again, from the same files."""
    words = [f"{name}={shlex.quote(str(value))}" for name, value in shown(settings).items()]
    return " \\\n".join([*words, "bash run-train.sh"])


def data_table(train_data: str) -> str:
    """The files that were trained on, with what tells whether others are the same."""
    try:
        files = [file for file in training_files(train_data) if file.is_file()] if train_data else []
    except ShardError:
        files = []
    if not files:
        return f"`{_name(train_data)}` was no longer there when this was written." if train_data else "Not recorded."
    rows = [[file.name, file.stat().st_size, f"`{sha256_of(file)}`"] for file in files]
    return markdown_table(["file", "bytes", "sha256"], rows, ("file", "sha256"))


def with_evaluation(card: str, table: str, results: Sequence[EvalResult], file: str | Path = CARD) -> str:
    """The card of ``file`` with ``table`` for what stood between the marks, and ``results`` in its head.

    Raises:
        CardError: it is no card of this pack.
    """
    before, begin, rest = card.rpartition(_BEGIN)  # the last: what stands before may hold anybody's text
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise CardError(f"{file} has no place for an evaluation; convert the checkpoint again")
    text = f"{before}{_BEGIN}\n{table}\n{_END}{after}"
    try:
        found = ModelCard(text, ignore_metadata_errors=True)
    except (ValueError, yaml.YAMLError) as error:
        raise CardError(f"{file}: its head is no YAML ({' '.join(str(error).split())}); correct it") from None
    head: Any = found.data  # ModelCardData, typed by the library as its base
    head.model_name = re.sub(r"\W+", "-", _title(before)) or "model"
    head.eval_results = list(results)
    return str(found)


def read_card(folder: Path) -> str:
    """Raises CardError where the model in ``folder`` has none."""
    try:
        return (folder / CARD).read_text()
    except (OSError, ValueError) as error:
        remedy = "convert the checkpoint with mem-agent convert"
        raise CardError(f"{folder}: no readable {CARD} ({error}); {remedy}") from None


def write_card(folder: Path, card: str) -> None:
    write_atomically(folder / CARD, card.encode())


def card_of_mean(folders: Sequence[Path]) -> str:
    """The card of the mean of several models: the last one's, where that has a card, without its evaluation.

    Raises:
        CardError: its head is damaged.
    """
    note = f"The weights are the mean of {', '.join(f'`{folder.name}`' for folder in folders)}."
    last = folders[-1] / CARD
    card = last.read_text(errors="replace") if last.is_file() else ""  # any model's, in any encoding
    if _BEGIN not in card:
        return f"# A mean of models\n\n{note}\n\n## Evaluation\n\n{_BEGIN}\nNone is recorded.\n{_END}\n"
    return with_evaluation(card.replace(_ABOUT, f"{note}\n\n{_ABOUT}", 1), "None is recorded.", [], last)


def _title(card: str) -> str:
    return next((line.removeprefix("# ") for line in card.splitlines() if line.startswith("# ")), "")


def _settings_table(settings: Mapping[str, Any]) -> str:
    rows = [[f"`{name}`", f"`{value}`"] for name, value in shown(settings).items()]
    return "All that is not the default:\n\n" + markdown_table(["setting", "value"], rows, ("setting", "value"))


def _name(value: Any) -> Any:
    """Paths of the machine that trained, by their last part; all else as it is."""
    if not isinstance(value, str):
        return value
    if value.startswith(("/", "~", "./", "../")):
        return Path(value).name
    return _PATH.sub(lambda found: Path(found[0]).name, value)
