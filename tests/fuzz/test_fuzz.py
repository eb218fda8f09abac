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
EXAMPLES, SLOW_EXAMPLES = 60, 10
OPEN: dict[str, str] = {}
"""Inputs below ``found/`` whose faults are still there, and what each is."""


def regressions():
    for path in sorted(path for path in FOUND.rglob("*") if path.is_file()):
        name = str(path.relative_to(FOUND))
        marks = [pytest.mark.xfail(reason=OPEN[name], strict=True)] if name in OPEN else []
        yield pytest.param(path, id=name, marks=marks)


def check(target, data, known=frozenset()):
    error = fault_of(target, data)
    assert error is None or name_of(error) in known, f"{target.name}: {name_of(error)}: {error} for {data[:200]!r}"


def open_faults(target):
    """Their names: another input may have the same fault."""
    own = [FOUND / name for name in OPEN if name.startswith(f"{target.name}/")]
    return {name_of(error) for path in own if (error := fault_of(target, path.read_bytes()))}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_seeds_are_read(target):
    for seed in target.seeds:
        check(target, seed)


@pytest.mark.parametrize("path", regressions())
def test_what_once_was_too_much_is_an_answer(path):
    check(TARGETS[path.parent.name], path.read_bytes())


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_seeds_with_a_change_are_read_or_refused(target):
    known = open_faults(target)

    @settings(max_examples=SLOW_EXAMPLES if target.slow else EXAMPLES, derandomize=True, database=None, deadline=None,
              suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(target.seeds), st.randoms(use_true_random=True))
    def changed(seed, random):
        check(target, mutated(seed, random, target.words), known)

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


def test_open_faults_are_files():
    assert all((FOUND / name).is_file() for name in OPEN)
