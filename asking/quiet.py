"""What clients send that is no HTTP says little in the log, whoever they are: it comes before any key is asked for."""

from __future__ import annotations

import logging
import warnings

from aiohttp import BadContentDispositionHeader, BadContentDispositionParam
from aiohttp.http import HttpProcessingError

from ..system.printable import one_line

_MOST = 200


def quiet_about_heads() -> None:
    """Else aiohttp prints a stack for each head that it cannot read, and each bad header within a form, which is kept
    for as long as the server runs."""
    logging.getLogger("aiohttp.server").addFilter(_in_one_line)
    for kind in (BadContentDispositionHeader, BadContentDispositionParam):
        warnings.simplefilter("ignore", kind)


def _in_one_line(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.msg, record.args = "%s", (one_line(f"{record.getMessage()}: {error.message}", _MOST),)
        record.exc_info = None
    return True
