"""What a long command writes to the terminal, and what the libraries under it may."""

from __future__ import annotations

import logging
import os
import warnings


def start_logging() -> None:
    """Terminal lines with the time of day; of several trainer processes the first speaks."""
    level = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for name in ("mbridge", "transformers", "megatron"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # What megatron-core says of missing GPU packages is no news where there is no GPU.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"megatron|mbridge")
