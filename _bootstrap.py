"""Lets the pack's commands run as plain scripts: ``python prepare_data.py`` as well as ``python -m mem_agent...``.

A command starts with::

    if not __package__:
        from _bootstrap import run_in_package

        run_in_package(__file__)

Python puts the script's own folder on ``sys.path``, where the pack's modules would be found under wrong names and
relative imports fail. So that entry is taken off, the package is made importable, and the same command runs again as
a module of it:

- the folder is called ``mem_agent`` (cloned as ``examples/mem_agent``): its parent goes on ``sys.path`` instead;
- any other name: the installed ``mem_agent`` is used.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from typing import NoReturn

PACKAGE = "mem_agent"


def run_in_package(script: str) -> NoReturn:
    """Run the script's module inside the package and exit; exits with 2 when the package cannot be found."""
    folder = Path(script).absolute().parent  # not resolved: a link named mem_agent counts by its own name
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").absolute() != folder]
    sys.modules.pop("_bootstrap", None)
    if folder.name == PACKAGE and (folder / "__init__.py").is_file():
        sys.path.insert(0, str(folder.parent))
    elif importlib.util.find_spec(PACKAGE) is None:
        print(
            f"{script}: {PACKAGE} is not importable; rename {folder} to {PACKAGE}, or run `pip install -e {folder}`",
            file=sys.stderr,
        )
        sys.exit(2)
    runpy.run_module(f"{PACKAGE}.{Path(script).stem}", run_name="__main__", alter_sys=True)
    sys.exit(0)
