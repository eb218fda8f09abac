"""Hugging Face and megatron-core compute the same function."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from mbridge.core.parallel_states import ParallelStates
from megatron.core.packed_seq_params import PackedSeqParams
from transformers import AutoModelForCausalLM

from mem_agent.checkpoints import megatron_cpu
from mem_agent.checkpoints.bridge import build_bridge, build_model, expected_tensors
from mem_agent.checkpoints.checkpoint import stored_name
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.training import ranks

torch.set_num_threads(1)

VOCAB = 515
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192, "rope_theta": 500000.0}
MODELS: list[tuple[Any, bool, dict[str, Any]]] = [
    ("qwen3", False, {}), ("qwen2", True, {}), ("llama", True, {}), ("llama", False, {"rope_parameters": LLAMA3_ROPE}),
]


def edit_config(folder: Path, **changes: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@torch.no_grad()
def packed_logits(model, sequences: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    lengths, device = [len(s) for s in sequences], megatron_cpu.device()
    bounds = torch.tensor([0, *lengths], device=device).cumsum(0).int()
    packing = PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds,
        max_seqlen_q=max(lengths), max_seqlen_kv=max(lengths),
    )
    positions = torch.cat([torch.arange(n) for n in lengths]).to(device)
    tokens = torch.cat(sequences).to(device)
    return model(tokens[None], positions[None], None, packed_seq_params=packing)[0].cpu().split(lengths)


@pytest.mark.parametrize("architecture,tied,changes", MODELS, ids=str)
def test_logits_are_those_of_transformers(tmp_path, architecture, tied, changes):
    """Of a model whose norms and biases are not at their neutral initial values."""
    folder = make_tiny_model(tmp_path, vocab=VOCAB, architecture=architecture, tied=tied, heads=4, kv_heads=2)
    reference = AutoModelForCausalLM.from_pretrained(edit_config(folder, **changes), dtype=torch.float32).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in reference.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    reference.save_pretrained(folder)
    megatron_cpu.prepare()
    ranks.join(tp=1)
    bridge = build_bridge(folder, ParallelStates.get_parallel_state())
    model = build_model(bridge).eval()
    tokens = torch.randint(0, VOCAB, (2, 300), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        bridge.load_weights([model], str(folder))
        expected = reference(tokens).logits
    first, second = packed_logits(model, [tokens[0], tokens[1, :7]])
    assert expected.std() > 0.1
    assert (first - expected[0]).abs().max() < 1e-4 and (second - expected[1, :7]).abs().max() < 1e-4
    own = {stored_name(name): tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert expected_tensors(bridge) == own


@pytest.mark.parametrize(("change", "message"), [
    ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "gpt2"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}}, "yarn"),
    ({"rope_parameters": LLAMA3_ROPE | {"low_freq_factor": 2.0}}, "low_freq_factor=2.0"),
    ({"use_sliding_window": True}, "use_sliding_window=True"),
], ids=str)
def test_what_cannot_be_trained_exactly_is_refused_in_one_line(tmp_path, change, message):
    folder = edit_config(make_tiny_model(tmp_path / "model"), **change)
    with pytest.raises(CheckpointError, match=message) as error:
        build_bridge(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
