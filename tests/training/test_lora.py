"""Adapters: a start that changes nothing, gradients as written out densely, merged weights, exact resumes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.func import functional_call
from transformers import AutoModelForCausalLM

from mem_agent.checkpoints import checkpoint
from mem_agent.checkpoints.bridge import to_hf
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
        adapter.b.data.normal_(0, 0.05, generator=generator)
    return trainer


def rows_of(trainer: Trainer, layer: int, name: str, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of ``b`` [out, r] or its gradient: what belongs to each of the Hugging Face model's matrices."""
    full = f"decoder.layers.{layer}.{name}.weight"
    # The bridge moves rows alone; it wants as many columns as the model has.
    padded = torch.zeros(len(rows), 256 if "fc2" in name else 64)
    padded[:, :RANK] = rows
    return {hf: tensor[:, :RANK].clone() for hf, tensor in to_hf(trainer.bridge, full, padded)}


def test_a_new_adapter_changes_nothing_bit_for_bit(model):
    trainer, base, rows = adapted(model), Trainer(make_config(model)), make_rows()
    assert trainer.log_probs(rows) == base.log_probs(rows) == trainer.reference_log_probs(rows)
    saved, exported = load_file(model / "model.safetensors"), trainer.export_hf()
    assert set(exported) == set(saved) and all(torch.equal(exported[name], saved[name]) for name in saved)


def test_gradients_are_those_of_the_dense_computation(model):
    """W + alpha / r * B A for each of the four matrices of every layer, by transformers and torch alone."""
    trainer, rows = filled(adapted(model, clip_grad=0.0)), make_rows()
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    weights, own = dict(plain.named_parameters()), {}
    for layer, block in enumerate(trainer.model.decoder.layers):
        for name in LINEAR:
            lora = block.get_submodule(name).lora
            a, parts = lora.a.data.clone().requires_grad_(), rows_of(trainer, layer, name, lora.b.data)
            own[layer, name] = lora, a, parts
            for full, b in parts.items():
                weights[full] = weights[full].detach() + ALPHA / RANK * b.requires_grad_() @ a
    losses, count = [], 0
    for row in rows:
        logits = functional_call(plain, weights, (torch.tensor([row.tokens]),)).logits[0, row.prompt_length - 1 : -1]
        chosen = logits.log_softmax(-1).gather(1, torch.tensor(row.response)[:, None])[:, 0]
        losses.append((chosen * torch.tensor(row.loss_mask)).sum())
        count += sum(row.loss_mask)
    loss = -torch.stack(losses).sum() / count
    loss.backward()
    found = trainer.sft_step(rows, lr=0.0)
    assert found["loss"] == pytest.approx(loss.item(), abs=1e-5)
    for (layer, name), (lora, a, parts) in own.items():
        torch.testing.assert_close(lora.a.main_grad, a.grad, atol=1e-6, rtol=1e-4)
        for full, found in rows_of(trainer, layer, name, lora.b.main_grad).items():
            torch.testing.assert_close(found, parts[full].grad, atol=1e-6, rtol=1e-4)
        assert float(a.grad.abs().max()) > 0


def test_merged_weights_compute_what_adapters_do(model, tmp_path):
    trainer, rows = filled(adapted(model)), make_rows()
    checkpoint.save(tmp_path, 0, trainer, {})
    convert(tmp_path, model, tmp_path / "out")
    merged, exported = load_file(tmp_path / "out" / "model.safetensors"), trainer.export_hf()
    assert set(merged) == set(exported) and all(torch.equal(merged[name], exported[name]) for name in merged)
    plain, own = Trainer(make_config(tmp_path / "out")).log_probs(rows), trainer.log_probs(rows)
    for found, expected in zip(plain, own, strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    assert max(abs(x - y) for x, y in zip(trainer.reference_log_probs(rows)[0], own[0], strict=True)) > 1e-2


def test_a_resumed_run_continues_bit_for_bit_and_trains_adapters_alone(model, tmp_path):
    trainer, rows = adapted(model), make_rows()
    base = {name: p.clone() for name, p in trainer.model.named_parameters() if ".lora." not in name}
    start = trainer.log_probs(rows)
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
