"""A checkpoint that does not say where its run was ends in one line, before anything is trained."""

import pytest

from mem_agent.checkpoints import checkpoint
from mem_agent.checkpoints.damage import DamagedCheckpoint
from mem_agent.config import Config
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
    state = {"rollout": 7, "next_group": 4, "fingerprint": fingerprint(config), "start": start_of(config)}
    return {name: value for name, value in (state | changed).items() if value is not None}


def test_a_run_goes_on_behind_its_checkpoint(tmp_path, monkeypatch):
    """One from before there was a choice of losses as well."""
    assert gone_on_from(state_of(tmp_path), tmp_path, monkeypatch) == (8, 4)


PAIRS: tuple = ()
for _ in range(20):
    PAIRS = PAIRS, PAIRS


@pytest.mark.parametrize("name", ["rollout", "next_group", "fingerprint", "start", "loss"])
@pytest.mark.parametrize("value", [None, -1, True, PAIRS])
def test_what_a_checkpoint_says_of_its_run_is_looked_at(tmp_path, monkeypatch, name, value):
    if name == "loss" and value is None:
        return
    with pytest.raises(DamagedCheckpoint) as refused:
        gone_on_from(state_of(tmp_path, **{name: value}), tmp_path, monkeypatch)
    damage = f"the checkpoint is damaged: common.pt: host_state says no {name}; start anew in another SAVE_PATH"
    assert str(refused.value) == f"{tmp_path / 'iter_0000007'}: {damage}"


@pytest.mark.parametrize("name,value,said", [
    ("rollout", 8, "host_state says no rollout"), ("rollout", 2**52, "host_state says no rollout"),
    ("rollout", 6, "host_state is of iter_0000006"), ("next_group", 2**53, "host_state says no next_group"),
])
def test_a_checkpoint_is_of_a_rollout_that_its_run_has_done(tmp_path, monkeypatch, name, value, said):
    with pytest.raises(DamagedCheckpoint, match=f"/iter_0000007: .*: {said}; start anew in another SAVE_PATH$"):
        gone_on_from(state_of(tmp_path, **{name: value}), tmp_path, monkeypatch)


def test_a_state_that_is_none_is_one_line(tmp_path, monkeypatch):
    with pytest.raises(DamagedCheckpoint, match="host_state says no rollout"):
        gone_on_from([7], tmp_path, monkeypatch)
