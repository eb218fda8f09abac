"""Average the weights of several Hugging Face folders of one model, on the CPU.

::

    mem-agent average --inputs A B C --output OUT [--force]

The mean is taken in float32 and cast back to the number format of the inputs; configuration and tokenizer are the
first input's. The inputs must agree in their ``config.json`` and in names, shapes and number formats of their tensors;
settings of an agent come along where all have the same. Tensors are read one at a time and written shard by shard, so
memory stays near one shard, however many inputs there are. The output appears only when it is complete.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..config import SETTINGS_FILE
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .folders import CheckpointError, check_free, complete_folder
from .hf_folder import HfTensors, copy_model_files, write_shards
from .hf_model import model_config, shared_settings, write_files
from .model_card import card_of_mean, write_card

_PROVENANCE = ("transformers_version", "_name_or_path")
"""Which program or path made a config, not what the model is."""


def average(inputs: Sequence[str | Path], output: str | Path, *, force: bool = False) -> None:
    """Write the Hugging Face folder ``output``. Raises CheckpointError where the inputs are not of one model."""
    folders, output = [Path(folder).resolve() for folder in inputs], Path(output).absolute()
    if len(set(folders)) < max(2, len(folders)):
        raise CheckpointError(f"to average, name at least 2 different folders, not {' '.join(map(str, inputs))}")
    check_free(output, force, folders)
    models = [HfTensors(folder) for folder in folders]
    for folder, model in zip(folders[1:], models[1:], strict=True):
        _check_equal(f"{folders[0]} and {folder} differ in config.json:", _config(folders[0]), _config(folder))
        _check_equal(f"{folders[0]} and {folder} differ in shapes:", models[0].shapes, model.shapes)
        _check_equal(f"{folders[0]} and {folder} differ in number formats:", models[0].codes, model.codes)

    def mean(name: str) -> list[tuple[str, torch.Tensor]]:
        total = models[0].read(name).float()
        for model in models[1:]:
            total += model.read(name)
        if not torch.isfinite(total).all():
            raise CheckpointError(f"tensor {name} is not finite in one of the inputs; leave that one out")
        return [(name, (total / len(models)).to(models[0].dtype(name)))]

    shapes = models[0].shapes
    sizes = {name: torch.Size(shape).numel() * models[0].dtype(name).itemsize for name, shape in shapes.items()}
    settings, card = shared_settings(folders), card_of_mean(folders)
    if settings is None:
        print(f"warning: {output} gets no {SETTINGS_FILE}: those of the inputs differ", file=sys.stderr)
    with complete_folder(output) as draft:
        copy_model_files(folders[0], draft)
        write_shards(draft, sizes, mean)
        write_files(settings or {}, draft)
        write_card(draft, card)


def _config(folder: Path) -> dict[str, Any]:
    return {key: value for key, value in model_config(folder).items() if key not in _PROVENANCE}


def _check_equal(of: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for key in (*one, *other):
        if one.get(key) != other.get(key):
            raise CheckpointError(f"{of} {key} {one.get(key)} in the first and {other.get(key)} in the second")


@one_line_errors("nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    description = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="mem-agent average", description=description)
    parser.add_argument("--inputs", required=True, nargs="+", help="Hugging Face folders of one model")
    parser.add_argument("--output", required=True, help="folder to write")
    parser.add_argument("--force", action="store_true", help="replace an existing output folder")
    args = parser.parse_args(argv)
    average(args.inputs, args.output, force=args.force)
    print(f"mean of {', '.join(args.inputs)} -> {args.output}")
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
