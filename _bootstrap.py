"""Lets the pack's commands run as plain scripts: ``python prepare_data.py`` as well as ``python -m mem_agent...``.

A command starts with::

    if not __package__:
        from _bootstrap import run_in_package

        run_in_package(__file__)

Python puts the script's own folder on ``sys.path``, where the pack's modules would be found under wrong names and
relative imports fail. So that entry is taken off, the package is made importable, and the same command runs again as
a module of it:

- the folder is called ``mem_agent`` (cloned as ``examples/mem_agent``): its parent goes on ``sys.path`` instead;
- any other name: it is the installed ``mem_agent``, or becomes ``mem_agent`` in this process alone.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NoReturn

PACKAGE = "mem_agent"


def run_in_package(script: str) -> NoReturn:
    """Run the script's module inside the package and exit; exits with 2 where it lies in no package."""
    folder = Path(script).absolute().parent  # not resolved: a link named mem_agent counts by its own name
    init = folder / "__init__.py"
    if not init.is_file():
        print(f"{script}: {init} is not there: run it in a checkout of the pack", file=sys.stderr)
        sys.exit(2)
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").absolute() != folder]
    sys.modules.pop("_bootstrap", None)
    installed = find_spec(PACKAGE)
    if folder.name == PACKAGE:
        sys.path.insert(0, str(folder.parent))
    elif installed is None or installed.origin is None or not init.samefile(installed.origin):
        spec = spec_from_file_location(PACKAGE, init, submodule_search_locations=[str(folder)])
        assert spec is not None and spec.loader is not None
        sys.modules[PACKAGE] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACKAGE])
    runpy.run_module(f"{PACKAGE}.{Path(script).stem}", run_name="__main__", alter_sys=True)
    sys.exit(0)
