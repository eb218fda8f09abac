"""A checkout of slime or vime, and whether that version can run this pack.

A version is judged by what it has, not by its number: neither host raises its number with every change. The flags and
files asked for here are those without which the pack's hooks would be ignored or its batches torn apart. Both hosts
ignore flags they do not know, so a missing one has to be found before training, not in its results.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..config import Config, ConfigError
from ..hooks import host_fixes
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
    def package(self) -> Path:
        return self.root / self.name

    @property
    def model_scripts(self) -> Path:
        return self.root / "scripts" / "models"

    def driver(self, fully_async: bool) -> Path:
        return self.root / ("train_async.py" if fully_async else "train.py")

    def has_flag(self, flag: str) -> bool:
        return f'"{flag}"' in (self.package / "utils" / "arguments.py").read_text()


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


def check_version(checkout: Checkout, config: Config) -> None:
    """Raise ConfigError if this version lacks what the pack stands on."""
    files = {"utils/dp_schedule.py": "batches that count trajectories"}
    if config.fully_async:
        files["rollout/fully_async_rollout.py"] = "FULLY_ASYNC=1"
    missing = [flag for flag in _NEEDED_FLAGS if not checkout.has_flag(flag)]
    missing += [f"{name} ({use})" for name, use in files.items() if not (checkout.package / name).is_file()]
    _refuse_without(checkout, missing)


def check_policy_can_be_kept(checkout: Checkout) -> None:
    """Raise ConfigError if this version lacks what ``hooks.host_fixes`` stands on.

    Without it a continued run whose trainer and engines share no GPU would sample from the reference first.
    """
    source = checkout.package / "backends" / "megatron_utils" / "actor.py"
    methods = source.read_text() if source.is_file() else ""
    missing = [name for name in (host_fixes.LOADS, host_fixes.RETURNS) if f"def {name}(" not in methods]
    missing += [] if checkout.has_flag(TRAINER_INIT) else [TRAINER_INIT]
    _refuse_without(checkout, [f"{name} (KL_COEF above 0 without colocation)" for name in missing])


def _refuse_without(checkout: Checkout, missing: list[str]) -> None:
    if missing:
        raise ConfigError(
            f"HOST_ROOT={str(checkout.root)!r}: this version of {checkout.name} lacks {', '.join(missing)}; "
            f"use {TESTED[checkout.name][:8]} or later"
        )


def find_megatron(config: Config) -> Path:
    """The Megatron-LM checkout whose ``megatron.training`` the host imports.

    Raises:
        ConfigError: there is none.
    """
    if config.megatron_root:
        candidates = [Path(os.path.expanduser(config.megatron_root)).absolute()]
    else:
        candidates = [Path("/root/Megatron-LM"), *(p.parent for p in imported_root("megatron"))]
    for root in candidates:
        if (root / "megatron" / "training").is_dir():
            return root
    raise ConfigError(
        f"MEGATRON_ROOT={config.megatron_root!r}: no Megatron-LM with megatron/training in "
        f"{', '.join(map(str, candidates))}; set MEGATRON_ROOT to its checkout"
    )
