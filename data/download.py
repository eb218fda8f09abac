"""Fetches published evaluation files: ``mem-agent download --output DIR --lengths "50 200"``.

``huggingface_hub`` resumes what was interrupted, verifies what arrives, and fetches a file that is there only if the
hub has another. HF_ENDPOINT, HF_TOKEN and the like are its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..system.errors import reason_of
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .lengths import INDEX_ONLY_ABOVE, LENGTHS, eval_name, parse_lengths
from .manifest import Manifest
from .numbered import RAW_NAMES
from .rows import DataError

DATASET = "BytedTsinghua-SIA/hotpotqa"


def download(dataset: str, revision: str | None, lengths: Sequence[int], output: Path) -> None:
    """Fetch what is missing; with no ``lengths`` all that the dataset has of ``LENGTHS``. Raises DataError."""
    from huggingface_hub import snapshot_download  # slow to import, and reads HF_ENDPOINT when it is

    names = [eval_name(n) for n in lengths or LENGTHS]
    if made := [name for name in names if (output / name).exists() and name in Manifest(output).files]:
        raise DataError(f"{output / made[0]}: was made by synthesize; choose another folder")
    try:
        snapshot_download(dataset, repo_type="dataset", revision=revision, allow_patterns=names, local_dir=output)
    except Exception as error:  # the hub client raises its own, HTTP, file and value errors alike
        hint = "HF_ENDPOINT and HF_TOKEN say where and as whom"
        raise DataError(f"{dataset}: {reason_of(error)} ({hint}); run again to continue") from None
    there = [n for n in lengths or LENGTHS if (output / eval_name(n)).is_file()]
    for n in there:
        print(f"{output / eval_name(n)}: there")
        if n > INDEX_ONLY_ABOVE and not any((output / name).is_file() for name in RAW_NAMES):
            print(f"{output / eval_name(n)}: names documents of HotpotQA's {RAW_NAMES[0]}; put that file beside it")
    if not there or (lengths and there != list(lengths)):
        raise DataError(f"{dataset} has not all of {', '.join(names)}")


@one_line_errors("the same command continues with what is missing")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent download", description="Fetch published evaluation files.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of eval_<length>.json")
    parser.add_argument("--lengths", help="numbers of documents (all that the dataset has)")
    parser.add_argument("--dataset", default=DATASET, metavar="ID", help=f"dataset on the hub ({DATASET})")
    parser.add_argument("--revision", help="branch, tag or commit")
    args = parser.parse_args(argv)
    download(args.dataset, args.revision or None, parse_lengths(args.lengths) if args.lengths else (), args.output)
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
