"""Every reader of what others wrote bears its seeds, the inputs that once were too much, and seeds with a change."""

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mem_agent.tests.fuzz.growth import measured
from mem_agent.tests.fuzz.mutations import mutated
from mem_agent.tests.fuzz.target import Target, fault_of, name_of
from mem_agent.tests.fuzz.targets import TARGETS

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
def test_the_first_seed_is_not_refused(target):
    """Changes to what a reader refuses at its door would never reach the rest of it."""
    target.run(target.seeds[0])


def test_growth_is_measured_without_collections():
    seen = []
    target = Target("x", lambda data: seen.append((len(data), gc.isenabled())), (b"a",))
    measured(target, "longer", (1, 4), lambda size: b"a" * size)
    assert seen == [(1, False), (4, False)] and gc.isenabled()
