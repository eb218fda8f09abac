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
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError

from ..config import SETTINGS_FILE
from ..system.atomic_file import write_atomically
from ..system.errors import MemAgentError
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .agent_settings import settings_of_run, write_files
from .bridge import build_bridge, expected_tensors, to_hf
from .complete_folder import check_free, complete_folder
from .folders import TRACKER, number_of, resolve
from .hashes import check_hashes
from .hf_folder import DTYPES, copy_model_files, plan_shards, write_shards
from .hf_model import local_folder
from .hub import add_push_arguments, check_token, push
from .model_card import card_of_run, write_card
from .torch_dist import ModelTensors, misfit
from .unreplaced import unreplaced
from .whole import other_named

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
    shard_size: int = 5 * 10**9,
) -> Path:
    """Write the Hugging Face folder ``output``; gives back the checkpoint folder that was read."""
    output, hf_dir = Path(output).absolute(), Path(hf_dir)
    folder = resolve(source)
    made_of = [folder, hf_dir]
    check_free(output, force, made_of)
    with unreplaced(folder) as confirm, other_named(folder, lambda older: _other_ways(folder, older)):
        check_hashes(folder)
        write = _conversion(folder, hf_dir, dtype, shard_size)
        with complete_folder(output, force=force, made_of=made_of) as temporary:
            write(temporary)
            confirm()
    return folder


def _other_ways(damaged: Path, whole: Path) -> str:
    tracker = damaged.with_name(TRACKER)
    return f"convert that, or write {number_of(whole)} into {tracker} and train again, which makes {damaged.name} anew"


def _conversion(folder: Path, hf_dir: Path, dtype: str | None, shard_size: int) -> Callable[[Path], None]:
    """What writes the Hugging Face folder, once the checkpoint is known to fit the model."""
    bridge = build_bridge(hf_dir)
    settings, card = settings_of_run(folder.parent), card_of_run(folder.parent, folder.name, str(hf_dir))
    tensors = ModelTensors(folder)
    expected = expected_tensors(bridge)
    problem = misfit(tensors.shapes, expected)
    if problem:
        remedy = "HF_CKPT (--hf) must be the folder of the model that was trained"
        raise ConvertError(f"{folder} does not fit {hf_dir}: {problem}; {remedy}")
    target = DTYPES[dtype] if dtype else bridge.hf_config.dtype or torch.float32
    assert isinstance(target, torch.dtype), target

    def converted(name: str) -> list[tuple[str, torch.Tensor]]:
        whole = tensors.read(name)[: expected[name][0]]  # cuts vocabulary padding
        return [(hf_name, part.to(target).contiguous()) for hf_name, part in to_hf(bridge, name, whole)]

    sizes = {name: torch.Size(shape).numel() * target.itemsize for name, shape in expected.items()}

    def write(output: Path) -> None:
        copy_model_files(hf_dir, output)  # before hours of weights, as a link in it may be refused
        write_shards(output, plan_shards(sizes, shard_size), converted)
        write_files(settings, output)
        write_card(output, card)
        if dtype:
            _set_dtype(output / "config.json", dtype)

    return write


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
    try:
        model = local_folder(args.hf)
        folder = convert(
            args.input, model, args.output, force=args.force, dtype=args.dtype, shard_size=args.shard_size
        )
    except SafetensorError as error:
        raise ConvertError(f"a weights file of {args.hf} is damaged: {error}") from None
    print(f"{folder} -> {args.output}")
    if not (Path(args.output) / SETTINGS_FILE).is_file():
        print(f"without settings of an agent: {folder.parent} has no {SETTINGS_FILE}")
    if args.push_to_hub:
        print(f"pushed to {push(Path(args.output), args.push_to_hub, private=args.private)}")
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
