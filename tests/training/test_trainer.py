"""The trainer against plain transformers and torch, bfloat16 against float32, and one process against two."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from mem_agent.checkpoints import checkpoint
from mem_agent.checkpoints.folders import TRACKER, CheckpointError
from mem_agent.system.cli import process_environment
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.tests.training.test_loss import golden
from mem_agent.training.ranks import MEETING
from mem_agent.training.rows import TrainRow
from mem_agent.training.trainer import Trainer


def plain_log_probs(model: torch.nn.Module, row: TrainRow, temperature: float) -> torch.Tensor:
    logits = model(torch.tensor([row.tokens])).logits[0, row.prompt_length - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(row.response)[:, None])[:, 0]


def plain_step(model, optimizer, rows, old, config) -> tuple[float, float]:
    """One GRPO step of transformers and torch; the old policy is the reference."""
    new, old = [plain_log_probs(model, row, config.temperature) for row in rows], list(map(torch.tensor, old))
    loss = golden(rows, new, old, old, config)
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_grad)
    optimizer.step()
    return loss.item(), norm.item()


def test_log_probs_are_those_of_the_sampling_distribution(model):
    trainer = Trainer(make_config(model, max_tokens_per_gpu=50))
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows = [*make_rows(), TrainRow([5, 6, 7], 0, [], [], 0.0, 99, 0.0)]
    found = trainer.log_probs(rows)
    with torch.no_grad():
        for row, log_probs in zip(rows, found, strict=True):
            expected = plain_log_probs(plain, row, 0.7) if row.response_length else torch.empty(0)
            torch.testing.assert_close(torch.tensor(log_probs), expected, atol=1e-5, rtol=0)
    assert trainer.reference_log_probs(rows) == found


@pytest.mark.parametrize("max_tokens", [16, 4096])
def test_steps_equal_plain_transformers_with_torch_adamw(model, max_tokens):
    config = make_config(model, max_tokens_per_gpu=max_tokens, weight_decay=0.1, lr_warmup_steps=2)
    trainer, rows = Trainer(config), make_rows()
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    matrices = [p for p in plain.parameters() if p.dim() > 1]
    vectors = [p for p in plain.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, config.adam_beta2))
    old = trainer.log_probs(rows)
    for step in range(5):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / 2)
        loss, norm = plain_step(plain, optimizer, rows, old, config)
        metrics = trainer.train_step(rows, old, old)
        assert metrics["loss"] == pytest.approx(loss, abs=1e-5)
        assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
        assert metrics["lr"] == optimizer.param_groups[0]["lr"]
    assert metrics["clip_fraction"] > 0 and metrics["kl"] > 0 and metrics["entropy"] > 0
    weights = plain.state_dict()
    for name, tensor in trainer.export_hf().items():
        # Not every element: where a gradient is almost zero, Adam's first step follows the sign of its noise.
        assert (tensor - weights[name]).abs().mean() < 1e-6, name


# --- TRAIN_DTYPE=bfloat16 --------------------------------------------------------------------------------------------


def test_losses_and_gradients_are_those_of_float32_within_its_eight_bits(model):
    rows = make_rows()
    exact, rounded = (Trainer(make_config(model, train_dtype=dtype)) for dtype in ("float32", "bfloat16"))
    for one, other in zip(exact.log_probs(rows), rounded.log_probs(rows), strict=True):
        assert one == pytest.approx(other, abs=0.03)
    for one, other in zip(train(exact, rows, 3), train(rounded, rows, 3), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=0.01)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=0.05)
    assert {tensor.dtype for tensor in rounded.export_hf().values()} == {torch.bfloat16}


def test_small_steps_add_up_in_master_weights_and_a_resumed_run_has_them_bit_for_bit(model, tmp_path):
    """Weights of about 0.02 have steps of 1e-4 in bfloat16; ten of 2e-5 move nearly half of them."""
    config, rows, name = make_config(model, train_dtype="bfloat16", lr=2e-5), make_rows(), "mlp.down_proj.weight"
    trainer = Trainer(config)
    before = {key: tensor.clone() for key, tensor in trainer.export_hf().items() if name in key}
    train(trainer, rows, 9)
    checkpoint.save(tmp_path, 0, trainer, {})
    continued, weights = train(trainer, rows, 1), trainer.export_hf()
    assert all((weights[key] != tensor).float().mean() > 0.3 for key, tensor in before.items())
    resumed = Trainer(config)
    checkpoint.load(tmp_path, resumed)
    assert train(resumed, rows, 1) == continued
    assert all(torch.equal(tensor, weights[key]) for key, tensor in resumed.export_hf().items())
    with pytest.raises(CheckpointError, match="TRAIN_DTYPE=bfloat16"):
        checkpoint.load(tmp_path, Trainer(config.replace(train_dtype="float32")))


# --- ranks -----------------------------------------------------------------------------------------------------------

# Two processes add the same float32 numbers in another order. Before any update that shows in the last bits: 5e-7 of a
# value in the instruction sets tried (SSE4, AVX2, AVX-512).
ROUNDING = 1e-5
# Adam divides a gradient by its own size. Where it is almost zero, rounding decides a weight's first steps: one weight
# of 8192 may end up apart by up to the learning rate, 1e-3, and with it whatever it computes. Found were 2e-4 in a
# weight, 2e-4 in a log-prob and 3e-5 of a metric; an error in the gradient moves all weights, by some 1e-3.
AFTER_UPDATES = 1e-3


def assert_same_steps(found: list[dict[str, float]], expected: list[dict[str, float]], *tolerances: float) -> None:
    for one, other, tolerance in zip(found, expected, tolerances, strict=True):
        split = {"micro_batches": other["micro_batches"]}
        assert one | split == pytest.approx(other, rel=tolerance, abs=1e-6)
        assert all(one[name] == other[name] for name in ("tokens", "lr", "clip_fraction"))


@pytest.mark.servers
@pytest.mark.parametrize("tp", [1, 2])
def test_two_processes_do_what_one_does(model, tmp_path, tp):
    rows = make_rows(vocab=513)
    other = Trainer(make_config(model))
    train(other, rows, 2)
    whole = checkpoint.save(tmp_path / "other", 0, other, {"rollout": 0})
    shutil.copytree(whole, tmp_path / "other" / "iter_0000001")
    (tmp_path / "other" / "iter_0000001" / "common.pt").write_bytes(b"")
    (tmp_path / "other" / TRACKER).write_text("1")
    program = Path(__file__).parents[1] / "helpers" / "trainer_steps.py"
    command = [sys.executable, str(program), str(model), str(tmp_path), str(tp), str(tmp_path / "other")]
    env = os.environ | process_environment(processes=2) | {MEETING: str(tmp_path / "store"), "WORLD_SIZE": "2"}
    started = [subprocess.Popen(command, env=env | {"RANK": rank}) for rank in "01"]
    assert [process.wait(HANGS_AFTER_S) for process in started] == [0, 0]
    result = json.loads((tmp_path / "result.json").read_text())

    assert set(result["addresses"]) <= {"127.0.0.1", "::1"}
    trainer = Trainer(make_config(model))
    assert_same_steps(result["steps"], train(trainer, rows, 3), ROUNDING, AFTER_UPDATES, AFTER_UPDATES)
    for found, expected in zip(result["log_probs"], trainer.log_probs(rows), strict=True):
        assert found == pytest.approx(expected, abs=AFTER_UPDATES)
    exported = load_file(tmp_path / "exported.safetensors")
    for name, tensor in trainer.export_hf().items():
        assert (exported[name] - tensor).abs().mean() < ROUNDING, name

    assert_same_steps(result["taken_over"], train(other, rows, 1), ROUNDING)
    resumed = Trainer(make_config(model))
    assert checkpoint.load(tmp_path, resumed) == {"rollout": 2}
    assert all(torch.equal(exported[name], tensor) for name, tensor in resumed.export_hf().items())
    assert_same_steps(result["resumed"], train(resumed, rows, 1), ROUNDING)
    assert resumed.sft_step(rows[:1], lr=0.0)["loss"] == pytest.approx(result["alone"]["loss"], rel=AFTER_UPDATES)
