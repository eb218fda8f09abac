"""A killed run goes on as if it had not been: the journal, what a checkpoint says, and going back to an older one."""

from __future__ import annotations

import random
import shutil
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch

from mem_agent.checkpoints import checkpoint, folders
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.config import Config, ConfigError, write_settings
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows
from mem_agent.training import train
from mem_agent.training.log import read_metrics
from mem_agent.training.resume import Journal, Rollout, fingerprint, kept_for_life, resume

ROLLOUT = Rollout({"tokens": [[1, 2]], "rewards": [0.1 + 0.2]}, 9, {"reward": 1 / 3})


def test_what_followed_a_rollout_that_is_sampled_again_is_removed(tmp_path, caplog):
    journal = Journal(Config(save_path=str(tmp_path)))
    for number in (2, 3, 4, 3):
        journal.write(number, ROLLOUT)
    assert [journal.read(number) is None for number in (2, 3, 4)] == [False, False, True]
    assert "rollout_0000004.json" in caplog.text
    (journal.folder / "rollout_0000003.json").write_bytes(b'{"fingerprint": "')
    assert journal.read(2) == ROLLOUT and journal.read(3) is None and "rollout_0000003.json" in caplog.text


# --- the fingerprint -------------------------------------------------------------------------------------------------

def test_places_and_patience_leave_a_replay_as_it_is_and_any_other_setting_refuses_it(tmp_path, monkeypatch):
    base, files = Config(train_data=str(tmp_path / "train.jsonl"), save_path=str(tmp_path)), {}
    (tmp_path / "train.jsonl").write_text("{}\n")
    Journal(base).write(0, ROLLOUT)
    monkeypatch.chdir(tmp_path)
    kept = {"num_engines": 2, "save_interval": 3, "eval_temperature": 0.1, "train_data": "train.jsonl"}
    assert Journal(base.replace(**kept, save_path=".")).read(0) == ROLLOUT and Journal(base).read(1) is None
    for name, value in {"lr": 1.0, "seed": 2, "mem_chunk_tokens": 5, "agent_args": "x=1", "train_procs": 2}.items():
        assert Journal(base.replace(**{name: value})).read(0) is None, name
    for name, value in {"mem_prompts": "texts.yaml", "agent": "own.py:Own", "train_data": "train.jsonl"}.items():
        config, file = base.replace(**{name: str(tmp_path / value)}), tmp_path / value.removesuffix(":Own")
        for text in ("as it was", "of another size"):
            file.write_text(text)
            files.setdefault(name, set()).add(fingerprint(config))
    assert [len(prints) for prints in files.values()] == [2, 2, 2]


# --- what a checkpoint says ------------------------------------------------------------------------------------------


def test_a_run_keeps_its_start_and_its_loss(tmp_path, monkeypatch):
    (tmp_path / "iter_0000007").mkdir()
    config = Config(save_path=str(tmp_path), hf_ckpt=str(tmp_path))
    state = {"rollout": 7, "next_group": 4, "fingerprint": fingerprint(config)} | kept_for_life(config)
    monkeypatch.setattr(checkpoint, "load", lambda path, trainer: state)
    assert resume(config, None) == (8, 4)
    for name, value in {"start": "/another/model", "loss": "sft"}.items():
        with pytest.raises(ConfigError, match=value), monkeypatch.context() as patched:
            patched.setitem(state, name, value)
            resume(config, None)


def test_settings_that_changed_are_named_with_both_values(tmp_path, monkeypatch, caplog):
    (tmp_path / "iter_0000007").mkdir()
    before = Config(save_path=str(tmp_path), hf_ckpt=str(tmp_path), lr=1e-5, num_rollout=3)
    write_settings(before)
    state = {"rollout": 7, "next_group": 4, "fingerprint": fingerprint(before)} | kept_for_life(before)
    monkeypatch.setattr(checkpoint, "load", lambda path, trainer: state)
    resume(before.replace(num_rollout=9), None)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    resume(before.replace(lr=3e-5, num_rollout=9), None)
    assert "3e-05" in caplog.text and "1e-05" in caplog.text and "NUM_ROLLOUT" not in caplog.text


# --- the loop, with rollouts made up ---------------------------------------------------------------------------------


class MadeUpRollouts:
    """Stands for the engines: what it samples is another every time, so that a replay shows."""

    sampled: list[int] = []
    weights: dict[str, torch.Tensor] = {}

    def __init__(self, config: Config, **evaluation: object) -> None:
        self.journal = Journal(config)

    def begin(self) -> None:
        pass

    close = begin

    def sync(self, tensors: dict[str, torch.Tensor], version: int) -> float:
        MadeUpRollouts.weights = tensors
        return 0.0

    def rollout(self, number: int, first_group: int) -> Rollout:
        if (known := self.journal.read(number)) is not None:
            return known
        self.sampled.append(number)
        fresh = Rollout(train_data(random.SystemRandom().randrange(2**32)), first_group + 1, {"reward": 0.5})
        self.journal.write(number, fresh)
        return fresh


COLUMNS = ("tokens", "response_lengths", "loss_masks", "rollout_log_probs", "rewards", "rollout_ids",
           "rollout_mask_sums")


def train_data(seed: int) -> dict[str, list[Any]]:
    columns = zip(*map(astuple, make_rows(seed=seed)), strict=True)
    return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}


@pytest.fixture(scope="module")
def unbroken(model, tmp_path_factory) -> tuple[Config, dict[str, torch.Tensor]]:
    """A run of eight rollouts: its settings, and the weights that it came to."""
    folder = tmp_path_factory.mktemp("unbroken")
    config = make_config(
        model, save_path=str(folder), num_rollout=8, save_interval=2,
        keep_checkpoints=3, kl_coef=0.0, rollout_batch_size=2, n_samples_per_prompt=2,
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(train, "Rollouts", MadeUpRollouts)
        train.train(config)
    assert MadeUpRollouts.sampled == list(range(8)) and journalled(config) == [4, 5, 6, 7]
    return config, MadeUpRollouts.weights


@pytest.fixture
def config(unbroken, tmp_path, monkeypatch) -> Config:
    """Of a copy of that run, whose newest two checkpoints are damaged: of one half is lost, of the other .metadata."""
    monkeypatch.setattr(train, "Rollouts", MadeUpRollouts)
    monkeypatch.setattr(MadeUpRollouts, "sampled", [])
    run = tmp_path / "run"
    shutil.copytree(unbroken[0].save_path, run)
    file = run / "iter_0000007" / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    (run / "iter_0000005" / ".metadata").unlink()
    return unbroken[0].replace(save_path=str(run))


def exact(save_path: str) -> list[dict[str, float]]:
    return [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in read_metrics(save_path)]


def journalled(config: Config) -> list[int]:
    return sorted(int(file.stem.removeprefix("rollout_")) for file in Path(config.save_path, "rollouts").iterdir())


@pytest.mark.parametrize("named,until", [("5", 8), ("3", 8), ("7", 9)])
def test_a_run_that_goes_back_comes_to_the_weights_of_the_unbroken_one(config, unbroken, named, until, caplog):
    """By itself from 5 and 7, which are damaged; by hand from 3."""
    metrics = exact(config.save_path)
    Path(config.save_path, folders.TRACKER).write_text(named)
    train.train(config.replace(num_rollout=until))
    assert MadeUpRollouts.sampled == list(range(8, until)) and exact(config.save_path)[:8] == metrics
    same = all(torch.equal(tensor, unbroken[1][name]) for name, tensor in MadeUpRollouts.weights.items())
    assert same == (until == 8) and (named == "3" or f"iter_000000{named}" in caplog.text)
    kept = [folders.number_of(folder) for folder in folders.numbered(config.save_path)]
    assert kept == ([3, 5, 7] if until == 8 else [5, 7, 8])


def test_without_a_whole_checkpoint_the_run_ends_with_one_line_and_nothing_is_touched(config):
    before = {path for path in Path(config.save_path).rglob("*") if path.is_file()}
    Path(config.save_path, "iter_0000003", "common.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match="iter_0000003"):
        train.train(config.replace(num_rollout=9))
    assert {path for path in Path(config.save_path).rglob("*") if path.is_file()} == before
