"""Convert a torch_dist checkpoint to a Hugging Face folder, on the CPU and without building a model.

::

    mem-agent convert --input RUN/iter_0000099 --hf MODEL --output OUT [--dtype D] [--force] [--push-to-hub ORG/NAME]

``--input`` is a checkpoint of this pack, slime or vime, or the folder above it, whose tracker then names the latest;
``--hf`` is the model it was trained from: it gives configuration, tokenizer and number format. Tensors are read layer
by layer and written shard by shard, so memory stays near one shard. The output appears only when it is complete, with
the settings of the agent that was trained (``agent_settings``), if the run above the checkpoint has left them, and a
card (``model_card``).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from ..config import SETTINGS_FILE
from ..system.errors import MemAgentError
from ..system.files import write_atomically
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .agent_settings import settings_of_run, write_files
from .bridge import build_bridge, expected_tensors, to_hf
from .folders import CheckpointError, DamagedCheckpoint, before, check_free, complete_folder, resolve
from .hf_folder import DTYPES, SHARD_SIZE, copy_model_files, plan_shards, write_shards
from .hf_model import local_folder
from .hub import add_push_arguments, check_token, push
from .model_card import card_of_run, write_card
from .torch_dist import ModelTensors, misfit

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class ConvertError(MemAgentError):
    """The checkpoint does not fit the model."""


def convert(
    source: str | Path,
    hf_dir: str | Path,
    output: str | Path,
    *,
    force: bool = False,
    dtype: str | None = None,
    shard_size: int = SHARD_SIZE,
    base: str | None = None,
) -> Path:
    """Write the Hugging Face folder ``output``; gives back the checkpoint folder that was read.

    Args:
        base: what the card calls the model in ``hf_dir``, such as its hub id.
    """
    output, hf_dir = Path(output).absolute(), Path(hf_dir)
    folder = resolve(source)
    made_of = [folder, hf_dir]
    check_free(output, force, made_of)
    try:
        bridge = build_bridge(hf_dir)
        tensors, expected = ModelTensors(folder), expected_tensors(bridge)
        if problem := misfit(tensors.shapes, expected):
            remedy = "HF_CKPT (--hf) must be the folder of the model that was trained"
            raise ConvertError(f"{folder} does not fit {hf_dir}: {problem}; {remedy}")
        settings = settings_of_run(folder.parent)
        card = card_of_run(folder.parent, folder.name, base or str(hf_dir.absolute()))
        target = DTYPES[dtype] if dtype else bridge.hf_config.dtype or torch.float32
        assert isinstance(target, torch.dtype), target

        def converted(name: str) -> list[tuple[str, torch.Tensor]]:
            whole = tensors.read(name)[: expected[name][0]]  # cuts vocabulary padding
            return [(hf_name, part.to(target).contiguous()) for hf_name, part in to_hf(bridge, name, whole)]

        sizes = {name: torch.Size(shape).numel() * target.itemsize for name, shape in expected.items()}
        with complete_folder(output, force=force, made_of=made_of) as temporary:
            write_shards(temporary, plan_shards(sizes, shard_size), converted)
            copy_model_files(hf_dir, temporary)
            write_files(settings, temporary)
            write_card(temporary, card)
            if dtype:
                _set_dtype(temporary / "config.json", dtype)
    except DamagedCheckpoint as error:
        older = before(folder)
        other = f"{older[-1]} is the one before it" if older else "copy it again if it is a copy"
        raise CheckpointError(f"{error}; {other}") from error
    return folder


def _set_dtype(file: Path, dtype: str) -> None:
    config = json.loads(file.read_text())
    config.pop("torch_dtype", None)
    write_atomically(file, (json.dumps(config | {"dtype": dtype}, indent=2) + "\n").encode())


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)(KB|MB|GB|)", text.upper())
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size like 5GB or 500MB")
    return int(match[1]) * _UNITS[match[2]]


@one_line_errors("nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    description = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="mem-agent convert", description=description)
    parser.add_argument("--input", required=True, help="iter_* folder, or the folder above it")
    parser.add_argument("--hf", required=True, help="Hugging Face folder or id of the model that was trained")
    parser.add_argument("--output", required=True, help="folder to write")
    parser.add_argument("--dtype", choices=sorted(DTYPES), help="number format; default: that of --hf")
    parser.add_argument("--shard-size", type=_size, default="5GB", help="largest file, e.g. 500MB (default 5GB)")
    parser.add_argument("--force", action="store_true", help="replace an existing output folder")
    add_push_arguments(parser)
    args = parser.parse_args(argv)
    if args.push_to_hub:
        check_token()
    folder = convert(
        args.input, local_folder(args.hf), args.output, force=args.force, dtype=args.dtype,
        shard_size=args.shard_size, base=str(Path(args.hf).absolute()) if Path(args.hf).is_dir() else args.hf,
    )
    print(f"{folder} -> {args.output}")
    if not (Path(args.output) / SETTINGS_FILE).is_file():
        print(f"without settings of an agent: {folder.parent} has no {SETTINGS_FILE}")
    if args.push_to_hub:
        print(f"pushed to {push(Path(args.output), args.push_to_hub, private=args.private)}")
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
