"""Which framework trains: the one that is named, that stands around the pack, or that Python imports; else our own.

::

    python launch/find_host.py PACK    what the scripts ask, with any Python: prints "slime /root/slime", or "local"

HOST names one (``auto``: any), HOST_ROOT its checkout. PACK is the pack's folder by the path the user knows it by: a
link to it inside a checkout counts as inside.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

HOSTS = ("slime", "vime")


def find_host(host: str, host_root: str, pack: Path) -> tuple[str, Path | None]:
    """(name, its checkout), or ``("local", None)``.

    Raises:
        ValueError: ``host`` or ``host_root`` names something that is not there.
    """
    if host not in ("auto", "local", *HOSTS):
        raise ValueError(f"HOST={host!r}: allowed: auto, local, {', '.join(HOSTS)}")
    given = [Path(host_root).expanduser().absolute()] if host_root else []
    for name in [] if host == "local" else HOSTS if host == "auto" else [host]:
        for root in given or [*pack.absolute().parents, *imported_root(name)]:
            if (root / "train.py").is_file() and (root / name / "utils" / "arguments.py").is_file():
                return name, root
    if host == "local" or (host == "auto" and not given):
        return "local", None
    raise ValueError(f"HOST={host} HOST_ROOT={host_root!r}: no checkout with its train.py there, around {pack} or in "
                     "Python's path; set HOST_ROOT to one")


def imported_root(name: str) -> list[Path]:
    """The folders that hold the package ``name`` as Python would import it."""
    spec = importlib.util.find_spec(name)
    return [Path(p).parent for p in (spec.submodule_search_locations or [])] if spec else []


if __name__ == "__main__":
    try:
        found = find_host(os.environ.get("HOST") or "auto", os.environ.get("HOST_ROOT", ""), Path(sys.argv[1]))
        print(*filter(None, found))
    except ValueError as error:
        sys.exit(f"error: {error}")
