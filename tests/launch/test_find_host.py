"""Which framework trains is decided at one place, for scripts and launcher alike."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.launch import find_host as find_host_module
from mem_agent.launch.find_host import NoHost, find_host
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
    for given in (("auto", "", inside), ("auto", str(root), PACK), (name, str(root), PACK)):
        assert find_host(*given) == (name, root)
    assert find_host("local", str(root), inside) == ("local", None)
    (root / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(root))
    assert find_host("auto", "", PACK) == (name, root)


@pytest.mark.parametrize("mode,where", [(0o1777, "checkout"), (0o777, "checkout/alice"), (0o757, "checkout/slime")])
def test_a_checkout_that_anybody_may_have_put_around_the_pack_is_not_run(mode, where, tmp_path):
    root = make_host(tmp_path / "checkout", "slime")
    inside = root / "alice" / "mem_agent"
    inside.mkdir(parents=True)
    assert find_host("auto", "", inside) == ("slime", root)
    (tmp_path / where).chmod(mode)
    with pytest.raises(NoHost, match=r"around the pack, and lies where every user may write; .* set HOST_ROOT to it"):
        find_host("auto", "", inside)
    assert find_host("auto", str(root), inside) == ("slime", root)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("given", [".", "train.py", "slime", "slime/utils/arguments.py"])
def test_a_checkout_of_another_user_is_not_run_unless_the_pack_is_theirs_as_well(given, tmp_path):
    root = make_host(tmp_path / "checkout", "slime")
    inside = root / "mem_agent"
    inside.mkdir()
    os.chown(root / given, 65534, -1)
    with pytest.raises(NoHost, match="around the pack, and belongs to another user"):
        find_host("auto", "", inside)
    os.chown(inside, 65534, -1)
    assert find_host("auto", "", inside) == ("slime", root)


def test_a_folder_that_is_closed_to_this_user_holds_no_checkout(tmp_path, monkeypatch):
    root = make_host(tmp_path / "checkout", "slime")
    inside = root / "mem_agent"
    inside.mkdir()
    monkeypatch.setattr(find_host_module, "imported_root", lambda name: [])
    (root / "slime").chmod(0)
    user = os.geteuid()
    os.seteuid(user or 65534)  # nothing is closed to root
    try:
        assert find_host("auto", "", inside) == ("local", None)
        with pytest.raises(NoHost, match=r"no checkout of slime or vime with its train\.py is there"):
            find_host("auto", str(root), PACK)
    finally:
        os.seteuid(user)
        (root / "slime").chmod(0o700)


def test_an_installed_host_without_its_checkout_is_not_passed_over(tmp_path, monkeypatch):
    (tmp_path / "vime").mkdir()
    (tmp_path / "vime" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NoHost, match=r"vime is installed in .*, without its train.py; set HOST_ROOT .* or HOST=local"):
        find_host("auto", "", PACK)
    assert find_host("local", "", PACK) == ("local", None)


def test_a_relative_root_is_taken_from_where_one_stands(tmp_path, monkeypatch):
    make_host(tmp_path / "checkout", "vime")
    monkeypatch.chdir(tmp_path)
    assert find_host("auto", "checkout", PACK) == ("vime", tmp_path / "checkout")


@pytest.mark.parametrize("host,root,message", [
    ("verl", "", "HOST='verl': allowed: auto, local, slime, vime"),
    ("auto", "/etc", "HOST_ROOT='/etc': no checkout of slime or vime"),
    ("auto", "~no body/x", "HOST_ROOT='~no body/x': no checkout of slime or vime"),
    ("vime", "/etc", "HOST_ROOT='/etc': no checkout of vime"),
    ("slime", "", "HOST=slime: no checkout of slime around"),
])
def test_what_is_named_must_be_there(host, root, message):
    with pytest.raises(NoHost) as error:
        find_host(host, root, PACK)
    assert message in str(error.value)


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


def test_what_a_wrapper_of_python_prints_is_not_taken_for_the_host(tmp_path):
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho hello from a module\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    code = f"source '{ROOT}/_common.sh'; find_host; printf '%s.' \"$HOST\" \"$HOST_ROOT\""
    done = subprocess.run(["bash", "-c", code], env={"PATH": "/usr/bin:/bin", "PYTHON": str(wrapper)},
                          capture_output=True, text=True, cwd="/")
    assert done.stdout == "local..", done.stderr


def test_recipes_keep_quoted_blanks_and_equal_signs(tmp_path):
    recipe = tmp_path / "own.env"
    recipe.write_text('# comment\nNAME=plain\nHOST_ARGS="--flag \'q r\'"\nEXP_NAME=x=y=\nTASK_ARGS=$NAME/$EXP_NAME\n'
                      'REWARD_ARGS=a=1 s="b c"\n[NAME=pl*] SEED=7\nSEED=8')
    names = ("NAME", "HOST_ARGS", "EXP_NAME", "TASK_ARGS", "REWARD_ARGS", "SEED")
    values = " ".join(f'"${name}"' for name in names)
    code = f"source '{ROOT}/_common.sh'; load_recipe '{recipe}'; printf '%s|' {values}"
    done = subprocess.run(["bash", "-c", code], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, cwd="/")
    assert done.stdout == "plain|--flag 'q r'|x=y=|plain/x=y=|a=1 s=\"b c\"|7|", done.stderr


@pytest.mark.parametrize("own", [True, False], ids=["the user's", "the script's"])
def test_scripts_that_a_script_starts_take_no_other_recipe(own, tmp_path):
    """As run-train.sh starts run-eval.sh: neither its own values nor cpu.env's, which is the default there."""
    recipe = tmp_path / "own.env"
    recipe.write_text("MEM_CHUNK_TOKENS=77\nBASE_URL=http://h")
    script = tmp_path / "script.sh"
    script.write_text(
        f"source '{ROOT}/_common.sh'\nhas_gpu() {{ false; }}\nRECIPE=\"${{RECIPE:-$1}}\"\ndefault_recipe\n"
        "printf '%s|%s|' \"$MEM_CHUNK_TOKENS\" \"${MEM_MAX_QUESTION:-}${BASE_URL:-}\"\n"
        f"[ -z \"$1\" ] || env -u BASE_URL bash '{script}' ''\n"
        f"'{sys.executable}' -c 'from mem_agent.config import Config; print(Config.from_env().mem_chunk_tokens)'\n"
    )
    env = os.environ | ({"RECIPE": str(recipe)} if own else {})
    done = subprocess.run(["bash", str(script), str(recipe)], env=env, capture_output=True, text=True)
    assert done.stdout == "77|http://h|77||77\n77\n", done.stderr
