"""A checkout of slime or vime, and whether that version can run this pack.

A version is judged by what it has, not by its number: neither host raises its number with every change. The flags,
files and methods asked for here are those without which the pack's hooks would be ignored or its batches torn apart.
Both hosts ignore flags they do not know, so a missing one has to be found before training, not in its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import Config, ConfigError
from ..hooks.host_fixes import LOADS, RETURNS
from .find_host import HOSTS, find_host, imported_root

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

    def driver(self, fully_async: bool) -> Path:
        return self.root / ("train_async.py" if fully_async else "train.py")

    def check_version(self, config: Config, flags: Sequence[str]) -> None:
        """Raise ConfigError if this version lacks one of ``flags``, or else what the pack stands on."""
        package = self.root / self.name
        known = (package / "utils" / "arguments.py").read_text()
        missing = [flag for flag in flags if f'"{flag}"' not in known]
        files = ["utils/dp_schedule.py", *(["rollout/fully_async_rollout.py"] if config.fully_async else [])]
        missing += [file for file in files if not (package / file).is_file()]
        if config.fully_async and config.compares_with_reference:  # see hooks.host_fixes
            actor = (package / "backends" / "megatron_utils" / "actor.py").read_text()
            missing += [name for name in (LOADS, RETURNS) if f"def {name}(" not in actor]
        if missing:
            raise ConfigError(f"HOST_ROOT={str(self.root)!r}: this version of {self.name} lacks {', '.join(missing)}; "
                              f"use {TESTED[self.name][:8]} or later")


def find_checkout(config: Config, pack: Path) -> Checkout:
    """The checkout to train in.

    Raises:
        ConfigError: HOST and HOST_ROOT name none, and none stands around the pack.
    """
    try:
        name, root = find_host(config.host, config.host_root, pack)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if root is None:
        raise ConfigError(f"HOST={config.host}: no checkout of {' or '.join(HOSTS)} is around {pack}; set HOST_ROOT")
    return Checkout(name, root)


def find_megatron(config: Config) -> Path:
    """The Megatron-LM checkout whose ``megatron.training`` the host imports; ``preflight`` tells where it is none."""
    if config.megatron_root:
        return Path(config.megatron_root).expanduser().absolute()
    candidates = [Path("/root/Megatron-LM"), *imported_root("megatron")]
    return next((root for root in candidates if (root / "megatron" / "training").is_dir()), candidates[0])
