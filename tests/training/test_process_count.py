"""How many processes train: the rule, what it reads of model and machine, and that a run keeps what it began with."""

import json
import math
from pathlib import Path

import pytest

from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.checkpoints.hf_model import parameter_count
from mem_agent.config import Config, write_settings
from mem_agent.training import process_count
from mem_agent.training.process_count import train_processes, with_train_procs

POCKET = Path(__file__).parents[2] / "pocket" / "start"
GIB = 2**30
POCKET_SIZE, SMOL = 2_500_000, 135_000_000


@pytest.mark.parametrize("parameters,cores,gpus,tp,memory,expected", [
    (POCKET_SIZE, 2, 0, 1, 24 * GIB, 1),
    (POCKET_SIZE, 64, 0, 1, 24 * GIB, 1),
    (SMOL, 1, 0, 1, 24 * GIB, 1),
    (SMOL, 2, 0, 1, 24 * GIB, 2),
    (SMOL, 16, 0, 1, 24 * GIB, 2),  # more were not measured
    (SMOL, 2, 0, 2, 24 * GIB, 2),  # one copy, halved
    (SMOL, 4, 0, 2, 24 * GIB, 4),
    (SMOL, 2, 0, 1, 8 * GIB, 1),  # two copies of 3 GiB would not leave half of it
    (7_000_000_000, 64, 0, 1, 512 * GIB, 1),
    (SMOL, 16, 4, 1, 512 * GIB, 1),
    (SMOL, 16, 4, 2, 512 * GIB, 2),
])
def test_how_many_processes(parameters, cores, gpus, tp, memory, expected):
    assert train_processes(parameters, cores, gpus, tp, memory) == expected


def test_parameters_are_counted_from_the_config():
    stored = sum(math.prod(shape) for shape in HfTensors(POCKET).shapes.values())
    assert parameter_count(json.loads((POCKET / "config.json").read_text())) == pytest.approx(stored, rel=0.005)
    smollm2 = {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
               "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True}
    assert parameter_count(smollm2) == pytest.approx(134_515_008, rel=0.001)  # HuggingFaceTB/SmolLM2-135M's tensors
    assert parameter_count({}) == 0


@pytest.fixture
def larger(tmp_path, monkeypatch):
    """A model that two processes train, on a machine of two cores."""
    monkeypatch.setattr(process_count, "physical_cores", lambda: 2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(process_count, "WORTH_A_PROCESS", 1)
    return Config(save_path=str(tmp_path / "run"), hf_ckpt=str(POCKET))


def test_it_is_found_only_where_it_is_not_given(larger):
    assert with_train_procs(larger, POCKET).train_procs == 2
    given = Config(save_path=larger.save_path, train_procs=1)
    assert with_train_procs(given, POCKET) is given
    one = Config(save_path=larger.save_path, rollout_batch_size=1, n_samples_per_prompt=1)
    assert with_train_procs(one, POCKET).train_procs == 1  # one trajectory a step has no two shares


def test_a_run_keeps_what_it_began_with_on_another_machine(larger, monkeypatch):
    write_settings(with_train_procs(larger, POCKET))
    monkeypatch.setattr(process_count, "physical_cores", lambda: 1)
    assert with_train_procs(larger, POCKET).train_procs == 2
    other = Config(save_path=larger.save_path, tp=4)
    assert with_train_procs(other, POCKET).train_procs == 4  # halves of a model are no quarters
