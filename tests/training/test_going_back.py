"""The training loop, with rollouts made up: a run set back to an older checkpoint does again exactly what it did."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mem_agent.checkpoints import folders
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.config import Config
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows
from mem_agent.training import rollout_side, train
from mem_agent.training.journal import Journal, Rollout
from mem_agent.training.progress import Counts
from mem_agent.training.run_log import read_metrics


class MadeUpRollouts:
    """Stands for the engines: what it samples is another every time, so that a replay shows."""

    sampled: list[int] = []
    weights: dict[str, torch.Tensor] = {}
    counts, speed = Counts, {}

    def __init__(self, config: Config) -> None:
        self.journal = Journal(config.save_path, config)

    def wait_until_ready(self) -> None:
        pass

    def sync(self, tensors: dict[str, torch.Tensor], version: int) -> float:
        MadeUpRollouts.weights = tensors
        return 0.0

    def rollout(self, number: int, first_group: int) -> Rollout:
        known = self.journal.read(number)
        if known is not None:
            return known
        self.sampled.append(number)
        fresh = Rollout(train_data(random.SystemRandom().randrange(2**32)), first_group + 1, {"reward": 0.5})
        self.journal.write(number, fresh)
        return fresh

    def close(self) -> None:
        pass


def train_data(seed: int) -> dict[str, list[Any]]:
    rows = make_rows(seed=seed)
    return {
        "tokens": [row.tokens for row in rows],
        "response_lengths": [row.response_length for row in rows],
        "loss_masks": [row.loss_mask for row in rows],
        "rollout_log_probs": [row.log_probs for row in rows],
        "rewards": [row.advantage for row in rows],
        "rollout_ids": [row.rollout_id for row in rows],
        "rollout_mask_sums": [row.rollout_mask_sum for row in rows],
    }


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    monkeypatch.setattr(rollout_side, "RolloutSide", MadeUpRollouts)
    monkeypatch.setattr(MadeUpRollouts, "sampled", [])
    (tmp_path / "run").mkdir()  # as the lock of a run makes it
    model = make_tiny_model(tmp_path / "model")
    return make_config(
        model, save_path=str(tmp_path / "run"), num_rollout=8, save_interval=2, keep_checkpoints=3, kl_coef=0.0,
        rollout_batch_size=2, n_samples_per_prompt=2,
    )


def exact(save_path: str) -> list[dict[str, float]]:
    return [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in read_metrics(save_path)]


def journalled(config: Config) -> list[int]:
    return sorted(int(file.stem.removeprefix("rollout_")) for file in Path(config.save_path, "rollouts").iterdir())


def test_a_run_set_back_behind_a_damaged_checkpoint_replays_to_the_same_weights(config):
    train.train(config)
    metrics, weights, sampled = exact(config.save_path), MadeUpRollouts.weights, list(MadeUpRollouts.sampled)
    assert sampled == list(range(8)) and journalled(config) == [4, 5, 6, 7]

    save_path = Path(config.save_path)
    (save_path / "iter_0000007" / "__0_0.distcp").write_bytes(b"")
    longer = replace(config, num_rollout=9)
    with pytest.raises(CheckpointError, match="to go on from iter_0000005, write 5 into "):
        train.train(longer)
    (save_path / folders.TRACKER).write_text("3")
    train.train(config)
    assert MadeUpRollouts.sampled == sampled, "nothing was sampled again"
    assert exact(config.save_path) == metrics
    assert all(torch.equal(tensor, weights[name]) for name, tensor in MadeUpRollouts.weights.items())
    assert [folders.number_of(folder) for folder in folders.numbered(save_path)] == [3, 5, 7]
    train.train(longer)
    assert MadeUpRollouts.sampled == [*sampled, 8]


@pytest.mark.parametrize(("keep", "kept"), [(1, []), (2, [6, 7]), (0, [])])
def test_the_journal_reaches_back_to_the_oldest_kept_checkpoint(config, keep, kept):
    settings = replace(config, keep_checkpoints=keep)
    train.train(settings)
    assert journalled(settings) == kept
