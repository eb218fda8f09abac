"""Which framework trains: the one that is named, that stands around the pack, or that Python imports; else our own.

::

    python launch/find_host.py PACK    what the scripts ask, with any Python: prints "slime /root/slime", or "local"

HOST names one (``auto``: any), HOST_ROOT its checkout. PACK is the pack's folder by the path the user knows it by: a
link to it inside a checkout counts as inside.

Code of a checkout is run, so one that nobody has named must be of those whose code runs already: this user, root, or
the owner of the pack. In a folder where everybody may write anybody could have put it.
"""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
from pathlib import Path

HOSTS = ("slime", "vime")
LOCAL = "local"


class NoHost(ValueError):
    """What was named is not there; one line for people."""


def find_host(host: str, host_root: str, pack: Path) -> tuple[str, Path | None]:
    """(name, its checkout), or ``("local", None)``.

    Raises:
        NoHost: ``host`` or ``host_root`` names something that is not there, or what is there may be a stranger's.
    """
    if host not in ("auto", LOCAL, *HOSTS):
        raise NoHost(f"HOST={host!r}: allowed: auto, {LOCAL}, {', '.join(HOSTS)}")
    if host == LOCAL:
        return LOCAL, None
    names = HOSTS if host == "auto" else (host,)
    if host_root:
        root = Path(os.path.expanduser(host_root)).absolute()
        for name in names:
            if _is_checkout(root, name):
                return name, root
        raise NoHost(f"HOST_ROOT={host_root!r}: no checkout of {' or '.join(names)} with its train.py is there")
    for name in names:
        for root in pack.absolute().parents:
            if _is_checkout(root, name):
                _refuse_strangers(root, name, pack)
                return name, root
        for root in imported_root(name):
            if _is_checkout(root, name):
                return name, root
    for name in names:
        for root in imported_root(name):
            raise NoHost(f"HOST={host}: {name} is installed in {root}, without its train.py; set HOST_ROOT to its "
                         f"checkout, or HOST={LOCAL}")
    if host == "auto":
        return LOCAL, None
    raise NoHost(f"HOST={host}: no checkout of {host} around {pack} or in Python's path; set HOST_ROOT to one")


def _is_checkout(root: Path, name: str) -> bool:
    try:
        return (root / "train.py").is_file() and (root / name / "utils" / "arguments.py").is_file()
    except OSError:  # closed to this user, who could not run it
        return False


def _refuse_strangers(root: Path, name: str, pack: Path) -> None:
    trusted = {0, os.geteuid(), pack.stat().st_uid}
    between = pack.absolute().parents
    folders = (root / name, *between[: between.index(root) + 1])
    owned = (root, root / "train.py", root / name, root / name / "utils" / "arguments.py")
    if any(path.stat().st_uid not in trusted for path in owned):
        why = "belongs to another user"
    elif any(folder.stat().st_mode & stat.S_IWOTH for folder in folders):
        why = "lies where every user may write"
    else:
        return
    raise NoHost(f"a checkout of {name} is in {str(root)!r} around the pack, and {why}; if its code is to be run, set "
                 f"HOST_ROOT to it, else HOST={LOCAL}")


def imported_root(name: str) -> list[Path]:
    """The folders that hold the package ``name`` as Python would import it."""
    spec = importlib.util.find_spec(name)
    return [Path(p).parent for p in (spec.submodule_search_locations or [])] if spec else []


if __name__ == "__main__":
    try:
        found = find_host(os.environ.get("HOST") or "auto", os.environ.get("HOST_ROOT", ""), Path(sys.argv[1]))
        print(*filter(None, found))
    except NoHost as error:
        sys.exit(f"error: {error}")
