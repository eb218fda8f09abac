"""TRAIN_DTYPE=bfloat16: how near it stays to float32, and that a resumed run goes on bit for bit."""

import pytest
import torch

from mem_agent.checkpoints.checkpoint import load, save
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.training.trainer import Trainer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("model"), vocab=513, tied=True)


def trainer(model, dtype="bfloat16", **settings):
    return Trainer(make_config(model, train_dtype=dtype, **settings))


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 4}])
def test_losses_and_gradients_are_those_of_float32_within_its_eight_bits(model, settings):
    rows = make_rows(vocab=513)
    exact, rounded = (trainer(model, dtype, **settings) for dtype in ("float32", "bfloat16"))
    for one, other in zip(exact.log_probs(rows), rounded.log_probs(rows), strict=True):
        assert one == pytest.approx(other, abs=0.03)  # measured: at most 0.011
    for one, other in zip(train(exact, rows, 3), train(rounded, rows, 3), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=0.01)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=0.05)
    assert {tensor.dtype for tensor in rounded.export_hf().values()} == {torch.bfloat16}


def test_steps_too_small_for_bfloat16_add_up_in_the_master_weights(model):
    """Weights of about 0.02 have steps of 1e-4 in bfloat16; ten of 2e-5 move nearly half of them."""
    slow, name = trainer(model, lr=2e-5), "model.layers.0.mlp.down_proj.weight"
    before = slow.export_hf()[name].clone()
    train(slow, make_rows(vocab=513), 10)
    assert (slow.export_hf()[name] != before).float().mean() > 0.3


def test_a_resumed_run_goes_on_bit_for_bit_in_the_format_it_began_with(model, tmp_path):
    rows, first, second = make_rows(vocab=513), trainer(model), trainer(model)
    train(first, rows, 2)
    save(tmp_path, 0, first, {"rollout": 0})
    load(tmp_path, second)
    assert train(first, rows, 2) == train(second, rows, 2)
    assert all(torch.equal(tensor, second.export_hf()[name]) for name, tensor in first.export_hf().items())
    with pytest.raises(CheckpointError, match="TRAIN_DTYPE=bfloat16"):
        load(tmp_path, trainer(model, "float32"))
