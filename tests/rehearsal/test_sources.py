"""Megatron-LM as the host's image builds it, out of a repository that is left alone."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from mem_agent.config import ConfigError
from mem_agent.launch.checkout import Checkout
from mem_agent.rehearsal import sources
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

PATCH = """\
--- a/megatron/core/a.py
+++ b/megatron/core/a.py
@@ -1 +1 @@
-old = 1
+new = 1
"""


def git(folder, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True)


@pytest.fixture
def given(tmp_path):
    """A repository of Megatron-LM two commits past the pinned one, and a host that pins it."""
    megatron, host = tmp_path / "megatron lm", tmp_path / "slime"
    (megatron / "megatron" / "core").mkdir(parents=True)
    (megatron / "megatron" / "core" / "a.py").write_text("old = 1\n")
    git(megatron, "init", "--quiet")
    git(megatron, "add", ".")
    git(megatron, "commit", "-qm", "pinned")
    commit = git(megatron, "rev-parse", "HEAD").stdout.strip()
    (megatron / "megatron" / "core" / "a.py").write_text("later = 1\n")
    git(megatron, "commit", "-qam", "later")
    patches = host / "docker" / "patch" / "latest"
    patches.mkdir(parents=True)
    (patches / "megatron.patch").write_text(PATCH)
    (patches / "sglang.patch").write_text("not Megatron's")
    (host / "docker" / "Dockerfile").write_text(f"FROM x\nARG MEGATRON_COMMIT={commit}\n")
    checkout = Checkout("slime", host)
    return SimpleNamespace(megatron=megatron, checkout=checkout, patches=patches, home=tmp_path / "home")


def prepared(given):
    return sources.prepared_megatron(given.checkout, str(given.megatron), given.home)


def test_the_pinned_commit_is_taken_and_patched_once(given, monkeypatch):
    folder = prepared(given)
    assert (folder / "megatron" / "core" / "a.py").read_text() == "new = 1\n"
    assert (given.megatron / "megatron" / "core" / "a.py").read_text() == "later = 1\n"
    monkeypatch.setattr(sources, "_run", None)
    assert prepared(given) == folder


def test_another_patch_makes_another_copy(given):
    first = prepared(given)
    (given.patches / "megatron.patch").write_text(PATCH.replace("new", "newer"))
    assert prepared(given) != first


@pytest.mark.parametrize("spoil,reason", [
    (lambda g: (g.patches / "megatron.patch").unlink(), "no megatron*.patch; use a full checkout of slime"),
    (lambda g: (g.patches / "megatron.patch").write_text(PATCH.replace("old", "other")), "does not apply"),
    (lambda g: (g.checkout.root / "docker" / "Dockerfile").write_text(""), "names no MEGATRON_COMMIT"),
    (lambda g: (g.checkout.root / "docker" / "Dockerfile").unlink(), "HOST_ROOT must be a full checkout"),
    (lambda g: (g.checkout.root / "docker" / "Dockerfile").write_text(f"ARG MEGATRON_COMMIT={'0' * 40}"),
     "has no commit 00000000, which the host pins; set MEGATRON_ROOT to a git clone"),
])
def test_what_is_missing_is_one_line_and_leaves_nothing(given, spoil, reason):
    spoil(given)
    with pytest.raises(ConfigError) as error:
        prepared(given)
    assert reason in str(error.value) and "\n" not in str(error.value)
    assert not list(given.home.glob("*"))


def test_a_tree_without_git_is_taken_as_it_is(given, caplog):
    (given.megatron / "megatron" / "training").mkdir()
    shutil.rmtree(given.megatron / ".git")
    assert prepared(given) == given.megatron
    assert "is no git clone: taken as it is" in caplog.text


def test_a_folder_that_is_no_clone_is_refused_though_a_patched_copy_is_there(given, tmp_path):
    prepared(given)
    with pytest.raises(ConfigError, match=r"MEGATRON_ROOT='.*': is no git clone of Megatron-LM; set MEGATRON_ROOT to"):
        sources.prepared_megatron(given.checkout, str(tmp_path), given.home)


def test_a_copy_that_another_process_made_meanwhile_is_taken(given, monkeypatch):
    place = sources.patched_copy(given.checkout, given.home)
    run = sources._run

    def slow(*command, **options):
        (place / "megatron").mkdir(parents=True, exist_ok=True)
        return run(*command, **options)

    monkeypatch.setattr(sources, "_run", slow)
    assert prepared(given) == place


def test_without_git_it_says_so(given, monkeypatch):
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="there is no git here"):
        prepared(given)


def test_a_host_that_cannot_be_fetched_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setitem(sources.HOST_SOURCES, "slime", (str(tmp_path / "nowhere"), "0" * 40))
    with pytest.raises(ConfigError, match="set HOST_ROOT to a checkout of slime"):
        sources.fetch_host("slime", tmp_path / "home")
    assert not list((tmp_path / "home").glob("*"))


def test_without_git_a_checkout_has_no_known_commit(given, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert sources.commit_of(given.checkout) == ""


def test_git_asks_nobody_and_ends(given, monkeypatch):
    monkeypatch.setattr(sources, "_GIT_S", 0.2)
    with pytest.raises(ConfigError, match=r"no answer \(no end after 0 s\)"):
        sources._run("sleep", str(HANGS_AFTER_S), error="no answer")
    monkeypatch.setattr(sources, "_GIT_S", HANGS_AFTER_S)
    sources._run("sh", "-c", 'test "$GIT_TERMINAL_PROMPT" = 0 && ! read line', error="")
