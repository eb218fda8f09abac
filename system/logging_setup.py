"""What a long command writes to the terminal, and what the libraries under it may."""

from __future__ import annotations

import logging
import os
import warnings
from typing import TextIO

from .printable import printable, printable_log


class _Record(logging.LogRecord):
    """Libraries have handlers of their own, and log names of tensors and classes of models as they found them."""

    def getMessage(self) -> str:
        return printable_log(super().getMessage())


class _Printable(logging.Formatter):
    """What models, servers and files say stands in the lines."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_printable() -> None:
    """From now on no message in a log of this process commands a terminal, whoever logs it and wherever it is shown.

    For commands: in a process of a host, records are the host's.
    """
    if logging.getLogRecordFactory() is logging.LogRecord:
        logging.setLogRecordFactory(_Record)


def log_to_terminal(level: int, lines: str = "%(message)s", stream: TextIO | None = None) -> None:
    """``logging.basicConfig`` with lines that command no terminal."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Printable(lines, datefmt="%H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler])


def start_logging() -> None:
    """Terminal lines with the time of day; of several trainer processes the first speaks."""
    level = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING
    log_to_terminal(level, "%(asctime)s %(message)s")
    for name in ("mbridge", "transformers", "megatron"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # What megatron-core says of missing GPU packages is no news where there is no GPU.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"megatron|mbridge")
