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
from collections.abc import Sequence
from pathlib import Path

import torch

from ..system.cli import one_line_errors
from .average import average
from .bridge import build_bridge, expected_tensors, to_hf
from .checkpoint import ModelTensors
from .folders import CheckpointError, number_of, numbered, resolve
from .hf_folder import write_model
from .hf_model import local_folder, settings_of_run
from .model_card import CARD, add_push_arguments, card_of_run, push


def convert(source: str | Path, hf_dir: str | Path, output: str | Path, *, force: bool = False) -> Path:
    """Write the Hugging Face folder ``output``; gives back the checkpoint folder that was read."""
    hf_dir, folder = Path(hf_dir), resolve(source)
    bridge, tensors = build_bridge(hf_dir), ModelTensors(folder)
    expected, target = expected_tensors(bridge), bridge.hf_config.dtype or torch.float32
    tensors.check_fit(expected)

    def converted(name: str) -> list[tuple[str, torch.Tensor]]:
        whole = tensors.read(name)[: expected[name][0]]  # cuts vocabulary padding
        return [(hf_name, part.to(target).contiguous()) for hf_name, part in to_hf(bridge, name, whole)]

    sizes = {name: torch.Size(shape).numel() * target.itemsize for name, shape in expected.items()}
    files = settings_of_run(folder.parent) | {CARD: card_of_run(folder.parent, folder.name, hf_dir).encode()}
    write_model(output, [hf_dir, folder], sizes, converted, files, force=force)
    return folder


@one_line_errors("what is not complete was not written")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent convert", description=__doc__.splitlines()[0])
    parser.add_argument("--input", required=True, help="iter_* folder, or the folder above it")
    parser.add_argument("--hf", required=True, help="Hugging Face folder or id of the model that was trained")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--iteration", default="", help="number or folder name of one checkpoint; default: the newest")
    which.add_argument("--all", action="store_true", help="every checkpoint")
    which.add_argument("--average", nargs="+", metavar="ITERATION", help="the mean of several checkpoints")
    parser.add_argument("--output", help="folder to write; default: in hf/ beside the checkpoint")
    parser.add_argument("--force", action="store_true", help="replace an existing output folder")
    add_push_arguments(parser)
    args = parser.parse_args(argv)
    if args.all and (args.output or args.push_to_hub):
        raise CheckpointError("SINGLE_ITER=all (--all) writes several folders: leave out OUTPUT (--output) and "
                              "PUSH_TO_HUB (--push-to-hub)")
    run, hf_dir = Path(args.input), local_folder(args.hf, weights=False)
    names = [f"iter_{int(name):07d}" if name.isdecimal() else name for name in args.average or [args.iteration]]
    sources = (numbered(run) if args.all else []) or [resolve(run / name) for name in names]
    models = [folder.parent / "hf" / folder.name for folder in sources]
    if args.output and not args.average:
        models = [Path(args.output)]
    for source, model in zip(sources, models, strict=True):
        if (model / "config.json").is_file() and not args.force:
            print(f"{model} already exists; --force (FORCE=1) converts it again")
            continue
        convert(source, hf_dir, model, force=args.force)
        print(f"{source} -> {model}")
    output = models[-1]
    if args.average:
        numbers = "_".join(str(number_of(folder)) for folder in sources)
        output = Path(args.output) if args.output else models[0].parent / f"average_{numbers}"
        average(models, output, force=args.force)
        print(f"mean of {', '.join(map(str, models))} -> {output}")
    if args.push_to_hub:
        print(f"pushed to {push(output, args.push_to_hub, private=args.private)}")
    return 0
