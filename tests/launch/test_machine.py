"""What is found on a machine: the framework that trains, GPUs with and without NVLink."""

import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.launch.find_host import find_host
from mem_agent.launch.layout import GIB
from mem_agent.launch.plan import ASSUMED_GIB, find_gpus, has_nvlink
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


def put_nvidia_smi(folder, answer, code=0):
    script = folder / "nvidia-smi"
    (folder / "answer").write_text(answer)
    script.write_text(f"#!/bin/sh\ncat {folder}/answer\nexit {code}\n")
    script.chmod(0o755)


@pytest.mark.parametrize("answer,code,declared,found", [
    ("81559\n81559\n", 0, 0, (2, 79.6)), ("81559\n81559\n", 0, 1, (1, 79.6)),
    ("[No Permission]\n[N/A]\n", 0, 0, (2, ASSUMED_GIB)),  # as with a memory of the CPU's
    ("81559\n", 9, 0, None),
])
def test_gpus_are_those_declared_or_that_nvidia_smi_lists(tmp_path, monkeypatch, answer, code, declared, found):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    put_nvidia_smi(tmp_path, answer, code)
    if found is None:
        with pytest.raises(ConfigError, match="NUM_GPUS"):
            find_gpus(Config())
    else:
        per_node, memory = find_gpus(Config(num_gpus=declared, num_nodes=2))
        assert (per_node, round(memory / GIB, 1)) == found
    for answer, nvlink in (("GPU1\tNV18\t X \n", True), ("GPU0\tPHB\tSYS\n", False)):
        put_nvidia_smi(tmp_path, answer)
        assert has_nvlink() is nvlink
