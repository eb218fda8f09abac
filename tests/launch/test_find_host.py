"""Which framework trains is decided at one place, for scripts and launcher alike."""

import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.launch.find_host import find_host
from mem_agent.tests.helpers.fake_host import make_host

ROOT = Path(__file__).parents[2]
PACK = Path("/nowhere/mem_agent")


def test_nothing_around_is_the_packs_own_host():
    assert find_host("auto", "", PACK) == ("local", None)


@pytest.mark.parametrize("name", ["slime", "vime"])
def test_a_checkout_around_the_pack_a_named_one_and_an_imported_one(name, tmp_path, monkeypatch):
    root = make_host(tmp_path / "checkout", name)
    inside = root / "examples" / "deeper" / "mem_agent"
    inside.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for given in (("auto", "", inside), ("auto", "checkout", PACK), (name, str(root), PACK)):
        assert find_host(*given) == (name, root)
    assert find_host("local", str(root), inside) == ("local", None)
    (root / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(root))
    assert find_host("auto", "", PACK) == (name, root)


def test_an_installed_host_without_its_checkout_is_not_passed_over(tmp_path, monkeypatch):
    (tmp_path / "vime").mkdir()
    (tmp_path / "vime" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="HOST_ROOT"):
        find_host("auto", "", PACK)
    assert find_host("local", "", PACK) == ("local", None)


@pytest.mark.parametrize("host,root,setting", [
    ("verl", "", "HOST="), ("auto", "/etc", "HOST_ROOT="), ("vime", "/etc", "HOST_ROOT="), ("slime", "", "HOST="),
])
def test_what_is_named_must_be_there(host, root, setting):
    with pytest.raises(ValueError, match=setting):
        find_host(host, root, PACK)


def test_a_link_inside_a_checkout_counts_as_inside(tmp_path):
    root = make_host(tmp_path / "my checkout", "slime")
    (root / "examples").mkdir()
    link = root / "examples" / "mem_agent"
    link.symlink_to(ROOT, target_is_directory=True)
    code = f"source '{link}/_common.sh'; find_host; printf '%s %s' \"$HOST\" \"$HOST_ROOT\""
    env = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
    done = subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True, cwd="/")
    assert done.stdout == f"slime {root}", done.stderr
    assert subprocess.run(["bash", "-c", code.replace(str(link), str(ROOT))], env=env, capture_output=True, text=True,
                          cwd="/").stdout == "local "
