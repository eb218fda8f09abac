"""Convert a torch_dist checkpoint to a Hugging Face folder, on the CPU and without building a model.

::

    mem-agent convert --input RUN --hf MODEL                        the newest checkpoint -> RUN/hf/iter_0000099
    mem-agent convert --input RUN --hf MODEL --iteration 20         that one; --all: every one
    mem-agent convert --input RUN --hf MODEL --average 20 30 40     their mean -> RUN/hf/average_20_30_40

``--input`` is a checkpoint of this pack, slime or vime, or the folder above it, whose tracker names the newest;
``--hf`` is the model it was trained from: it gives configuration, tokenizer and number format. A model that is there
already is kept, unless ``--force`` is given. Tensors are read layer by layer and written shard by shard, so memory
stays near one shard. The output appears only when it is complete, with the settings of the agent that was trained
(``hf_model``), if the run above the checkpoint has left them, and a card (``model_card``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from ..config import SETTINGS_FILE
from ..system.errors import MemAgentError
from ..system.files import write_atomically
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .average import average
from .bridge import build_bridge, expected_tensors, to_hf
from .folders import CheckpointError, check_free, complete_folder, number_of, numbered, resolve
from .hf_folder import DTYPES, copy_model_files, write_shards
from .hf_model import local_folder, settings_of_run, write_files
from .model_card import add_push_arguments, card_of_run, check_push, push, write_card
from .torch_dist import ModelTensors


def convert(
    source: str | Path, hf_dir: str | Path, output: str | Path, *, force: bool = False, dtype: str | None = None
) -> Path:
    """Write the Hugging Face folder ``output``; gives back the checkpoint folder that was read."""
    output, hf_dir, folder = Path(output).absolute(), Path(hf_dir), resolve(source)
    check_free(output, force, [folder, hf_dir])
    bridge = build_bridge(hf_dir)
    expected, target = expected_tensors(bridge), DTYPES[dtype] if dtype else bridge.hf_config.dtype or torch.float32
    assert isinstance(target, torch.dtype), target
    tensors = ModelTensors(folder)
    tensors.check_fit(expected)
    settings, card = settings_of_run(folder.parent), card_of_run(folder.parent, folder.name, hf_dir)

    def converted(name: str) -> list[tuple[str, torch.Tensor]]:
        whole = tensors.read(name)[: expected[name][0]]  # cuts vocabulary padding
        return [(hf_name, part.to(target).contiguous()) for hf_name, part in to_hf(bridge, name, whole)]

    sizes = {name: torch.Size(shape).numel() * target.itemsize for name, shape in expected.items()}
    with complete_folder(output) as draft:
        write_shards(draft, sizes, converted)
        copy_model_files(hf_dir, draft)
        write_files(settings, draft)
        write_card(draft, card)
        if dtype:
            _set_dtype(draft / "config.json", dtype)
    return folder


def _set_dtype(file: Path, dtype: str) -> None:
    config = json.loads(file.read_text())
    config.pop("torch_dtype", None)
    write_atomically(file, (json.dumps(config | {"dtype": dtype}, indent=2) + "\n").encode())


def chosen(run: Path, names: Sequence[str]) -> list[Path]:
    """The checkpoints of ``run`` by their numbers or folder names. Raises CheckpointError."""
    there = {folder.name: folder for folder in numbered(run)}
    found = []
    for name in names:
        folder = f"iter_{int(name):07d}" if name.isdecimal() else name
        if folder not in there:
            raise CheckpointError(f"{run}: no checkpoint {name}; there are {', '.join(there) or 'none'}")
        found.append(there[folder])
    return found


def _sources(args: argparse.Namespace) -> list[Path]:
    run = Path(args.input)
    if args.average:
        found = chosen(run, args.average)
        if len(set(found)) < max(2, len(found)):
            raise CheckpointError("AVERAGE (--average): name at least 2 different checkpoints")
        return found
    if args.iteration:
        return chosen(run, [args.iteration])
    if not args.all:
        return [resolve(run)]
    if args.output or args.push_to_hub:
        raise CheckpointError("SINGLE_ITER=all (--all) writes several folders: leave out OUTPUT (--output) and "
                              "PUSH_TO_HUB (--push-to-hub)")
    if not (found := numbered(run)):
        raise CheckpointError(f"{run}: no iter_* checkpoints")
    return found


def _convert_once(source: Path, hf_dir: Path, output: Path, args: argparse.Namespace) -> None:
    """Convert a checkpoint, unless its model is there."""
    if (output / "config.json").is_file() and not args.force:
        print(f"{output} already exists; --force (FORCE=1) converts it again")
        return
    convert(source, hf_dir, output, force=args.force, dtype=args.dtype)
    print(f"{source} -> {output}")
    if not (output / SETTINGS_FILE).is_file():
        print(f"no agent settings written: {source.parent} has no {SETTINGS_FILE}")


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
    parser.add_argument("--force", action="store_true", help="replace an existing output folder")
    add_push_arguments(parser)
    args = parser.parse_args(argv)
    if args.push_to_hub:
        check_push(args.push_to_hub)
    hf_dir, sources, failed = local_folder(args.hf, weights=False), _sources(args), []
    models = [folder.parent / "hf" / folder.name for folder in sources]
    if args.output and not args.average:
        models = [Path(args.output)]
    for source, model in zip(sources, models, strict=True):
        try:
            _convert_once(source, hf_dir, model, args)
        except MemAgentError as error:
            if not args.all:
                raise
            print(f"error: {error}", file=sys.stderr)
            failed.append(source.name)
    if failed:
        raise CheckpointError(f"not converted: {', '.join(failed)}; the lines above say why")
    output = models[-1]
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
