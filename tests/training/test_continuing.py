"""A run goes on where its checkpoint was, and only as the run that it was."""

import pytest

from mem_agent.checkpoints import checkpoint
from mem_agent.config import Config, ConfigError
from mem_agent.training.continuing import resume, start_of
from mem_agent.training.journal import fingerprint


def gone_on_from(state, tmp_path, monkeypatch):
    (tmp_path / "iter_0000007").mkdir()
    monkeypatch.setattr(checkpoint, "load", lambda path, trainer: state)
    return resume(config_of(tmp_path), None)


def config_of(tmp_path) -> Config:
    return Config(save_path=str(tmp_path), hf_ckpt=str(tmp_path))


def state_of(tmp_path, **changed):
    config = config_of(tmp_path)
    state = {"rollout": 7, "next_group": 4, "fingerprint": fingerprint(config), "start": start_of(config),
             "loss": config.loss}
    return {name: value for name, value in (state | changed).items() if value is not None}


def test_a_run_goes_on_behind_its_checkpoint(tmp_path, monkeypatch):
    assert gone_on_from(state_of(tmp_path), tmp_path, monkeypatch) == (8, 4)


@pytest.mark.parametrize(("name", "value"), [("start", "/another/model"), ("loss", "sft")])
def test_a_run_keeps_its_start_and_its_loss(tmp_path, monkeypatch, name, value):
    with pytest.raises(ConfigError, match=value):
        gone_on_from(state_of(tmp_path, **{name: value}), tmp_path, monkeypatch)
