"""A Ray that a stage starts is reached from this machine alone, with a token, and holds none of the user's keys."""

import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from mem_agent.sifter.blocks.block_run import OnRay
from mem_agent.sifter.blocks.own_ray import own_ray, take_keys
from mem_agent.sifter.blocks.ray_blocks import _connected, _start
from mem_agent.system.errors import ConfigError
from mem_agent.tests.helpers.listeners import listeners
from mem_agent.tests.helpers.local_ray import needs_local_ray

SECRET = "a key that nobody else is to have"


class StubRay:
    """What ``own_ray`` asks of Ray; writes down what it was started in."""

    def __init__(self, address: str) -> None:
        self.__version__, self.util, self._private, self.ray_constants = "9.9", self, self, self
        self._raylet = None
        self.ENABLE_RAY_CLUSTER, self._address, self.ended = True, address, 0

    def init(self, **options):
        self.env, self.options, self.clusters = dict(os.environ), options, self.ENABLE_RAY_CLUSTER
        self.token = Path(self.env["RAY_AUTH_TOKEN_PATH"])
        self.written, self.mode = self.token.read_text(), self.token.stat().st_mode & 0o777
        os.environ["RAY_AUTH_MODE"] = "token"

    def get_node_ip_address(self):
        return self._address

    def shutdown(self):
        self.ended += 1


def started(monkeypatch, ray, **env):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with own_ray(ray, ("API_KEY", "OTHER_KEY"), num_cpus=1) as keys:
        assert before.items() <= os.environ.items() and ray.ENABLE_RAY_CLUSTER
        assert not any(name.startswith(("RAY_AUTH", "RAY_ENABLE")) for name in set(os.environ) - set(before))
        held = json.loads(keys.read_text())
        assert keys.stat().st_mode & 0o777 == 0o600 and keys.parent.stat().st_mode & 0o777 == 0o700
    assert not keys.parent.exists() and ray.ended == 1
    return held


def test_what_ray_inherits_has_no_secret_and_a_token_of_its_own(monkeypatch):
    ray = StubRay("127.0.0.1")
    held = started(monkeypatch, ray, API_KEY=SECRET, HF_TOKEN=SECRET, RAY_AUTH_TOKEN=SECRET, NCCL_DEBUG="WARN")
    assert held == {"API_KEY": SECRET}
    assert SECRET not in ray.env.values() and ray.env["NCCL_DEBUG"] == "WARN" and "RAY_AUTH_MODE" not in ray.env
    assert not ray.clusters and ray.env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert len(ray.written) == 64 and ray.mode == 0o600
    assert ray.options == {"address": "local", "include_dashboard": False, "num_cpus": 1,
                           "_temp_dir": str(ray.token.parent)}
    started(monkeypatch, again := StubRay("127.0.0.1"))
    assert again.written != ray.written


def test_a_ray_that_others_reach_is_ended_at_once(monkeypatch):
    ray = StubRay("10.0.0.7")
    with pytest.raises(ConfigError, match=r"Ray 9\.9 listens on 10\.0\.0\.7, where other machines reach it"):
        started(monkeypatch, ray, API_KEY=SECRET)
    assert ray.ended == 1 and os.environ["API_KEY"] == SECRET and not ray.token.exists()


@pytest.mark.parametrize(("named", "taken"), [("short", True), ("a" * 60, False)])
def test_a_name_too_long_for_sockets_is_not_taken(monkeypatch, named, taken):
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short:
        folder = Path(short, named) if not taken else Path(short)
        folder.mkdir(exist_ok=True)
        started(monkeypatch, ray := StubRay("127.0.0.1"), RAY_TMPDIR=str(folder))
        assert ray.token.parent.parent == (folder if taken else Path("/tmp"))


def test_a_worker_has_the_keys_of_its_file(monkeypatch, tmp_path):
    monkeypatch.setenv("API_KEY", "")
    (tmp_path / "keys").write_text(json.dumps({"API_KEY": SECRET}))
    take_keys(tmp_path / "keys")
    assert os.environ["API_KEY"] == SECRET


def test_what_is_wrong_with_it_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")  # this one's folder may have a blank
    ray = StubRay("10.0.0.7")
    with pytest.raises(ConfigError, match=r"^Ray 9\.9 listens on"), ExitStack() as stack:
        _start(ray, OnRay("local"), stack)


@needs_local_ray
@pytest.mark.servers
def test_a_real_one_listens_on_loopback_and_tells_no_secret(monkeypatch, tmp_path):
    """Ray's own workers, agents and servers; a worker gets the one key that was named."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("API_KEY", "HF_TOKEN", "MY_PASSWORD"):
        monkeypatch.setenv(name, SECRET)
    me = psutil.Process()
    others = {child.pid for child in me.children(recursive=True)}
    with _connected(OnRay("local", keys=("API_KEY",))) as (data, keys):
        def seen(row):
            take_keys(keys)
            return {"of": [name for name in ("API_KEY", "HF_TOKEN", "MY_PASSWORD") if os.environ.get(name) == SECRET]}

        assert data.range(1).map(seen).take_all() == [{"of": ["API_KEY"]}]
        started = [child for child in me.children(recursive=True) if child.pid not in others]
        heard = listeners(process.pid for process in [me, *started])
        assert len(started) >= 3 and len(heard) >= 3
        assert {address for address, _ in heard} == {"127.0.0.1"}
        assert not [process.name() for process in started if SECRET in process.environ().values()]
        assert list(keys.parent.glob("session_2*/sockets/*"))
    assert not keys.parent.exists()
    assert not (tmp_path / ".ray").exists()
