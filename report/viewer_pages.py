"""Which page of trajectories (``mem-agent view``) each folder of a report links into.

A folder's own ``view.html`` is linked where it lies. Where a single folder has none, one that an earlier report has
left beside this one is. With ``--viewer`` the pages are written beside the report, so that the report's folder can be
moved as a whole: ``view.html`` of one folder, ``view_<label>.html`` of several.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from ..system.errors import MemAgentError
from ..traces.read_traces import kept_files

_FILE = "view.html"


def linked_pages(folders: Mapping[Path, str], output: Path, *, write: bool) -> dict[Path, str]:
    """The address of each folder's page, as seen from the report in ``output``; ``folders`` have their labels.

    Raises:
        MemAgentError: pages are to be written, and no folder has trajectories.
    """
    kept = [folder for folder in folders if files_kept(folder)]
    if write:
        if not kept:
            raise MemAgentError(f"no trajectories in {', '.join(map(str, folders))}; evaluate and train with "
                                "KEEP_TRAJECTORIES above 0, or leave --viewer out")
        return _written(kept, folders, output)
    beside = [output] if len(folders) == 1 else []
    found = {}
    for folder in kept:
        pages = (place / _FILE for place in (folder, *beside))
        if page := next((page for page in pages if page.is_file()), None):
            found[folder] = quote(os.path.relpath(page.resolve(), output.resolve()))
    return found


def files_kept(folder: Path) -> list[str]:
    """What is named by a run's or an evaluation's files of trajectories."""
    return [path.stem for path in kept_files(folder)]


def _written(kept: list[Path], labels: Mapping[Path, str], output: Path) -> dict[Path, str]:
    from .viewer.page import write_viewer

    output.mkdir(parents=True, exist_ok=True)
    names: dict[Path, str] = {}
    for folder in kept:
        slug = re.sub(r"[^A-Za-z0-9.-]+", "-", labels[folder]).strip("-")
        name = _FILE if len(labels) == 1 else f"view_{slug}.html"
        if name in names.values():
            name = f"view_{slug}_{len(names)}.html"
        write_viewer(folder, output / name)
        names[folder] = name
    return names
