"""A checkout of slime or vime, and whether that version can run this pack.

A version is judged by what it has, not by its number: neither host raises its number with every change. The flags,
files and methods asked for here are those without which the pack's hooks would be ignored or its batches torn apart.
Both hosts ignore flags they do not know, so a missing one has to be found before training, not in its results.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import Config, ConfigError
from ..hooks.host_fixes import LOADS, RETURNS
from .find_host import HOSTS, NoHost, find_host, imported_root
from .host_args import TRAINER_INIT

_NEEDED_FLAGS = (
    "--custom-config-path",
    "--custom-convert-samples-to-train-data-path",
    "--custom-eval-rollout-log-function-path",
    "--custom-generate-function-path",
    "--custom-rm-path",
    "--custom-rollout-log-function-path",
    "--dynamic-sampling-filter-path",
    "--num-steps-per-rollout",
    "--use-dynamic-batch-size",
)
TESTED = {
    "slime": "624b824a898ab0ec1fcb4d373004c7f3852bf515",
    "vime": "0747f8e7b84409f64e75f855d259e549b929998c",
}
"""The commit of each host that this pack was tested with."""


@dataclass(frozen=True)
class Checkout:
    """One host's source tree."""

    name: str
    root: Path

    @property
    def model_scripts(self) -> Path:
        return self.root / "scripts" / "models"

    def driver(self, fully_async: bool) -> Path:
        return self.root / ("train_async.py" if fully_async else "train.py")

    def check_version(self, config: Config) -> None:
        """Raise ConfigError if this version lacks what the pack stands on under these settings."""
        package = self.root / self.name
        flags = (package / "utils" / "arguments.py").read_text()
        actor = package / "backends" / "megatron_utils" / "actor.py"
        has = {flag: f'"{flag}"' in flags for flag in _NEEDED_FLAGS}
        has["utils/dp_schedule.py"] = (package / "utils" / "dp_schedule.py").is_file()
        if config.fully_async:
            has["rollout/fully_async_rollout.py"] = (package / "rollout" / "fully_async_rollout.py").is_file()
        if config.fully_async and config.compares_with_reference:  # see hooks.host_fixes
            methods = actor.read_text() if actor.is_file() else ""
            has |= {TRAINER_INIT: f'"{TRAINER_INIT}"' in flags}
            has |= {name: f"def {name}(" in methods for name in (LOADS, RETURNS)}
        if missing := [name for name, is_there in has.items() if not is_there]:
            raise ConfigError(f"HOST_ROOT={str(self.root)!r}: this version of {self.name} lacks {', '.join(missing)}; "
                              f"use {TESTED[self.name][:8]} or later")


def find_checkout(config: Config, pack: Path) -> Checkout:
    """The checkout to train in.

    Raises:
        ConfigError: HOST and HOST_ROOT name none, and none stands around the pack.
    """
    try:
        name, root = find_host(config.host, config.host_root, pack)
    except NoHost as error:
        raise ConfigError(str(error)) from None
    if root is None:
        raise ConfigError(f"HOST={config.host}: no checkout of {' or '.join(HOSTS)} is around {pack}; set HOST_ROOT")
    return Checkout(name, root)


def find_megatron(config: Config) -> Path:
    """The Megatron-LM checkout whose ``megatron.training`` the host imports.

    Raises:
        ConfigError: there is none.
    """
    given = [Path(config.megatron_root).expanduser().absolute()] if config.megatron_root else []
    candidates = given or [Path("/root/Megatron-LM"), *imported_root("megatron")]
    for root in candidates:
        if (root / "megatron" / "training").is_dir():
            return root
    raise ConfigError(f"MEGATRON_ROOT={config.megatron_root!r}: no Megatron-LM with megatron/training in "
                      f"{', '.join(map(str, candidates))}; set MEGATRON_ROOT to its checkout")
