"""Links in a folder that others may have made: what a command is told to leave alone may be what one leads to."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def real_path(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve has no answer for a link to itself


def remedy(link: Path) -> str:
    """For whoever made ``link``, which is not followed."""
    target = real_path(link)
    place, content = shlex.quote(str(link)), shlex.quote(str(target))
    if not target.exists():
        return f"remove it: rm {place}"
    return f"if it is yours, put the file itself in its place: rm {place} && cp -r {content} {place}"
