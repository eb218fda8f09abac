"""The house's plan: few rooms, few arrows between them, hosts named in their places only, documents that name what is
there. Which way the arrows may go is in ``pyproject.toml`` (import-linter)."""

import ast
import re

import grimp
import pytest

from mem_agent.tests.helpers.sources import ROOMS, ROOT, SOURCES

MOST_ROOMS, MOST_ARROWS = 30, 155  # benchmarks measure most rooms; a pipeline, asking and the demonstrations use them
HOSTS = re.compile(r"(slime|vime)(\..*)?")


@pytest.fixture(scope="module")
def arrows():
    graph = grimp.build_graph("mem_agent", cache_dir=None)

    def room(module):
        return module.split(".")[1] if "." in module else ""

    pairs = {(room(m), room(d)) for m in graph.modules for d in graph.find_modules_directly_imported_by(m)}
    return {(a, b) for a, b in pairs if a != b and not {"", "tests"} & {a, b}}


def test_rooms_and_arrows_are_few(arrows):
    rooms = {room for arrow in arrows for room in arrow} | {"_bootstrap"}
    assert len(rooms) <= MOST_ROOMS and len(arrows) <= MOST_ARROWS, (len(rooms), len(arrows))


def test_tests_mirror_the_rooms():
    folders = {p.name for p in (ROOT / "tests").iterdir() if (p / "__init__.py").is_file()}
    assert set(ROOMS) | {"scripts", "helpers", "inside_host", "faults", "fuzz"} == folders


def strings(path):
    """String constants that are no docstrings."""
    tree = ast.parse(path.read_text())
    texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    return [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            and id(n) not in texts]


def test_hosts_are_named_in_their_places_only():
    places = {path.relative_to(ROOT).as_posix() for path in SOURCES if any(map(HOSTS.fullmatch, strings(path)))}
    outside = {place for place in places if not place.startswith(("launch/", "rehearsal/"))}
    assert outside == {"config.py", "hooks/host.py"}  # the choices of HOST; the hosts' modules


PAGES = ["README.md", "CONTRIBUTING.md", "agents/README.md"]
PAGES += [f"docs/{name}.md" for name in (
    "layout", "training", "extending", "hosts", "incumbent", "not_run", "design", "evaluation", "sharing", "verifiers",
    "asking", "serving", "watching", "viewer", "trajectories", "report", "promises",
)]


@pytest.mark.parametrize("page", PAGES)
def test_files_that_documents_name_are_there(page):
    named = set(re.findall(r"`((?:[\w.]+/)+[\w.]+\.(?:py|sh|md|yaml|env))(?:::\w+)?`", (ROOT / page).read_text()))
    made_up = {"agents/notebook.py", "tests/test_notebook.py", "data/train.jsonl"}
    places = (ROOT, ROOT / "tests", (ROOT / page).parent)
    absent = {name for name in named - made_up if not any((place / name).exists() for place in places)}
    assert not absent


def test_every_room_has_its_line_in_the_layout():
    table = (ROOT / "docs" / "layout.md").read_text()
    files = [p.name for p in ROOT.glob("*.py") if not p.name.startswith("_")]
    assert not [name for name in (*(f"{room}/" for room in ROOMS), *files) if f"`{name}`" not in table]
