"""What is found on machines with and without GPUs and NVLink, and in a running Ray cluster."""

import os
import sys
from types import SimpleNamespace

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.launch import plan
from mem_agent.launch.layout import GIB
from mem_agent.launch.plan import ASSUMED_GIB, find_gpus, has_nvlink, has_sticky_router
from mem_agent.launch.ray_job import machines, settle_ray_auth

MEMORY = "81559\n81559\n"
TOPOLOGY = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Put an nvidia-smi with these answers on the PATH."""

    def put(memory=MEMORY, topology=TOPOLOGY, code=0):
        script = tmp_path / "nvidia-smi"
        (tmp_path / "memory").write_text(memory)
        (tmp_path / "topology").write_text(topology)
        answer = f'[ "$1" = topo ] && cat {tmp_path}/topology || cat {tmp_path}/memory'
        script.write_text(f"#!/bin/sh\n{answer}\nexit {code}\n")
        script.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return put


def test_gpus_are_those_that_nvidia_smi_lists(nvidia_smi):
    nvidia_smi()
    found = find_gpus(Config(num_nodes=2))
    assert (found.nodes, found.per_node, round(found.memory / GIB, 1)) == (2, 2, 79.6)


def test_what_is_declared_wins(nvidia_smi):
    nvidia_smi()
    assert find_gpus(Config(num_gpus=1)).per_node == 1


@pytest.mark.parametrize("memory,gpus", [("[N/A]\n", 1), ("[No Permission]\n[N/A]\n", 2)])
def test_memory_that_nvidia_smi_does_not_know_is_assumed_and_said(memory, gpus, nvidia_smi, caplog):
    """As on machines whose GPU shares the CPU's."""
    nvidia_smi(memory)
    found = find_gpus(Config())
    assert (found.per_node, found.memory) == (gpus, ASSUMED_GIB * GIB)
    assert str(ASSUMED_GIB) in caplog.text


@pytest.mark.parametrize("topology,code,expected", [(TOPOLOGY, 0, True), ("GPU0\tPHB\tSYS\n", 0, False),
                                                    (TOPOLOGY, 9, False), ("", 0, False)])
def test_a_machine_without_nvlink_is_no_error(topology, code, expected, nvidia_smi):
    nvidia_smi(topology=topology, code=code)
    assert has_nvlink() is expected


def test_a_machine_without_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert has_nvlink() is False
    with pytest.raises(ConfigError, match="NUM_GPUS"):
        find_gpus(Config())


def test_a_failing_driver_is_no_gpu(nvidia_smi):
    nvidia_smi(code=9)
    with pytest.raises(ConfigError, match="NUM_GPUS"):
        find_gpus(Config())


@pytest.mark.parametrize("fields,expected", [("policy: str = ''\n    assignment_mode: str = ''", True),
                                             ("policy: str = ''", False)])
def test_an_older_router_is_not_asked_to_stick(fields, expected, tmp_path, monkeypatch):
    package = tmp_path / "sglang_router"
    package.mkdir()
    (package / "__init__.py").touch()
    text = f"import dataclasses\n@dataclasses.dataclass\nclass RouterArgs:\n    {fields}\n"
    (package / "launch_router.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("sglang_router", "sglang_router.launch_router"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert has_sticky_router() is expected


def test_gpus_of_a_cluster_are_those_of_its_living_machines(monkeypatch):
    state = pytest.importorskip("ray.util.state")
    nodes = [SimpleNamespace(resources_total={"CPU": 8.0}), SimpleNamespace(resources_total={"GPU": 8.0})]
    monkeypatch.setattr(state, "list_nodes", lambda address, filters, **_: nodes)
    assert machines("http://head:8265") == [8, 0]


@pytest.mark.parametrize(
    "wanted,expected", [({}, 8), ({"num_nodes": 2}, 4), ({"num_gpus": 2}, 2), ({"num_nodes": 3}, 0)]
)
def test_a_joined_cluster_gives_what_each_of_its_machines_has(wanted, expected, monkeypatch):
    monkeypatch.setattr(plan, "machines", lambda address: [8, 4, 0])
    config = Config(ray_address="http://head:8265", **wanted)
    if expected:
        assert find_gpus(config).per_node == expected
        return
    with pytest.raises(ConfigError, match="NUM_NODES=3"):
        find_gpus(config)


def test_without_ray_a_cluster_cannot_be_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.util.state", None)
    with pytest.raises(ConfigError, match="PYTHON"):
        machines("http://head:8265")


@pytest.mark.parametrize(("token", "mode", "settled"), [
    (True, None, "token"), (False, None, "disabled"), (True, "disabled", "disabled"),
])
def test_clients_of_ray_send_a_token_where_a_head_asks_for_one(tmp_path, monkeypatch, token, mode, settled):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    if mode is None:
        monkeypatch.setenv("RAY_AUTH_MODE", "")  # put back behind the test
        monkeypatch.delenv("RAY_AUTH_MODE")
    else:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    settle_ray_auth()
    assert os.environ["RAY_AUTH_MODE"] == settled
