import importlib
import sys

import pytest

from mem_agent.rehearsal.imports import moved_module


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of a newer version: ``new`` holds what ``old`` held; ``kept`` is where it always was."""
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "new.py").write_text("answer = 42\n")
    (folder / "kept.py").write_text("answer = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]


def test_the_old_name_gives_the_new_module(package):
    moved_module("house.old", "house.new")
    old = importlib.import_module("house.old")
    assert old is importlib.import_module("house.new") and old.__name__ == "house.new"


def test_a_module_that_is_still_there_wins(package):
    moved_module("house.kept", "house.new")
    assert importlib.import_module("house.kept").answer == 1


def test_nothing_is_imported_before_it_is_asked_for(package):
    moved_module("house.old", "house.new")
    assert "house" not in sys.modules
