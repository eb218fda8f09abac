"""What is found on a machine: the framework that trains, GPUs with and without NVLink."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.launch.find_host import find_host
from mem_agent.launch.layout import GIB
from mem_agent.launch.plan import ASSUMED_GIB, find_gpus, has_nvlink
from mem_agent.launch.ray_job import settle_ray_auth
from mem_agent.tests.helpers.fake_host import make_host

ROOT = Path(__file__).parents[2]
PACK = Path("/nowhere/mem_agent")

# --- who trains: one place decides, for scripts and launcher alike ---------------------------------------------------


def test_a_checkout_around_the_pack_a_named_one_an_imported_one_or_none(tmp_path, monkeypatch):
    assert find_host("auto", "", PACK) == ("local", None)
    root = make_host(tmp_path / "checkout", "vime")
    inside = root / "examples" / "deeper" / "mem_agent"
    monkeypatch.chdir(tmp_path)
    for given in (("auto", "", inside), ("auto", "checkout", PACK), ("vime", str(root), PACK)):
        assert find_host(*given) == ("vime", root)
    assert find_host("local", str(root), inside) == ("local", None)
    monkeypatch.syspath_prepend(str(root))
    assert find_host("auto", "", PACK) == ("vime", root)
    (root / "train.py").unlink()  # installed without its checkout: not passed over
    with pytest.raises(ValueError, match="HOST_ROOT"):
        find_host("auto", "", PACK)


@pytest.mark.parametrize("host,root,setting", [
    ("verl", "", "HOST="), ("auto", "/etc", "HOST_ROOT="), ("slime", "", "HOST="),
])
def test_what_is_named_must_be_there(host, root, setting):
    with pytest.raises(ValueError, match=setting):
        find_host(host, root, PACK)


def test_a_link_inside_a_checkout_counts_as_inside(tmp_path):
    root = make_host(tmp_path / "my checkout", "slime")
    (root / "examples").mkdir()
    link = root / "examples" / "mem_agent"
    link.symlink_to(ROOT, target_is_directory=True)
    for pack, found in ((link, f"slime {root}"), (ROOT, "local ")):
        code = f"source '{pack}/_common.sh'; find_host; printf '%s %s' \"$HOST\" \"$HOST_ROOT\""
        env = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
        done = subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True, cwd="/")
        assert done.stdout == found, done.stderr


# --- GPUs ------------------------------------------------------------------------------------------------------------


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
    ("[No Permission]\n[N/A]\n", 0, 2, ASSUMED_GIB),  # as with a memory of the CPU's
])
def test_gpus_are_those_that_are_declared_or_that_nvidia_smi_lists(answer, declared, gpus, gib, nvidia_smi):
    nvidia_smi(answer)
    per_node, memory = find_gpus(Config(num_gpus=declared, num_nodes=2))
    assert (per_node, round(memory / GIB, 1)) == (gpus, gib)


def test_a_machine_without_nvlink_or_with_a_failing_driver_is_no_error(nvidia_smi):
    for answer, code, nvlink in (("GPU1\tNV18\t X \n", 0, True), ("GPU0\tPHB\tSYS\n", 0, False), ("NV18", 9, False)):
        nvidia_smi(answer, code)
        assert has_nvlink() is nvlink
    with pytest.raises(ConfigError, match="NUM_GPUS"):
        find_gpus(Config())


@pytest.mark.parametrize(("token", "settled"), [(True, "token"), (False, "disabled")])
def test_clients_of_ray_send_a_token_where_a_head_asks_for_one(tmp_path, monkeypatch, token, settled):
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    settle_ray_auth()
    assert os.environ["RAY_AUTH_MODE"] == settled
