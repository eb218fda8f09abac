"""Fetches published evaluation files: ``mem-agent download --output DIR --lengths "50 200"``.

Invariants:
- the first run resolves the revision to a commit, and the manifest keeps it: later runs fetch further lengths from
  that commit, whatever has been pushed since;
- a file gets its name after its SHA-256 agrees with the one the hub states (where it states one) and stands in the
  manifest; files that are there are verified against it and never overwritten;
- files arrive in ``DIR/.download``, which is removed; one that was interrupted is fetched anew by the next run.

HF_ENDPOINT, HF_TOKEN and the like are left to huggingface_hub.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..system.errors import MemAgentError
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .manifest import Manifest, locked_manifest, sha256_of
from .options import INDEX_ONLY_ABOVE, LENGTHS, eval_name, parse_lengths
from .published import RAW_NAMES
from .sources import first_line

DATASET = "BytedTsinghua-SIA/hotpotqa"
_STAGE = ".download"


class DownloadError(MemAgentError):
    """The hub, the dataset or a file of it cannot be had; says which."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A dataset at one commit; of its files the SHA-256, empty where the hub does not state it."""

    dataset: str
    commit: str
    files: Mapping[str, str]

    @property
    def source(self) -> dict[str, str]:
        return {"kind": "download", "dataset": self.dataset, "revision": self.commit}


def download(
    dataset: str, revision: str | None, lengths: Sequence[int], output: Path, say: Callable[[str], None] = print
) -> None:
    """Fetch what is missing; with no ``lengths`` all that the dataset has of ``LENGTHS``.

    Raises:
        MemAgentError: the dataset cannot be had or lacks a length, or a file there is another one.
    """
    with locked_manifest(output) as manifest:
        _remove_stage(output)
        remote = _remote(manifest, dataset, revision, lengths)
        try:
            for n in _offered(remote, lengths):
                _enter_known(remote, eval_name(n), manifest)
                if manifest.has(eval_name(n), remote.source):
                    say(f"{output / eval_name(n)}: there")
                else:
                    _fetch(remote, eval_name(n), manifest)
                    say(f"{output / eval_name(n)}: fetched")
                _say_if_raw_is_needed(n, output, say)
        finally:
            _remove_stage(output)


def _remove_stage(output: Path) -> None:
    """The hub's library writes into files that it finds there, and would follow links."""
    stage = output / _STAGE
    if stage.is_symlink():
        stage.unlink()
    shutil.rmtree(stage, ignore_errors=True)


def _say_if_raw_is_needed(length: int, output: Path, say: Callable[[str], None]) -> None:
    if length > INDEX_ONLY_ABOVE and not any((output / name).is_file() for name in RAW_NAMES):
        say(f"{output / eval_name(length)}: names documents of HotpotQA's {RAW_NAMES[0]}; put that file beside it, or "
            "set EVAL_RAW to it")


def _remote(manifest: Manifest, dataset: str, revision: str | None, lengths: Sequence[int]) -> Remote:
    pinned = _pinned(manifest, dataset)
    if pinned and revision and revision != pinned and _resolve(dataset, revision).commit != pinned:
        raise DownloadError(
            f"{manifest.folder}: holds files of {dataset} at {pinned}; choose another folder for {revision}"
        )
    names = [eval_name(n) for n in lengths]
    if pinned and names and all(name in manifest.files and (manifest.folder / name).exists() for name in names):
        return Remote(dataset, pinned, dict.fromkeys(names, ""))  # nothing to ask the hub for
    return _resolve(dataset, pinned or revision)


def _offered(remote: Remote, lengths: Sequence[int]) -> list[int]:
    offered = [n for n in LENGTHS if eval_name(n) in remote.files]
    absent = [eval_name(n) for n in lengths if eval_name(n) not in remote.files]
    if absent or not offered:
        has = " ".join(map(str, offered)) or "(none)"
        raise DownloadError(f"{remote.dataset} has no {(absent or ['eval_<n>.json'])[0]}; it has the lengths {has}")
    return list(lengths or offered)


def _enter_known(remote: Remote, name: str, manifest: Manifest) -> None:
    """Enter a file that was fetched by other means, if it is the hub's."""
    path = manifest.folder / name
    if name in manifest.files or not path.is_file():
        return
    if (sha256 := sha256_of(path)) == remote.files[name]:
        manifest.move_in(path, name, remote.source, sha256)


def _pinned(manifest: Manifest, dataset: str) -> str | None:
    sources = [entry["source"] for entry in manifest.files.values()]
    return next((s["revision"] for s in sources if _is_download(s) and s["dataset"] == dataset), None)


def _is_download(source: Mapping[str, Any]) -> bool:
    return source.get("kind") == "download" and all(type(source.get(k)) is str for k in ("dataset", "revision"))


def _resolve(dataset: str, revision: str | None) -> Remote:
    from huggingface_hub import HfApi  # slow to import, and reads HF_ENDPOINT when it is

    info = _asking(dataset, lambda: HfApi().dataset_info(dataset, revision=revision, files_metadata=True))
    files = {file.rfilename: file.lfs.sha256 if file.lfs else "" for file in info.siblings or ()}
    assert info.sha is not None, "the hub always names the commit"
    return Remote(dataset, info.sha, files)


def _fetch(remote: Remote, name: str, manifest: Manifest) -> None:
    from huggingface_hub import hf_hub_download

    def get() -> str:
        # Forced: a damaged copy in the hub's cache would come back for ever.
        return hf_hub_download(
            remote.dataset, name, repo_type="dataset", revision=remote.commit, local_dir=manifest.folder / _STAGE,
            force_download=True,
        )

    path = Path(_asking(remote.dataset, get))
    sha256 = sha256_of(path)
    if remote.files[name] not in ("", sha256):
        raise DownloadError(f"{name} arrived damaged (not the SHA-256 that the hub states); run again")
    manifest.move_in(path, name, remote.source, sha256)


def _asking(dataset: str, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:  # the hub client raises its own, HTTP, file and value errors alike
        hint = "HF_ENDPOINT and HF_TOKEN say where and as whom"
        raise DownloadError(f"{dataset}: {first_line(error)} ({hint}); run again to continue") from None


@one_line_errors("the same command continues with what is missing")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent download", description="Fetch published evaluation files.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of eval_<length>.json")
    parser.add_argument("--lengths", help="numbers of documents (all that the dataset has)")
    parser.add_argument("--dataset", default=DATASET, metavar="ID", help=f"dataset on the hub ({DATASET})")
    parser.add_argument("--revision", help="branch, tag or commit; resolved once, then kept")
    args = parser.parse_args(argv)
    lengths = () if args.lengths is None else parse_lengths(args.lengths)
    download(args.dataset, args.revision or None, lengths, args.output)
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
