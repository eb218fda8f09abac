"""Average the weights of several Hugging Face folders of one model, on the CPU.

::

    mem-agent average --inputs A B C --output OUT [--force]

The mean is taken in float32 and cast back to the number format of the inputs; configuration and tokenizer are the
first input's. The inputs must agree in everything but the values: names, shapes and number formats of their tensors,
configuration and tokenizer files; settings of an agent come along where all have the same. Tensors are read one at a
time and written shard by shard, so memory stays near one shard, however many inputs there are. The output appears only
when it is complete.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..config import SETTINGS_FILE
from ..system.errors import MemAgentError
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .agent_settings import shared_settings, write_files
from .folders import check_free, complete_folder
from .hf_folder import SHARD_SIZE, TOKENIZER_FILES, HfTensors, copy_model_files, plan_shards, write_shards
from .hf_model import read_json_object
from .model_card import card_of_mean, write_card

# What tells which program or path made a config, not what the model is.
_PROVENANCE = ("transformers_version", "_name_or_path")
_ABSENT = "absent"


class AverageError(MemAgentError):
    """The inputs are not several versions of one model: the message names the first difference."""


def average(
    inputs: Sequence[str | Path], output: str | Path, *, force: bool = False, shard_size: int = SHARD_SIZE
) -> None:
    """Write the Hugging Face folder ``output``."""
    folders = [Path(folder).resolve() for folder in inputs]
    if len(folders) < 2:
        raise AverageError(f"{len(folders)} folder given to average; at least 2 are needed")
    if repeated := [folder for folder in folders if folders.count(folder) > 1]:
        raise AverageError(f"{repeated[0]}: given twice; each folder may be averaged once")
    output = Path(output).absolute()
    check_free(output, force, folders)
    models = [HfTensors(folder) for folder in folders]
    for folder, model in zip(folders[1:], models[1:], strict=True):
        if difference := _file_difference(folders[0], folder) or _tensor_difference(models[0], model):
            raise AverageError(f"{folders[0]} and {folder} cannot be averaged: {difference}")
    settings, card = shared_settings(folders) or {}, card_of_mean(folders)
    with complete_folder(output, force=force, made_of=folders) as temporary:
        copy_model_files(folders[0], temporary)
        _write_mean(models, temporary, shard_size)
        write_files(settings, temporary)
        write_card(temporary, card)


def _write_mean(models: Sequence[HfTensors], output: Path, shard_size: int) -> None:
    def mean(name: str) -> list[tuple[str, torch.Tensor]]:
        total = models[0].read(name).float()
        for model in models[1:]:
            total += model.read(name)
        if not torch.isfinite(total).all():
            raise AverageError(f"tensor {name} is not finite in one of the inputs; leave that one out")
        return [(name, (total / len(models)).to(models[0].dtype(name)))]

    shapes = models[0].shapes
    sizes = {name: torch.Size(shape).numel() * models[0].dtype(name).itemsize for name, shape in shapes.items()}
    write_shards(output, plan_shards(sizes, shard_size), mean)


def _tensor_difference(one: HfTensors, other: HfTensors) -> str | None:
    for name in sorted(one.shapes.keys() | other.shapes.keys()):
        for what, of_one, of_other in (("shape", one.shapes, other.shapes), ("format", one.codes, other.codes)):
            here, there = of_one.get(name, _ABSENT), of_other.get(name, _ABSENT)
            if here != there:
                return f"tensor {name} has {what} {here} in the first and {there} in the second"
    return None


def _file_difference(one: Path, other: Path) -> str | None:
    for name in ("config.json", "generation_config.json"):
        here, there = _settings(one / name), _settings(other / name)
        for key in sorted((here.keys() | there.keys()).difference(_PROVENANCE)):
            of_one, of_other = here.get(key, _ABSENT), there.get(key, _ABSENT)
            if of_one != of_other:
                return f"{name} has {key}={of_one} in the first and {of_other} in the second"
    for name in sorted({file.name for folder in (one, other) for p in TOKENIZER_FILES for file in folder.glob(p)}):
        contents = [(folder / name).read_bytes() if (folder / name).is_file() else None for folder in (one, other)]
        if contents[0] != contents[1]:
            return f"{name} differs" if None not in contents else f"{name} is in one of them only"
    return None


def _settings(file: Path) -> dict[str, Any]:
    return read_json_object(file) if file.is_file() else {}


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
    if shared_settings(list(map(Path, args.inputs))) is None:
        print(f"warning: {args.output} has no {SETTINGS_FILE}, as those of the inputs differ", file=sys.stderr)
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
