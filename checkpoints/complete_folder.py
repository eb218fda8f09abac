"""A folder that is written for minutes: it appears under its name when it is complete, and then replaces the old one.

Whatever cannot be replaced in the end is refused before anything is written. A link stays a link: what it leads to is
replaced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..system.atomic_file import full_disk_named
from ..system.errors import MemAgentError
from ..system.file_lock import lock_dir
from ..system.removal import remove_or_tell


class OutputRefused(MemAgentError):
    """Something lies where a folder would be written, another run writes there, or nobody can."""


@contextlib.contextmanager
def complete_folder(output: Path, *, force: bool, made_of: Sequence[Path] = ()) -> Iterator[Path]:
    """A hidden folder beside ``output`` to write into; it becomes ``output`` when the block ends without an error.

    Args:
        force: replace a folder that is there.
        made_of: folders that are read for it, which ``output`` neither is nor holds.

    Raises:
        OutputRefused: something is there that is not to be replaced; or another run writes there.
    """
    output = _place_of(output)
    temporary, replaced = output.with_name(f".{output.name}.writing"), output.with_name(f".{output.name}.replaced")
    busy = f"another run is writing {output.name}; wait for it to end, or name another output"
    with lock_dir(output.parent, f".{output.name}.lock", OutputRefused, busy=busy, other="name another output"):
        _end_replacing(output, temporary, replaced)
        check_free(output, force, made_of)
        temporary.mkdir()
        try:
            with full_disk_named(output):  # whatever libraries write
                yield temporary
            check_free(output, force, made_of)  # still
            if output.exists():
                output.rename(replaced)
            temporary.rename(output)
        finally:
            _end_replacing(output, temporary, replaced)


def _place_of(output: Path) -> Path:
    return Path(os.path.realpath(output))


def _end_replacing(output: Path, temporary: Path, replaced: Path) -> None:
    """However it ended, between the two renames as well."""
    remove_or_tell(temporary)
    if replaced.is_dir() and not replaced.is_symlink() and not output.exists():
        replaced.rename(output)
    remove_or_tell(replaced)


def check_free(output: Path, force: bool, made_of: Sequence[Path] = ()) -> None:
    """As early as can be. Raises OutputRefused."""
    place = _place_of(output)
    if not place.exists():
        return
    if not place.is_dir():
        raise OutputRefused(f"{output}: is no folder and stays as it is; name another output")
    if place.is_mount():
        raise OutputRefused(f"{output}: something is mounted there, which cannot be replaced; name a folder in it")
    if held := [folder for folder in made_of if _place_of(folder).is_relative_to(place)]:
        raise OutputRefused(f"{output}: would replace {held[0]}, of which it is made; name another output")
    if not force:
        raise OutputRefused(f"{output}: exists already; set FORCE=1 (--force) to replace it")
