"""What is found on machines with and without GPUs and NVLink, and in a running Ray cluster."""

import socket
import subprocess
import sys
import threading

import pytest

from mem_agent import launch
from mem_agent.config import Config, ConfigError
from mem_agent.launch.layout import GIB, MachineGpus
from mem_agent.launch.machine import check_free, find_gpus, has_nvlink, has_sticky_router, machines
from mem_agent.tests.helpers.fake_job_server import FakeJobServer, lead_astray, serving

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
    found = find_gpus(Config(num_gpus=1, gpu_memory_gb=40))
    assert (found.per_node, found.memory) == (1, 40 * GIB)


@pytest.mark.parametrize("memory,gpus", [("[N/A]\n", 1), ("[No Permission]\n[N/A]\n", 2), ("81559\nnan\n", 2)])
def test_memory_that_nvidia_smi_does_not_know_is_for_the_user_to_say(memory, gpus, nvidia_smi):
    """As on machines whose GPU shares the CPU's."""
    nvidia_smi(memory)
    with pytest.raises(ConfigError, match=r"GPU_MEMORY_GB is not set, and nvidia-smi says '.+' in its place; set it"):
        find_gpus(Config())
    assert find_gpus(Config(gpu_memory_gb=40)).per_node == gpus


@pytest.mark.parametrize("topology,code,expected", [(TOPOLOGY, 0, True), ("GPU0\tPHB\tSYS\n", 0, False),
                                                    (TOPOLOGY, 9, False), ("", 0, False)])
def test_a_machine_without_nvlink_is_no_error(topology, code, expected, nvidia_smi):
    nvidia_smi(topology=topology, code=code)
    assert has_nvlink() is expected


def test_an_nvidia_smi_that_hangs_is_passed_over(nvidia_smi, tmp_path, monkeypatch, caplog):
    nvidia_smi()
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr(launch.machine, "_NVIDIA_SMI_ANSWERS_IN_S", 0.1)
    assert find_gpus(Config(num_gpus=2, gpu_memory_gb=40)).per_node == 2
    assert "`nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits` gave no answer" in caplog.text


def test_a_machine_without_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert has_nvlink() is False
    with pytest.raises(ConfigError, match="no GPU was found"):
        find_gpus(Config())


def test_a_failing_driver_is_no_gpu(nvidia_smi):
    nvidia_smi(code=9)
    with pytest.raises(ConfigError, match="no GPU was found"):
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


# --- a Ray cluster, by the answers of its job server --------------------------------------------------------------


def node(gpus, state="ALIVE", name="a"):
    return {"node_id": name, "state": state, "resources_total": {"CPU": 8.0, **({"GPU": float(gpus)} if gpus else {})}}


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("ray")
    lead_astray(monkeypatch)
    with serving(FakeJobServer()) as fake:
        yield fake


def test_only_living_machines_count(server):
    server.nodes += [node(8), node(0), node(8, "DEAD"), node(4)]
    assert machines(server.address) == [MachineGpus(8, 8), MachineGpus(4, 4), MachineGpus(0, 0)]


def test_gpus_of_other_jobs_are_not_free(server):
    server.nodes += [node(8, name="a"), node(8, name="b")]
    server.used["b"] = 3.0
    assert machines(server.address) == [MachineGpus(8, 8), MachineGpus(8, 5)]


@pytest.mark.parametrize(
    "wanted,expected",
    [({}, 8), ({"num_nodes": 2}, 4), ({"num_nodes": 2, "num_gpus": 4}, 4), ({"num_gpus": 2}, 2)],
)
def test_a_joined_cluster_gives_what_each_of_its_machines_has(wanted, expected, server):
    server.nodes += [node(8), node(4), node(0)]
    assert find_gpus(Config(ray_address=server.address, gpu_memory_gb=80, **wanted)).per_node == expected


@pytest.mark.parametrize("wanted", [{"num_nodes": 3}, {"num_nodes": 2, "num_gpus": 8}, {"num_gpus": 16}])
def test_a_joined_cluster_with_too_few_gpus_is_refused(wanted, server):
    server.nodes += [node(8), node(4), node(0)]
    with pytest.raises(ConfigError, match="those of the cluster have 8, 4, 0; lower NUM_NODES or NUM_GPUS"):
        find_gpus(Config(ray_address=server.address, gpu_memory_gb=80, **wanted))


def test_a_busy_cluster_is_refused_but_what_is_free_can_be_had(server):
    server.nodes += [node(8, name="a")]
    server.used["a"] = 6.0
    config = Config(ray_address=server.address, gpu_memory_gb=80)
    assert find_gpus(config).per_node == 8
    with pytest.raises(ConfigError, match="8 free GPUs are needed on NUM_NODES=1 machines, free are 2 of 8; wait for"):
        check_free(config, 8)
    check_free(config, 2)


@pytest.mark.parametrize("answer", [b"\x00\x01 not http \r\n\r\n", b'HTTP/1.0 200 OK\r\n\r\n{"status": "ok"}',
                                    b"HTTP/1.0 200 OK\r\n\r\n<html>", b"HTTP/1.0 404 Not Found\r\n\r\n",
                                    b"HTTP/1.0 500 Error\r\n\r\n", b""])
def test_another_service_at_the_address_is_one_line(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(ConfigError, match=r"no Ray job server answers there") as error:
            machines(f"http://127.0.0.1:{server.getsockname()[1]}")
    assert "\n" not in str(error.value)


def test_usage_that_cannot_be_had_is_no_usage(server):
    server.nodes += [node(8)]
    server.used["a"] = 6.0
    server.usage_fails = True
    assert machines(server.address) == [MachineGpus(8, 8)]


def test_no_job_server_is_one_line(silent_port):
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match=r"no Ray job server answers there .*; it is http://HEAD:8265 by default"):
        machines(f"http://127.0.0.1:{silent_port}")


def test_without_ray_a_cluster_cannot_be_asked(monkeypatch):
    monkeypatch.delitem(sys.modules, "mem_agent.launch.job_server", raising=False)
    monkeypatch.delattr(launch, "job_server", raising=False)
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS=http://head:8265: .* cannot ask there .*; set PYTHON to"):
        machines("http://head:8265")


def test_planning_imports_no_ray():
    code = "import sys, mem_agent.launch.launch; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
