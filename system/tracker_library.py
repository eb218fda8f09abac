"""Which library a TRACKER is, and the line where this Python has none of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from .errors import ConfigError

LIBRARIES = {
    "tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow", "trackio": "trackio", "swanlab": "swanlab",
}
"""TRACKER -> the module, which pip knows under the same name."""


def check_tracker(tracker: str, taken: Sequence[str] = tuple(LIBRARIES), host: str = "") -> None:
    """Nothing, or a ConfigError: ``host`` takes only those in ``taken``, or the library is not installed.

    Nothing is imported: some of these libraries take seconds, and a command that only checks needs none.
    """
    if tracker == "none":
        return
    if tracker not in taken:
        raise ConfigError(f"TRACKER={tracker}: {host} writes to {' and '.join(taken)} alone; set TRACKER to one of "
                          "them, or to none")
    if importlib.util.find_spec(LIBRARIES[tracker]) is None:
        raise ConfigError(f"TRACKER={tracker}: this Python has no module {LIBRARIES[tracker]}; pip install "
                          f"{LIBRARIES[tracker]}, or set TRACKER=none")
