"""Adapters: a start that changes nothing, gradients as written out densely, merged weights, exact resumes."""

from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mem_agent.checkpoints import checkpoint
from mem_agent.checkpoints.convert import convert
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.checkpoints.lora import adapters
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.training.trainer import Trainer

RANK, ALPHA = 3, 6  # alpha is twice the rank
LINEAR = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Two groups of query heads and a qkv bias, so that rows of the fused matrix alternate."""
    folder = tmp_path_factory.mktemp("model")
    return make_tiny_model(folder, architecture="qwen2", vocab=513, tied=True, heads=4, kv_heads=2)


def adapted(model: Path, **settings) -> Trainer:
    return Trainer(make_config(model, lora_rank=RANK, **settings))


def filled(trainer: Trainer) -> Trainer:
    """With adapters that say something."""
    generator = torch.Generator().manual_seed(5)
    for adapter in adapters(trainer.model):
        adapter.b.data.copy_(torch.empty(adapter.b.shape).normal_(0, 0.05, generator=generator))
    return trainer


def test_merged_weights_compute_what_adapters_do_and_their_gradient_gives_the_adapters(model, tmp_path):
    """Of W + alpha / r * B A: G is the gradient of W, those of A and B are alpha / r * B'G and alpha / r * GA'."""
    trainer, rows = filled(adapted(model, clip_grad=0.0)), make_rows()
    checkpoint.save(tmp_path, 0, trainer, {})
    convert(tmp_path, model, tmp_path / "out")
    merged, exported = load_file(tmp_path / "out" / "model.safetensors"), trainer.export_hf()
    assert set(merged) == set(exported) and all(torch.equal(merged[name], exported[name]) for name in merged)
    dense = Trainer(make_config(tmp_path / "out", clip_grad=0.0))
    own = trainer.log_probs(rows)
    for found, expected in zip(dense.log_probs(rows), own, strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    assert max(abs(x - y) for x, y in zip(trainer.reference_log_probs(rows)[0], own[0], strict=True)) > 1e-2
    found, expected = (one.sft_step(rows, lr=0.0) for one in (trainer, dense))
    assert found["loss"] == pytest.approx(expected["loss"], abs=1e-5)
    for layer, name in product(range(2), LINEAR):
        lora, plain = (one.model.decoder.layers[layer].get_submodule(name) for one in (trainer, dense))
        lora, gradient = lora.lora, ALPHA / RANK * plain.weight.main_grad
        torch.testing.assert_close(lora.a.main_grad, lora.b.T @ gradient, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(lora.b.main_grad, gradient @ lora.a.T, atol=1e-6, rtol=1e-4)
        assert float(lora.a.main_grad.abs().max()) > 0


def test_a_resumed_run_continues_bit_for_bit_and_trains_adapters_alone(model, tmp_path):
    trainer, rows = adapted(model), make_rows()
    base = {name: p.clone() for name, p in trainer.model.named_parameters() if ".lora." not in name}
    start = trainer.log_probs(rows)  # new adapters change nothing
    train(trainer, rows, 2)
    checkpoint.save(tmp_path, 7, trainer, {"rollout": 7})
    continued, weights = train(trainer, rows, 2), trainer.export_hf()
    assert all(torch.equal(p, base[name]) for name, p in trainer.model.named_parameters() if name in base)
    assert trainer.reference_log_probs(rows) == start != trainer.log_probs(rows)
    resumed = adapted(model, seed=9)
    assert checkpoint.load(tmp_path, resumed) == {"rollout": 7}
    assert train(resumed, rows, 2) == continued
    assert all(torch.equal(tensor, weights[name]) for name, tensor in resumed.export_hf().items())
    with pytest.raises(CheckpointError, match=f"LORA_RANK={RANK}"):
        checkpoint.load(tmp_path, Trainer(make_config(model)))
