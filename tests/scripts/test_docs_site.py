"""The documents build as a site, and no link in them is dead."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("material", reason="mkdocs-material is among the tests' requirements")


def load(root=ROOT):
    spec = importlib.util.spec_from_file_location("build_site", root / "docs" / "build_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_builds_with_every_page_and_no_dead_link(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "docs" / "build_site.py", tmp_path / "site"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "docs" / "images" / "loop.svg").is_file()
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / "site" / page.relative_to(ROOT)).with_suffix(".html").is_file() or page.stem == "README"


@pytest.mark.parametrize("link", ["docs/nowhere.md", "docs/design.md#no-such-heading", "config.py"])
def test_a_dead_link_ends_it(tmp_path, link):
    copy = tmp_path / "pack"
    module = load()
    module.stage(copy)
    for name in ("build_site.py", "mkdocs.yml"):
        shutil.copy(ROOT / "docs" / name, copy / "docs" / name)
    (copy / "README.md").write_text((copy / "README.md").read_text() + f"\n[gone]({link})\n")
    assert load(copy).build(tmp_path / "site") != 0


def test_every_page_is_in_the_menu():
    menu = (ROOT / "docs" / "mkdocs.yml").read_text()
    pages = [p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "upstream"]
    assert not [page for page in pages if page not in menu]
