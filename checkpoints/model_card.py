"""The ``README.md`` of a converted model, and the model to the Hugging Face hub.

It says what the model is, what it was trained on and how, and how to do that again (``card.jinja``), from
``SAVE_PATH/mem_agent.yaml``. What evaluation found comes between two marks, now or later (``with_evaluation``), and
replaces what stood there. Folders of the machine that trained are named by their last part alone.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData

from .. import __version__
from ..config import SETTINGS_FILE, Config
from ..data.eval_files import sha256_of
from ..data.rows import DataError
from ..data.training_file import training_files
from ..system.errors import MemAgentError
from ..system.files import write_atomically
from ..system.text import markdown_cell, markdown_table, one_line
from .hf_model import HUB_ERRORS, left_settings, shell_words

CARD = "README.md"
_TEMPLATE = Path(__file__).with_name("card.jinja")
_BEGIN, _END, _NONE = "<!-- evaluation -->", "<!-- end of evaluation -->", "Not evaluated yet."
_PATH = re.compile(r"(?<![\w./~-])[~.]{0,2}(?:/[^\s/'\",;:=|()]+)+/?")
_CACHED = re.compile(r"/models--([^/]+)/snapshots/[^/]+/?$")
PLACES = (
    "HOST", "SAVE_PATH", "DATA_ROOT", "TRACKER", "TRUST_REMOTE_CODE", "ANSWER_URL", "OVER_SAMPLING_BATCH_SIZE",
    "SAVE_INTERVAL", "KEEP_CHECKPOINTS", "KEEP_TRAJECTORIES", "MEM_CONCURRENCY", "NUM_ENGINES", "LENGTH",
    "EVAL_SAMPLES", "EVAL_INTERVAL", "EVAL_DATA", "BASE_URL", "EVAL_API",
    "HOST_ROOT", "MEGATRON_ROOT", "NUM_NODES", "NUM_GPUS", "MASTER_ADDR", "RAY_ADDRESS",
)
"""Settings that a card leaves out: they say nothing about the model, and a run may change them as it goes on
(``training/resume.py``)."""


def hub_id(model: str) -> str | None:
    """``ORG/NAME`` of a model that came from the hub, by its id or its folder in the hub's cache; None for others.

    ``.../hub/models--Org--Name/snapshots/c1899de`` is ``Org/Name``.
    """
    if cached := _CACHED.search(model):
        return cached[1].replace("--", "/")
    return model if re.fullmatch(r"[\w.-]+/[\w.-]+", model) and not Path(model).exists() else None


def card_of_run(run: Path, checkpoint: str, model: str | Path) -> str:
    """The card of the model that ``checkpoint`` of ``run`` became, which started from ``model``.

    Raises:
        ConfigError: the run's settings are damaged.
    """
    settings = left_settings(run)
    start = settings.get("HF_CKPT") or str(model)
    base = hub_id(start)
    name = base or Path(start).name
    settings |= {"HF_CKPT": name} if settings else {}
    rows = [[f"`{setting}`", f"`{value}`"] for setting, value in shown(settings).items()]
    tags = ["mem-agent", "memory-agent", "long-context", "reinforcement-learning"]
    card = ModelCard.from_template(
        ModelCardData(base_model=base, library_name="transformers", tags=tags), str(_TEMPLATE),
        name=markdown_cell(name), checkpoint=checkpoint, version=__version__, settings_file=SETTINGS_FILE,
        settings=markdown_table(["setting", "value"], rows, ("setting", "value")),
        data=data_table(settings["TRAIN_DATA"]) if settings.get("TRAIN_DATA") else "Not recorded.",
        command=command(settings) if settings else "",
    )
    return f"{card}\n"


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings that are not the default; paths by their last part: ``b=/home/me/x.json`` is ``b=x.json``."""
    default = Config().to_mapping()
    own = {name: settings.get(name, usual) for name, usual in default.items() if name not in PLACES}
    return {
        name: _PATH.sub(lambda found: Path(found[0]).name, value) if isinstance(value, str) else value
        for name, value in own.items() if value != default[name]
    }


def command(settings: Mapping[str, Any]) -> str:
    """The line that trains it again, from the same files."""
    return " \\\n".join([*shell_words(shown(settings)), "bash run-train.sh"])


@cache
def data_table(train_data: str) -> str:
    """The training files with size and SHA-256."""
    try:
        rows = [[file.name, file.stat().st_size, f"`{sha256_of(file)}`"] for file in training_files(train_data)]
    except (DataError, OSError):
        return f"`{Path(train_data).name}` was no longer on disk when this card was written."
    return markdown_table(["file", "bytes", "sha256"], rows, ("file", "sha256"))


def with_evaluation(card: str, table: str, results: Sequence[EvalResult], file: str | Path = CARD) -> str:
    """The card of ``file`` with ``table`` for what stood between the marks, and ``results`` in its head.

    Raises:
        MemAgentError: it is no card of this pack.
    """
    before, begin, rest = card.rpartition(_BEGIN)  # the last: what stands before may hold anybody's text
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise MemAgentError(f"{file} has no place for an evaluation; convert the checkpoint again")
    found = ModelCard(f"{before}{_BEGIN}\n{table}\n{_END}{after}", ignore_metadata_errors=True)
    head: Any = found.data  # ModelCardData, typed by the library as its base
    head.model_name = re.sub(r"\W+", "-", before.partition("\n# ")[2].partition("\n")[0]) or "model"
    head.eval_results = list(results)
    return str(found)


def read_card(folder: Path) -> str:
    """Raises MemAgentError where the model in ``folder`` has none."""
    if not (folder / CARD).is_file():
        raise MemAgentError(f"{folder}: no {CARD}; convert the checkpoint with mem-agent convert")
    return (folder / CARD).read_text(errors="replace")


def write_card(folder: Path, card: str) -> None:
    write_atomically(folder / CARD, card.encode())


def card_of_mean(folders: Sequence[Path]) -> str:
    """The card of the mean of several models: the last one's, where that has a card, without its evaluation."""
    note = f"The weights are the mean of {', '.join(f'`{folder.name}`' for folder in folders)}."
    card = read_card(folders[-1]) if (folders[-1] / CARD).is_file() else ""
    if _BEGIN not in card:
        card = f"\n# A mean of models\n\n## Evaluation\n\n{_BEGIN}\n{_END}\n"
    return with_evaluation(card.replace("\n## ", f"\n{note}\n\n## ", 1), _NONE, [])


# --- to the hub ------------------------------------------------------------------------------------------------------


def add_push_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--push-to-hub", metavar="ORG/NAME", help="upload the folder, weights and card")
    parser.add_argument("--private", action="store_true", help="make a new repository of --push-to-hub private")


def push(folder: Path, repo: str, *, private: bool) -> str:
    """The address of the repository that has ``folder`` as its newest commit.

    Raises:
        MemAgentError: a bad name, no login or no hub.
    """
    try:
        url = HfApi().create_repo(repo, private=private, exist_ok=True)
        HfApi().upload_folder(repo_id=url.repo_id, folder_path=folder, commit_message=f"{folder.name}, from mem_agent")
        return str(url)
    except HUB_ERRORS as error:
        reason = one_line(str(error).partition("Bearer ")[0], 200)  # without the token
        raise MemAgentError(
            f"--push-to-hub {repo}: {reason}; check ORG/NAME, HF_TOKEN (or `hf auth login`) and HF_ENDPOINT; "
            f"mem-agent card {folder} --push-to-hub {repo} tries again") from None
