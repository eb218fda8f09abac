"""Hugging Face and megatron-core compute the same function, and weights survive the way there and back."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from mbridge.core.parallel_states import ParallelStates
from megatron.core.packed_seq_params import PackedSeqParams
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from mem_agent.checkpoints import megatron_cpu
from mem_agent.checkpoints.bridge import UnsupportedModel, build_bridge, build_model, expected_tensors
from mem_agent.checkpoints.torch_dist import stored_name
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.training import ranks

torch.set_num_threads(1)

VOCAB = 515
VARIANTS: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "qwen2": {},
    "llama": {},
    "qwen3-attention-bias": {"attention_bias": True},
    "llama-attention-bias": {"attention_bias": True},
    "llama-linear-rope": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}},
    "llama-llama3-rope": {
        "rope_parameters": {
            "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_theta": 500000.0,
        }
    },
}


def edit_config(folder: Path, **changes: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.fixture(scope="module", params=[(v, tied) for v in VARIANTS for tied in (True, False)], ids=str)
def hf_dir(request, tmp_path_factory) -> Path:
    """A model whose norms and biases are not at their neutral initial values."""
    variant, tied = request.param
    folder = tmp_path_factory.mktemp("model")
    make_tiny_model(folder, vocab=VOCAB, architecture=variant.split("-")[0], tied=tied, heads=4, kv_heads=2)
    edit_config(folder, **VARIANTS[variant])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return folder


def megatron_model(hf_dir: Path, vocab_multiple: int = 1):
    megatron_cpu.prepare()
    ranks.join(tp=1)
    bridge = build_bridge(hf_dir, ParallelStates.get_parallel_state(), vocab_multiple=vocab_multiple)
    model = build_model(bridge)
    with torch.no_grad():
        bridge.load_weights([model], str(hf_dir))
    return bridge, model.eval()


@torch.no_grad()
def logits(model, tokens: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    return model(input_ids=tokens, position_ids=positions, attention_mask=None)


@torch.no_grad()
def packed_logits(model, sequences: list[torch.Tensor]) -> list[torch.Tensor]:
    lengths = [len(s) for s in sequences]
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    packing = PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds,
        max_seqlen_q=max(lengths), max_seqlen_kv=max(lengths),
    )
    positions = torch.cat([torch.arange(n) for n in lengths])
    out = model(torch.cat(sequences)[None], positions[None], None, packed_seq_params=packing)
    return list(out[0].split(lengths))


@pytest.mark.parametrize("vocab_multiple", [1, 128])
def test_logits_equal_those_of_transformers(hf_dir, vocab_multiple):
    bridge, model = megatron_model(hf_dir, vocab_multiple)
    reference = AutoModelForCausalLM.from_pretrained(hf_dir, dtype=torch.float32).eval()
    tokens = torch.randint(0, VOCAB, (2, 300), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = reference(tokens).logits
    assert expected.std() > 0.1
    found = logits(model, tokens)
    assert found.shape[-1] == bridge.padded_vocab_size == (VOCAB if vocab_multiple == 1 else 640)
    assert (found[..., :VOCAB] - expected).abs().max() < 1e-4
    short = packed_logits(model, [tokens[0], tokens[1, :7]])
    assert (short[0][:, :VOCAB] - expected[0]).abs().max() < 1e-4
    assert (short[1][:, :VOCAB] - expected[1, :7]).abs().max() < 1e-4


def test_weights_come_back_bit_equal_under_exactly_their_names(hf_dir):
    bridge, model = megatron_model(hf_dir, vocab_multiple=128)
    with megatron_cpu.device_mode():
        exported = dict(bridge.export_weights([model]))
    saved = load_file(hf_dir / "model.safetensors")
    assert set(exported) == set(saved)
    assert all(torch.equal(exported[name], saved[name]) for name in saved)


def test_expected_tensors_are_those_a_checkpoint_of_the_model_holds(hf_dir):
    bridge, model = megatron_model(hf_dir)
    local = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert expected_tensors(bridge) == {stored_name(name): shape for name, shape in local.items()}


LLAMA3_ROPE = VARIANTS["llama-llama3-rope"]["rope_parameters"]


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 123.0}},
        {"rope_parameters": LLAMA3_ROPE | {"rope_theta": 10000.0}},
        {"rms_norm_eps": 1e-2},
    ],
    ids=["rope_theta", "llama3", "rms_norm_eps"],
)
def test_the_comparison_notices_a_wrong_setting(tmp_path, change):
    folder = make_tiny_model(tmp_path / "model", vocab=VOCAB)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    _, model = megatron_model(edit_config(folder, **change))
    tokens = torch.arange(500)[None]
    with torch.no_grad():
        assert (logits(model, tokens) - reference(tokens).logits).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "gpt2"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}}, "yarn"),
        ({"hidden_act": "gelu"}, "hidden_act=gelu"),
        ({"use_sliding_window": True}, "use_sliding_window=True"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_exactly_is_refused_in_one_line(tmp_path, change, message):
    folder = edit_config(make_tiny_model(tmp_path / "model"), **change)
    with pytest.raises(UnsupportedModel, match=message) as error:
        build_bridge(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
