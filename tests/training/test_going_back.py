"""The training loop, with rollouts made up: a run that goes back to an older checkpoint does exactly what it did."""

from __future__ import annotations

import logging
import random
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

    def __init__(self, config: Config, **evaluation: object) -> None:
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


def cut(file: Path) -> None:
    """Its second half is lost, as by a full disk."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def went_back(config) -> list[int]:
    """A run of eight rollouts whose newest two checkpoints are damaged: the numbers it has sampled."""
    train.train(config)
    assert MadeUpRollouts.sampled == list(range(8)) and journalled(config) == [4, 5, 6, 7]
    cut(Path(config.save_path, "iter_0000007", "__0_0.distcp"))
    Path(config.save_path, "iter_0000005", ".metadata").unlink()
    return list(MadeUpRollouts.sampled)


def test_a_run_goes_on_from_the_newest_whole_checkpoint_and_says_what_it_does_again(config, went_back, caplog):
    metrics = exact(config.save_path)
    train.train(config.replace(num_rollout=9))
    said = warnings(caplog)
    assert ["iter_0000007" in said[0], "iter_0000005" in said[1], "the journal has all" in said[-1]] == [True] * 3
    assert MadeUpRollouts.sampled == [*went_back, 8], "nothing was sampled again"
    assert exact(config.save_path)[:8] == metrics
    assert [folders.number_of(folder) for folder in folders.numbered(config.save_path)] == [5, 7, 8]


@pytest.mark.parametrize("named", ["5", "3"])
def test_the_weights_after_going_back_are_those_of_the_unbroken_run(config, went_back, named):
    """By itself from 5, which is damaged; by hand from 3."""
    metrics, weights = exact(config.save_path), MadeUpRollouts.weights
    Path(config.save_path, folders.TRACKER).write_text(named)
    train.train(config)
    assert MadeUpRollouts.sampled == went_back and exact(config.save_path) == metrics
    assert all(torch.equal(tensor, weights[name]) for name, tensor in MadeUpRollouts.weights.items())


def test_a_rollout_whose_record_is_damaged_is_sampled_again_with_all_that_followed(config, went_back, caplog):
    records = Path(config.save_path, "rollouts")
    (records / "rollout_0000006.json").write_bytes(b"{")
    train.train(config.replace(num_rollout=9))
    assert MadeUpRollouts.sampled == [*went_back, 6, 7, 8]
    assert "rollout_0000006.json" in caplog.text and "journal lacks rollout 7" in caplog.text


def test_without_a_whole_checkpoint_the_run_ends_with_one_line_and_nothing_is_touched(config, went_back):
    before = {path for path in Path(config.save_path).rglob("*") if path.is_file()}
    metrics = exact(config.save_path)
    Path(config.save_path, "iter_0000003", "common.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match="iter_0000003"):
        train.train(config.replace(num_rollout=9))
    assert {path for path in Path(config.save_path).rglob("*") if path.is_file()} == before
    assert exact(config.save_path) == metrics


def test_a_run_that_lost_its_tracker_goes_on_from_its_newest_checkpoint(config):
    train.train(config)
    Path(config.save_path, folders.TRACKER).unlink()
    assert not train.train(config), "all rollouts are there"
    train.train(config.replace(num_rollout=9))
    assert MadeUpRollouts.sampled == list(range(9)) and len(exact(config.save_path)) == 9


@pytest.mark.parametrize(("keep", "kept"), [(1, []), (2, [6, 7]), (0, [6, 7])])
def test_the_journal_reaches_back_to_the_oldest_kept_checkpoint(config, keep, kept):
    settings = config.replace(keep_checkpoints=keep)
    train.train(settings)
    assert journalled(settings) == kept
