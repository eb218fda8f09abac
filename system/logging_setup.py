"""What a long command writes to the terminal, and what the libraries under it may."""

from __future__ import annotations

import logging
import os
import warnings


def log_to_terminal(level: int, lines: str = "%(message)s") -> None:
    logging.basicConfig(level=level, format=lines, datefmt="%H:%M:%S")


def start_logging() -> None:
    """Terminal lines with the time of day; of several trainer processes the first speaks."""
    level = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING
    log_to_terminal(level, "%(asctime)s %(message)s")
    for name in ("mbridge", "transformers", "megatron"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # What megatron-core says of missing GPU packages is no news where there is no GPU.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"megatron|mbridge")
