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

TOPOLOGY = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Put an nvidia-smi with this answer on the PATH."""

    def put(answer, code=0):
        script = tmp_path / "nvidia-smi"
        (tmp_path / "answer").write_text(answer)
        script.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\nexit {code}\n")
        script.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return put


@pytest.mark.parametrize("answer,declared,gpus,gib", [
    ("81559\n81559\n", 0, 2, 79.6), ("81559\n81559\n", 1, 1, 79.6),
    ("[N/A]\n", 0, 1, ASSUMED_GIB), ("[No Permission]\n[N/A]\n", 0, 2, ASSUMED_GIB),  # as with a memory of the CPU's
])
def test_gpus_are_those_that_are_declared_or_that_nvidia_smi_lists(answer, declared, gpus, gib, nvidia_smi):
    nvidia_smi(answer)
    found = find_gpus(Config(num_gpus=declared, num_nodes=2))
    assert (found.nodes, found.per_node, round(found.memory / GIB, 1)) == (2, gpus, gib)


@pytest.mark.parametrize("answer,code,nvlink", [
    (TOPOLOGY, 0, True), ("GPU0\tPHB\tSYS\n", 0, False), (TOPOLOGY, 9, False),
])
def test_a_machine_without_nvlink_or_with_a_failing_driver_is_no_error(answer, code, nvlink, nvidia_smi):
    nvidia_smi(answer, code)
    assert has_nvlink() is nvlink
    if code:
        with pytest.raises(ConfigError, match="NUM_GPUS"):
            find_gpus(Config())


@pytest.mark.parametrize("field,expected", [("assignment_mode", True), ("policy", False)])
def test_an_older_router_is_not_asked_to_stick(field, expected, tmp_path, monkeypatch):
    (tmp_path / "sglang_router").mkdir()
    (tmp_path / "sglang_router" / "__init__.py").touch()
    (tmp_path / "sglang_router" / "launch_router.py").write_text(
        f"import dataclasses\n@dataclasses.dataclass\nclass RouterArgs:\n    {field}: str = ''\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("sglang_router", "sglang_router.launch_router"):
        monkeypatch.setitem(sys.modules, name, None)  # put back behind the test
        del sys.modules[name]
    assert has_sticky_router() is expected


def test_gpus_of_a_cluster_are_those_of_its_living_machines(monkeypatch):
    state = pytest.importorskip("ray.util.state")
    nodes = [SimpleNamespace(resources_total={"CPU": 8.0}), SimpleNamespace(resources_total={"GPU": 8.0})]
    monkeypatch.setattr(state, "list_nodes", lambda address, filters, **_: nodes)
    assert machines("http://head:8265") == [8, 0]
    monkeypatch.setitem(sys.modules, "ray.util.state", None)
    with pytest.raises(ConfigError, match="PYTHON"):
        machines("http://head:8265")


@pytest.mark.parametrize("wanted,expected", [
    ({}, 8), ({"num_nodes": 2}, 4), ({"num_gpus": 2}, 2), ({"num_nodes": 3}, 0), ({"num_nodes": 4}, 0),
])
def test_a_joined_cluster_gives_what_each_of_its_machines_has(wanted, expected, monkeypatch):
    monkeypatch.setattr(plan, "machines", lambda address: [8, 4, 0])
    config = Config(ray_address="http://head:8265", **wanted)
    if expected:
        assert find_gpus(config).per_node == expected
        return
    with pytest.raises(ConfigError, match="NUM_NODES="):
        find_gpus(config)


@pytest.mark.parametrize(("token", "settled"), [(True, "token"), (False, "disabled")])
def test_clients_of_ray_send_a_token_where_a_head_asks_for_one(tmp_path, monkeypatch, token, settled):
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    settle_ray_auth()
    assert os.environ["RAY_AUTH_MODE"] == settled
