"""Convert a torch_dist checkpoint to a Hugging Face folder, on the CPU and without building a model.

::

    mem-agent convert --input RUN --hf MODEL                        the newest checkpoint -> RUN/hf/iter_0000099
    mem-agent convert --input RUN --hf MODEL --iteration 20         that one; --all: every one
    mem-agent convert --input RUN --hf MODEL --average 20 30 40     their mean -> RUN/hf/average_20_30_40

``--input`` is a checkpoint of this pack, slime or vime, or the folder above it, whose tracker names the newest;
``--hf`` is the model it was trained from: it gives configuration, tokenizer and number format. A model that is there
already is kept, unless ``--force`` is given. Tensors are read layer
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
from .average import average
from .bridge import build_bridge, expected_tensors, to_hf
from .folders import (
    CheckpointError,
    DamagedCheckpoint,
    before,
    check_free,
    complete_folder,
    number_of,
    numbered,
    resolve,
)
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


def chosen(run: Path, names: Sequence[str]) -> list[Path]:
    """The checkpoints of ``run`` by their numbers or folder names. Raises ConvertError."""
    there = {folder.name: folder for folder in numbered(run)}
    folders = [there.get(f"iter_{int(name):07d}" if name.isdecimal() else name) for name in names]
    for name, folder in zip(names, folders, strict=True):
        if folder is None:
            raise ConvertError(f"{run}: no checkpoint {name}; there are {', '.join(there) or 'none'}")
    return [folder for folder in folders if folder is not None]


def _sources(args: argparse.Namespace) -> list[Path]:
    run = Path(args.input)
    if args.iteration or args.average:
        found = chosen(run, args.average or [args.iteration])
        if args.average and len(set(found)) < max(2, len(found)):
            raise ConvertError(f"--average (AVERAGE) {' '.join(args.average)}: name at least 2 different checkpoints")
        return found
    if not args.all:
        return [resolve(run)]
    if args.output or args.push_to_hub:
        raise ConvertError("--all (SINGLE_ITER=all) writes several folders: leave out --output (OUTPUT) and "
                           "--push-to-hub (PUSH_TO_HUB)")
    if not (found := numbered(run)):
        raise ConvertError(f"{run}: no iter_* checkpoints")
    return found


def _convert_once(source: Path, hf_dir: Path, output: Path, args: argparse.Namespace) -> None:
    """Convert a checkpoint, unless its model is there."""
    if (output / "config.json").is_file() and not args.force:
        print(f"there: {output}; --force (FORCE=1) converts it again")
        return
    base = str(Path(args.hf).absolute()) if Path(args.hf).is_dir() else args.hf
    convert(source, hf_dir, output, force=args.force, dtype=args.dtype, shard_size=args.shard_size, base=base)
    print(f"{source} -> {output}")
    if not (output / SETTINGS_FILE).is_file():
        print(f"without settings of an agent: {source.parent} has no {SETTINGS_FILE}")


@one_line_errors("what is not complete was not written")
def main(argv: Sequence[str] | None = None) -> int:
    description = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="mem-agent convert", description=description)
    parser.add_argument("--input", required=True, help="iter_* folder, or the folder above it")
    parser.add_argument("--hf", required=True, help="Hugging Face folder or id of the model that was trained")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--iteration", help="number or folder name of one checkpoint; default: the newest")
    which.add_argument("--all", action="store_true", help="every checkpoint")
    which.add_argument("--average", nargs="+", metavar="ITERATION", help="the mean of several checkpoints")
    parser.add_argument("--output", help="folder to write; default: in hf/ beside the checkpoint")
    parser.add_argument("--dtype", choices=sorted(DTYPES), help="number format; default: that of --hf")
    parser.add_argument("--shard-size", type=_size, default="5GB", help="largest file, e.g. 500MB (default 5GB)")
    parser.add_argument("--force", action="store_true", help="replace an existing output folder")
    add_push_arguments(parser)
    args = parser.parse_args(argv)
    if args.push_to_hub:
        check_token()
    hf_dir, sources, failed = local_folder(args.hf), _sources(args), []
    models = [folder.parent / "hf" / folder.name for folder in sources]
    output = Path(args.output) if args.output else models[-1]
    if args.output and not args.average:
        models = [output]
    for source, model in zip(sources, models, strict=True):
        try:
            _convert_once(source, hf_dir, model, args)
        except MemAgentError as error:
            if not args.all:
                raise
            print(f"error: {error}", file=sys.stderr)
            failed.append(source.name)
    if failed:
        raise ConvertError(f"not converted: {', '.join(failed)}; the lines above say why")
    if args.average:
        numbers = "_".join(str(number_of(folder)) for folder in sources)
        output = Path(args.output) if args.output else models[0].parent / f"average_{numbers}"
        average(models, output, force=args.force)
        print(f"mean of {', '.join(map(str, models))} -> {output}")
    if args.push_to_hub:
        print(f"pushed to {push(output, args.push_to_hub, private=args.private)}")
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
