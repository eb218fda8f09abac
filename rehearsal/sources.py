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
    docker = checkout.root / "docker"
    patches = sorted((docker / "patch" / "latest").glob("megatron*.patch"))
    found = re.search(r"^ARG MEGATRON_COMMIT=([0-9a-f]{40})", (docker / "Dockerfile").read_text(), re.MULTILINE)
    if found is None:
        raise ConfigError(f"HOST_ROOT: {docker}/Dockerfile names no MEGATRON_COMMIT; use another commit of the host")
    digest = hashlib.sha256(b"".join(patch.read_bytes() for patch in patches)).hexdigest()[:8]
    ready = home / f"Megatron-LM-{found[1][:8]}-{digest}"  # another commit or patch is another folder
    if not ready.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            tree = Path(folder) / "tree"
            _git("clone", "--shared", "--no-checkout", root, tree)
            _git("-C", tree, "checkout", found[1], "--", "megatron")
            for patch in patches:
                _git("-C", tree, "apply", "--include=megatron/*", patch)
            tree.rename(ready)
    return ready


def _git(*arguments: str | Path) -> None:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"MEGATRON_ROOT: git {' '.join(map(str, arguments))} failed ({done.stderr[-200:]}); set "
                          "MEGATRON_ROOT to a clone that has the host's commit, and HOST_ROOT to a full checkout")
