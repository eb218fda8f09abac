"""Links in a folder that others may have made: what a command is told to leave alone may be what one leads to, or has
a second name there.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def real_path(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve has no answer for a link to itself


def remedy(link: Path) -> str:
    """For whoever made ``link``, which is not followed."""
    target = real_path(link)
    place, content = _in_a_command(link), _in_a_command(target)
    if not target.exists():
        return f"remove it: rm {place}"
    return f"if it is yours, put the file itself in its place: rm {place} && cp -r {content} {place}"


def remedy_of_names(file: Path) -> str:
    """For whoever gave ``file`` other names, because of which it is not written: a command that writes through no link
    that lies in its way.
    """
    place, copy = _in_a_command(file), _in_a_command(file.with_name(f"{file.name}.copy"))
    command = f"cp -pT --remove-destination {place} {copy} && mv {copy} {place}"
    return f"if it is yours, put a copy in its place: {command}; or go on in a copy of the folder (cp -r)"


def _in_a_command(path: Path) -> str:
    """No option of it, whatever its name."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))
