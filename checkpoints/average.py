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
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError

from ..config import SETTINGS_FILE
from ..system.errors import MemAgentError
from ..system.links import remedy
from ..system.model_json import read_object
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .agent_settings import shared_settings, write_files
from .complete_folder import check_free, complete_folder
from .damage import DamagedCheckpoint
from .hashes import check_hashes
from .hf_folder import TOKENIZER_FILES, HfTensors, copy_model_files, plan_shards, write_shards
from .links import leads_out
from .model_card import card_of_mean, write_card
from .unreplaced import unreplaced

_SHARD_SIZE = 5 * 10**9
# What tells which program or path made a config, not what the model is.
_PROVENANCE = ("transformers_version", "_name_or_path")
_ABSENT = "absent"


class AverageError(MemAgentError):
    """The inputs are not several versions of one model: the message names the first difference."""


def average(
    inputs: Sequence[str | Path], output: str | Path, *, force: bool = False, shard_size: int = _SHARD_SIZE
) -> None:
    """Write the Hugging Face folder ``output``."""
    folders = [Path(folder).resolve() for folder in inputs]
    if len(folders) < 2:
        raise AverageError(f"{len(folders)} folder given to average; at least 2 are needed")
    repeated = [str(folder) for place, folder in enumerate(folders) if folder in folders[:place]]
    if repeated:
        raise AverageError(f"{repeated[0]}: given twice; each folder may be averaged once")
    output = Path(output).absolute()
    check_free(output, force, folders)
    with contextlib.ExitStack() as stack:
        confirm = [stack.enter_context(unreplaced(folder)) for folder in folders]
        for folder in folders:
            _check_whole(folder)
        models = [HfTensors(folder) for folder in folders]
        _check_own(folders, models)
        _check_alike(folders, models)
        settings, card = shared_settings(folders) or {}, card_of_mean(folders)
        with complete_folder(output, force=force, made_of=folders) as temporary:
            copy_model_files(folders[0], temporary)  # before the weights, as a link in it may be refused
            _write_mean(models, temporary, shard_size)
            write_files(settings, temporary)
            write_card(temporary, card)
            for each in confirm:
                each()


def _check_own(folders: Sequence[Path], models: Sequence[HfTensors]) -> None:
    """That no weights of another model get into the mean by a link (``links.py``)."""
    for folder, model in zip(folders, models, strict=True):
        if out := [file for file in model.files if leads_out(file, folder)]:
            raise AverageError(f"{out[0]}: a link out of the model's folder, which is not averaged; {remedy(out[0])}")


def _check_alike(folders: Sequence[Path], models: Sequence[HfTensors]) -> None:
    for folder, model in zip(folders[1:], models[1:], strict=True):
        difference = _file_difference(folders[0], folder) or _tensor_difference(models[0], model)
        if difference:
            raise AverageError(f"{folders[0]} and {folder} cannot be averaged: {difference.replace(chr(10), ' ')}")


def _write_mean(models: Sequence[HfTensors], output: Path, shard_size: int) -> None:
    def mean(name: str) -> list[tuple[str, torch.Tensor]]:
        total = models[0].read(name).float()
        for model in models[1:]:
            total = total + model.read(name)
        if not torch.isfinite(total).all():
            raise AverageError(f"tensor {name} is not finite in one of the inputs; leave that one out")
        return [(name, (total / len(models)).to(models[0].dtype(name)))]

    shapes = models[0].shapes
    sizes = {name: torch.Size(shape).numel() * models[0].dtype(name).itemsize for name, shape in shapes.items()}
    write_shards(output, plan_shards(sizes, shard_size), mean)


def _check_whole(folder: Path) -> None:
    try:
        check_hashes(folder)
    except DamagedCheckpoint as error:
        raise AverageError(f"{error}; copy the folder again, or leave it out") from error


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
        for folder in (one, other):
            if not (folder / name).is_file():
                return f"{name} is {_ABSENT} in {folder}"
        if (one / name).read_bytes() != (other / name).read_bytes():
            return f"{name} differs"
    return None


def _settings(file: Path) -> dict:
    return read_object(file) if file.is_file() else {}


@one_line_errors("nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    description = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="mem-agent average", description=description)
    parser.add_argument("--inputs", required=True, nargs="+", help="Hugging Face folders of one model")
    parser.add_argument("--output", required=True, help="folder to write")
    parser.add_argument("--force", action="store_true", help="replace an existing output folder")
    args = parser.parse_args(argv)
    try:
        average(args.inputs, args.output, force=args.force)
    except SafetensorError as error:
        raise AverageError(f"a weights file is damaged: {error}") from None
    print(f"mean of {', '.join(args.inputs)} -> {args.output}")
    if shared_settings(list(map(Path, args.inputs))) is None:
        print(f"warning: {args.output} has no {SETTINGS_FILE}, as those of the inputs differ", file=sys.stderr)
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
