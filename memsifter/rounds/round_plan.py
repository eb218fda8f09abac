"""What stays as it is from the first round of a curriculum to the last, and is kept in its folder.

``WORK/curriculum.json`` has the settings that the folder was begun with: a later run shares them, or is refused in one
line. Folders are not among them, for results may be moved; the name under which rankings lie in RESULTS is, since
folders of the same name elsewhere have rankings there, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from ...config import Config, ConfigError
from ...system.files import write_atomically
from .data_recipe import DataRecipe

_FREE = (
    "hf_ckpt", "torch_dist", "train_data", "save_path", "data_root", "reward", "base_url", "length",  # a round's own
    "host", "host_root", "megatron_root", "num_nodes", "num_gpus", "master_addr", "ray_address", "num_engines",
    "engine_args", "mem_concurrency", "answer_url", "tracker", "trust_remote_code", "keep_checkpoints",
    "keep_trajectories", "eval_api", "eval_interval", "eval_data",
)
"""Settings that a later run may change: places, machines, and what is only watched."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What stays as it is from the first round to the last."""

    work: Path
    model: str
    recipe_file: Path
    recipe: DataRecipe
    results: Path
    """With stage 1's files, in a folder named by the embedding model; rankings are written here."""
    rankings: str
    """The folder in ``results`` of this curriculum alone."""
    embedding: str
    primary: Path | None
    """Rankings that the first round is chosen by."""
    average: int
    warm_up: int
    reward: str
    prompt_tokens: int
    seed: int
    prompts: str

    def chosen_by(self, number: int) -> Path | None:
        """What round ``number`` is chosen by."""
        return self.primary if number == 1 else self.results / self.ranker(number - 1)

    def ranker(self, number: int) -> str:
        return f"{self.rankings}/round_{number}"

    def folder(self, number: int) -> Path:
        return self.work / f"round_{number}"

    def model_of(self, number: int) -> str:
        """What round ``number`` starts from."""
        return self.model if number == 1 else str(self.folder(number - 1) / "model")

    def data(self, number: int) -> Path:
        return self.work / "rl_train_data" / f"round_{number}"


def keep_settings(plan: Plan, config: Config) -> None:
    """Write the settings of a new folder. Raises ConfigError where an older one was begun with others."""
    path = plan.work / "curriculum.json"
    now = orjson.loads(orjson.dumps(settings_of(plan, config)))
    if not path.is_file():
        write_atomically(path, orjson.dumps(now, option=orjson.OPT_INDENT_2))
        return
    before = _settings(path)
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        name = changed[0]
        raise ConfigError(
            f"{path}: {name} was {_short(before.get(name))} and is {_short(now.get(name))}; go on with the former, or "
            "choose another folder"
        )


def rankings_name(work: Path) -> str:
    """Told apart from those of folders of the same name elsewhere, and kept where the folder is moved later."""
    path = work / "curriculum.json"
    if path.is_file():
        return str(_settings(path).get("rankings", work.name))
    return f"{work.name}-{hashlib.sha256(str(work).encode()).hexdigest()[:8]}"


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        return dict(orjson.loads(path.read_bytes()))
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: damaged; choose another folder") from None


def settings_of(plan: Plan, config: Config) -> dict[str, Any]:
    """By name; what a later run must share. Folders are not: results may be moved."""
    training = {name: value for name, value in config.to_mapping().items() if name.lower() not in _FREE}
    own = {"rankings": plan.rankings, "model": plan.model, "data-recipe": asdict(plan.recipe),
           "embedding-model-name": plan.embedding, "reward": plan.reward, "average": plan.average,
           "warm-up": plan.warm_up, "max-prompt-tokens": plan.prompt_tokens, "seed": plan.seed,
           "prompts": plan.prompts}
    return own | training


def _short(value: Any) -> str:
    return f"{value!r:.80}"
