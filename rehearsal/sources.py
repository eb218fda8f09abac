"""The source trees a rehearsal runs: the host's checkout as it is, and Megatron-LM as the host's image builds it.

The host's Dockerfile names the commit of Megatron-LM, ``docker/patch/latest/megatron*.patch`` what is changed in it. A
patched copy is made once, in the folder of the environment that the rehearsal runs in; nobody's checkout is touched.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..config import ConfigError
from ..launch.checkout import Checkout

logger = logging.getLogger("mem_agent")

HOST_SOURCES = {
    "slime": ("https://github.com/THUDM/slime", "624b824a898ab0ec1fcb4d373004c7f3852bf515"),
    "vime": ("https://github.com/vllm-project/vime", "0747f8e7b84409f64e75f855d259e549b929998c"),
}
"""Where a host is fetched from, and the commit this pack was tested with."""
_MEGATRON = "https://github.com/NVIDIA/Megatron-LM"
_REMEDY = "set MEGATRON_ROOT to a git clone of Megatron-LM, or unset it to fetch one"


def prepared_megatron(checkout: Checkout, given: str, home: Path) -> Path:
    """Megatron-LM at the host's commit with the host's patches.

    Args:
        given: MEGATRON_ROOT, a git repository that has the commit, or a tree without git, which is taken as it is;
            empty: fetch it.
        home: where patched copies are kept.

    Raises:
        ConfigError: git, the commit or a patch is missing, or a patch does not apply.
    """
    root = Path(os.path.expanduser(given)).absolute()
    if given and (root / "megatron" / "training").is_dir() and not _is_repository(root):
        logger.warning("MEGATRON_ROOT=%s is no git clone: taken as it is, with whatever patches it has", root)
        return root
    commit, patches = _pinned_commit(checkout), _patches(checkout)
    ready = patched_copy(checkout, home)
    if ready.is_dir():
        return ready
    _need_git()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        repository = root if given else _fetch(_MEGATRON, commit, Path(folder) / "git")
        _export(repository, commit, tree)
        for patch in patches:
            _run("git", "apply", "-p1", "--include=megatron/*", str(patch), cwd=tree,
                 error=f"{patch} does not apply to Megatron-LM {commit[:8]}; take the host's patches as they are")
        tree.rename(ready)
    return ready


def patched_copy(checkout: Checkout, home: Path) -> Path:
    """Where the host's Megatron-LM is kept once it has been made: another commit or patch is another folder."""
    digest = hashlib.sha256(b"".join(patch.read_bytes() for patch in _patches(checkout))).hexdigest()[:8]
    return home / f"Megatron-LM-{_pinned_commit(checkout)[:8]}-{digest}"


def _need_git() -> None:
    if shutil.which("git") is None:
        raise ConfigError("there is no git here, which takes the sources at the tested commits; install git")


def _is_repository(root: Path) -> bool:
    """Its own, not one that happens to lie around it."""
    return (root / ".git").exists() or (root / "HEAD").is_file()


def _pinned_commit(checkout: Checkout) -> str:
    dockerfile = checkout.root / "docker" / "Dockerfile"
    text = dockerfile.read_text() if dockerfile.is_file() else ""
    found = re.search(r"^ARG MEGATRON_COMMIT=([0-9a-f]{40})", text, re.MULTILINE)
    if found is None:
        raise ConfigError(f"{dockerfile}: names no MEGATRON_COMMIT; use a full checkout of {checkout.name}")
    return found[1]


def _patches(checkout: Checkout) -> list[Path]:
    folder = checkout.root / "docker" / "patch" / "latest"
    patches = sorted(folder.glob("megatron*.patch"))
    if not patches:
        raise ConfigError(f"{folder}: no megatron*.patch; use a full checkout of {checkout.name}")
    return patches


def _export(repository: Path, commit: str, tree: Path) -> None:
    """The files of ``commit`` into ``tree``."""
    archive = tree.parent / "megatron.tar"
    _run("git", "-C", str(repository), "archive", "--output", str(archive), commit, "megatron",
         error=f"MEGATRON_ROOT={str(repository)!r}: has no commit {commit[:8]}, which the host pins; {_REMEDY}")
    shutil.unpack_archive(archive, tree, "tar", filter="data")


def _fetch(url: str, commit: str, folder: Path) -> Path:
    """A bare repository with this one commit."""
    _run("git", "init", "--quiet", "--bare", str(folder), error=f"git cannot write into {folder}")
    _run("git", "-C", str(folder), "fetch", "--quiet", "--depth", "1", url, commit,
         error=f"{url} does not answer with {commit[:8]}; set MEGATRON_ROOT to a clone that has it")
    return folder


def fetched_host(name: str, home: Path) -> Path:
    """Where ``fetch_host`` keeps it."""
    return home / f"{name}-{HOST_SOURCES[name][1][:8]}"


def fetch_host(name: str, home: Path) -> Path:
    """A checkout of the host at the tested commit, fetched once.

    Raises:
        ConfigError: there is no git or no network.
    """
    url, commit = HOST_SOURCES[name]
    folder = fetched_host(name, home)
    if folder.is_dir():
        return folder
    _need_git()
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as draft:
        tree = Path(draft) / "tree"
        error = f"{url} does not answer with {commit[:8]}; set HOST_ROOT to a checkout of {name}"
        _run("git", "init", "--quiet", str(tree), error=error)
        _run("git", "-C", str(tree), "fetch", "--quiet", "--depth", "1", url, commit, error=error)
        _run("git", "-C", str(tree), "checkout", "--quiet", "FETCH_HEAD", error=error)
        tree.rename(folder)
    return folder


def commit_of(checkout: Checkout) -> str:
    """The checkout's commit, empty where git cannot tell or is not there."""
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(["git", "-C", str(checkout.root), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _run(*command: str, error: str, cwd: Path | None = None) -> None:
    """Run git, which asks nobody for a password."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
    if done.returncode:
        raise ConfigError(f"{error} ({' '.join(done.stderr.split())[-160:]})")
