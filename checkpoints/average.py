"""Average the weights of several Hugging Face folders of one model, on the CPU.

::

    mem-agent average --inputs A B C --output OUT [--force]

The mean is taken in float32 and cast back to the number format of the inputs; configuration, tokenizer and settings of
the agent are the first input's. The inputs must agree in names, shapes and number formats of their tensors, which are
read one at a time and written shard by shard: memory stays near one shard, however many inputs there are. The output
appears only when it is complete.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from ..config import SETTINGS_FILE
from ..system.cli import one_line_errors
from .folders import CheckpointError
from .hf_folder import HfTensors, first_difference, write_model
from .hf_model import PROMPTS_FILE
from .model_card import CARD, card_of_mean


def average(inputs: Sequence[str | Path], output: str | Path, *, force: bool = False) -> None:
    """Write the Hugging Face folder ``output``. Raises CheckpointError where the inputs are not of one model."""
    folders = [Path(folder).resolve() for folder in inputs]
    models = [HfTensors(folder) for folder in folders]
    tensors = [{name: (shape, model.read(name).dtype) for name, shape in model.shapes.items()} for model in models]
    for folder, found in zip(folders, tensors, strict=True):
        if problem := first_difference(found, tensors[0]):
            raise CheckpointError(f"{folder} is not the model in {folders[0]}: {problem}")

    def mean(name: str) -> list[tuple[str, torch.Tensor]]:
        total = models[0].read(name).to(torch.float32, copy=True)
        for model in models[1:]:
            total += model.read(name)
        if not torch.isfinite(total).all():
            raise CheckpointError(f"tensor {name} is not finite in one of the inputs; leave that one out")
        return [(name, (total / len(models)).to(tensors[0][name][1]))]

    sizes = {name: torch.Size(shape).numel() * dtype.itemsize for name, (shape, dtype) in tensors[0].items()}
    settings = [folders[0] / SETTINGS_FILE, folders[0] / PROMPTS_FILE]
    files = {file.name: file.read_bytes() for file in settings if file.is_file()}
    files[CARD] = card_of_mean(folders).encode()
    write_model(output, folders, sizes, mean, files, force=force)


@one_line_errors("nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent average", description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", required=True, nargs="+", help="Hugging Face folders of one model")
    parser.add_argument("--output", required=True, help="folder to write")
    parser.add_argument("--force", action="store_true", help="replace an existing output folder")
    args = parser.parse_args(argv)
    average(args.inputs, args.output, force=args.force)
    print(f"mean of {', '.join(args.inputs)} -> {args.output}")
    return 0
