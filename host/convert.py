"""Convert a torch_dist checkpoint to a Hugging Face folder, on the CPU and without building a model.

::

    python -m mem_agent.host.convert --input RUN/iter_0000099 --hf MODEL --output OUT [--dtype bfloat16] [--force]

``--input`` is a checkpoint of this pack, slime or vime, or the folder above it, whose tracker then names the latest;
``--hf`` is the model it was trained from: it gives configuration, tokenizer and number format. Tensors are read layer
by layer and written shard by shard, so memory stays near one shard. The output appears only when it is complete.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from ..errors import MemAgentError
from .bridge import UnsupportedModel, build_bridge, expected_tensors, to_hf
from .checkpoint import CheckpointError, resolve
from .torch_dist import ModelTensors, mismatches

_COPIED = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab*",
    "merges*",
    "special_tokens*",
    "added_tokens*",
    "chat_template*",
)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class ConvertError(MemAgentError):
    """The checkpoint does not fit the model, or the output cannot be written."""


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
    if output.exists() and not force:
        raise ConvertError(f"{output}: exists already; set FORCE=1 (--force) to replace it")
    bridge, folder = build_bridge(hf_dir), resolve(source)
    tensors = ModelTensors(folder)
    expected = expected_tensors(bridge)
    problems = mismatches(tensors.shapes, expected)
    if problems:
        headline = f"{folder}: {len(problems)} tensors do not fit the model given by --hf"
        raise ConvertError("\n".join([headline, *problems]))
    target = _DTYPES[dtype] if dtype else bridge.hf_config.dtype or torch.float32
    assert isinstance(target, torch.dtype), target

    def converted(name: str) -> list[tuple[str, torch.Tensor]]:
        whole = tensors.read(name)[: expected[name][0]]  # cuts vocabulary padding
        return [(hf_name, part.to(target).contiguous()) for hf_name, part in to_hf(bridge, name, whole)]

    shards = _plan_shards(expected, target.itemsize, shard_size)
    temporary, replaced = output.with_name(f".{output.name}.writing"), output.with_name(f".{output.name}.replaced")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        contents = ((pair for name in shard for pair in converted(name)) for shard in shards)
        _write_shards(temporary, contents, len(shards))
        _copy_files(hf_dir, temporary, dtype)
        if output.exists():
            output.rename(replaced)
        temporary.rename(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
    return folder


def _plan_shards(expected: dict[str, tuple[int, ...]], itemsize: int, shard_size: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    filled = 0
    for name, shape in expected.items():
        size = torch.Size(shape).numel() * itemsize
        if shards[-1] and filled + size > shard_size:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    return shards


def _write_shards(folder: Path, shards: Iterator[Iterator[tuple[str, torch.Tensor]]], count: int) -> None:
    weight_map: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, start=1):
        file = "model.safetensors" if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors"
        tensors = dict(shard)
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, file)
        total += sum(tensor.nbytes for tensor in tensors.values())
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _copy_files(hf_dir: Path, folder: Path, dtype: str | None) -> None:
    for pattern in _COPIED:
        for file in hf_dir.glob(pattern):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
    if dtype:
        config = json.loads((folder / "config.json").read_text())
        config.pop("torch_dtype", None)
        (folder / "config.json").write_text(json.dumps(config | {"dtype": dtype}, indent=2) + "\n")


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)(KB|MB|GB|)", text.upper())
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size like 5GB or 500MB")
    return int(match[1]) * _UNITS[match[2]]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mem_agent.host.convert", description=__doc__.splitlines()[0])
    parser.add_argument("--input", required=True, help="iter_* folder, or the folder above it")
    parser.add_argument("--hf", required=True, help="Hugging Face folder of the model that was trained")
    parser.add_argument("--output", required=True, help="folder to write")
    parser.add_argument("--dtype", choices=sorted(_DTYPES), help="number format; default: that of --hf")
    parser.add_argument("--shard-size", type=_size, default="5GB", help="largest file, e.g. 500MB (default 5GB)")
    parser.add_argument("--force", action="store_true", help="replace an existing output folder")
    args = parser.parse_args(argv)
    try:
        folder = convert(
            args.input, args.hf, args.output, force=args.force, dtype=args.dtype, shard_size=args.shard_size
        )
    except (ConvertError, CheckpointError, UnsupportedModel, OSError, SafetensorError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{folder} -> {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
