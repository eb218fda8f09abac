"""Megatron-LM as the host's image builds it: at the commit that its Dockerfile names, with the host's patches.

A patched copy is made once, in the folder of the environment that the rehearsal runs in; nobody's checkout is touched.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

from ..config import ConfigError
from ..launch.checkout import Checkout


def prepared_megatron(checkout: Checkout, given: str, home: Path) -> Path:
    """Megatron-LM at the host's commit with the host's patches.

    Args:
        given: MEGATRON_ROOT, a git clone that has the commit, or a tree without git, which is taken as it is.
        home: where patched copies are kept.

    Raises:
        ConfigError: the clone, the commit or a patch is missing, or a patch does not apply.
    """
    root = Path(given).expanduser().absolute()
    if not given or not root.is_dir():
        raise ConfigError(f"MEGATRON_ROOT={given!r}: a rehearsal needs a git clone of "
                          "https://github.com/NVIDIA/Megatron-LM; set MEGATRON_ROOT to one")
    if not (root / ".git").exists() and not (root / "HEAD").is_file():
        return root
    ready = patched_copy(checkout, home)
    if not ready.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            tree = Path(folder) / "tree"
            _git("clone", "--shared", "--no-checkout", root, tree)
            _git("-C", tree, "checkout", _commit(checkout), "--", "megatron")
            for patch in _patches(checkout):
                _git("-C", tree, "apply", "--include=megatron/*", patch)
            tree.rename(ready)
    return ready


def patched_copy(checkout: Checkout, home: Path) -> Path:
    """Where the host's Megatron-LM is kept once it has been made: another commit or patch is another folder."""
    digest = hashlib.sha256(b"".join(patch.read_bytes() for patch in _patches(checkout))).hexdigest()[:8]
    return home / f"Megatron-LM-{_commit(checkout)[:8]}-{digest}"


def _commit(checkout: Checkout) -> str:
    dockerfile = checkout.root / "docker" / "Dockerfile"
    text = dockerfile.read_text() if dockerfile.is_file() else ""
    found = re.search(r"^ARG MEGATRON_COMMIT=([0-9a-f]{40})", text, re.MULTILINE)
    if found is None:
        raise ConfigError(f"HOST_ROOT: {dockerfile} names no MEGATRON_COMMIT; use a full checkout of {checkout.name}")
    return found[1]


def _patches(checkout: Checkout) -> list[Path]:
    return sorted((checkout.root / "docker" / "patch" / "latest").glob("megatron*.patch"))


def _git(*arguments: str | Path) -> None:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"MEGATRON_ROOT: git {' '.join(map(str, arguments))} failed ({done.stderr[-200:]}); set "
                          "MEGATRON_ROOT to a clone that has the host's commit, and HOST_ROOT to a full checkout")
