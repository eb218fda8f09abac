"""What is no longer needed goes: of a link the link alone, never what it leads to; and what stays ends no run.

Those who moved a folder to a larger disk have left a link to it; others, or a file system, may hold what is removed.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

logger = logging.getLogger("mem_agent")


def remove(path: Path) -> None:
    """A file, a link, or a folder with all that is in it, if it is there. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def remove_or_tell(path: Path) -> None:
    """What cannot be removed is a warning that names it."""
    try:
        remove(path)
    except OSError as error:
        logger.warning("%s could not be removed (%s); remove it", path, error)
