"""How the pack starts Python: ``-P``, without the working folder on the path.

``python -m`` imports from the working folder before anything else. That may be the folder of a model or of documents
that somebody else made, and a ``tqdm.py`` in it would run where TRUST_REMOTE_CODE was never said.

Invariant: every command of the pack, and of a library that is started by its module, is made here; the scripts say
``-P`` themselves. The hosts' own programs are files (``train.py``) that need their own folder on the path, which is
why there is no ``PYTHONSAFEPATH``: they would inherit it.
"""

from __future__ import annotations

import os
import sys


def python_module(module: str, *arguments: str, python: str = "") -> list[str]:
    """The command that runs ``module``, by this process's Python or by ``python``."""
    return [python or sys.executable, "-P", "-m", module, *arguments]


def leave_working_folder() -> None:
    """Take it off the path of a command that was typed without ``-P``.

    So a class of the user's (``AGENT=mine:Notebook``) is found by every process of a run, or refused by the first, as
    those that it starts do not find it. What PYTHONPATH names stays, the working folder included.
    """
    first = sys.path[0] or os.curdir
    if not sys.flags.safe_path and os.path.exists(first) and os.path.samefile(first, os.curdir):
        del sys.path[0]
