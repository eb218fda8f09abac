"""Every reader of what others wrote bears its seeds, the inputs that once were too much, and seeds with a change."""

import gc
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mem_agent.tests.fuzz.growth import DEEP, DEPTHS, grown, growths_of, measured
from mem_agent.tests.fuzz.mutations import mutated
from mem_agent.tests.fuzz.target import Target, fault_of, name_of
from mem_agent.tests.fuzz.targets import TARGETS
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

# Libraries quote what they were given in their warnings, and surrogates among it end pytest's workers.
pytestmark = pytest.mark.filterwarnings("ignore")
FOUND = Path(__file__).with_name("found")
REGRESSIONS = sorted(path for path in FOUND.rglob("*") if path.is_file())
EXAMPLES, SLOW_EXAMPLES = 60, 10


def check(target, data):
    error = fault_of(target, data)
    assert error is None, f"{target.name}: {name_of(error)}: {error} for {data[:200]!r}"


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_seeds_are_read(target):
    for seed in target.seeds:
        check(target, seed)


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: str(path.relative_to(FOUND)))
def test_what_once_was_too_much_is_an_answer(path):
    check(TARGETS[path.parent.name], path.read_bytes())


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_seeds_with_a_change_are_read_or_refused(target):
    @settings(max_examples=SLOW_EXAMPLES if target.slow else EXAMPLES, derandomize=True, database=None, deadline=None,
              suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(target.seeds), st.randoms(use_true_random=True))
    def changed(seed, random):
        check(target, mutated(seed, random, target.words))

    changed()


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_is_nested_as_deep_as_python_goes_is_read_or_refused(target):
    """At each place of the first seed; ``growth`` nests all of them, and far deeper."""
    nested = (made for _, sizes, made in grown(target, target.seeds[0]) if sizes is DEPTHS)
    for made in islice(nested, SLOW_EXAMPLES if target.slow else EXAMPLES):
        check(target, made(DEEP))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_first_seed_is_not_refused(target):
    """Changes to what a reader refuses at its door would never reach the rest of it."""
    target.run(target.seeds[0])


def test_growth_is_measured_without_collections():
    seen = []
    target = Target("x", lambda data: seen.append((len(data), gc.isenabled())), (b"a",))
    measured(target, "longer", (1, 4), lambda size: b"a" * size)
    assert seen == [(1, False), (4, False)] and gc.isenabled()


@pytest.mark.parametrize(("seconds", "seeds"), [(1e9, 3), (0.0, 1)])
def test_growth_is_measured_of_every_seed_there_is_time_for(seconds, seeds):
    target = Target("x", lambda data: None, (b"a", b"[1]", b"c"))
    ways = [way for seed in target.seeds[:seeds] for way, _, _ in grown(target, seed)]
    assert [growth.way for growth in growths_of(target, seconds)] == ways


MAIN = """
from mem_agent.tests.fuzz import __main__ as fuzz
from mem_agent.tests.fuzz.target import Target, scratch

def search(target, places, left, bounds):
    os.write(1, f"{scratch()}\\n".encode())  # at once: two searches tell theirs
    time.sleep(600)

import os, sys, time, types
sys.modules["mem_agent.tests.fuzz.search"] = types.SimpleNamespace(
    search=search, SLOW_S=2, confirmed=None,
    Bounds=lambda *_: None, Places=types.SimpleNamespace(of=lambda *_: types.SimpleNamespace(found=fuzz.Path("."))))
fuzz.Hours = lambda *_: types.SimpleNamespace(take=lambda: targets.pop(), give_back=lambda *_: None)
targets = [Target(str(number), print, (b"",)) for number in range(5)]
fuzz._traced = lambda *_: targets
sys.exit(fuzz.main(["--minutes", "60"]))
"""


def test_an_interrupt_ends_a_search_and_leaves_nothing_behind(tmp_path):
    """As of ``kill``, which tells the parent alone; a search is ended by libFuzzer, which cleans nothing up."""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen([sys.executable, "-c", MAIN], stdout=subprocess.PIPE, text=True, env=environment,
                               cwd=tmp_path)
    try:
        folders = [Path(process.stdout.readline().strip()) for _ in range(2)]
        assert all(folder.is_dir() and folder.is_relative_to(tmp_path / "tmp") for folder in folders), folders
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=HANGS_AFTER_S)[0] == "" and process.returncode == 130
    finally:
        process.kill()
    assert list((tmp_path / "tmp").iterdir()) == []
