"""Growth that is certain and large is found; noise, steps, warm-ups and restarts are none."""

import random

import pytest

from mem_agent.tests.faults.slope import WARM_UP, verdict

LONG = range(60)


def noisy(seed: int, slope: float = 0.0, base: float = 1000.0) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    return [(n, base + slope * n + draw.gauss(0, 10)) for n in LONG]


@pytest.mark.parametrize("strata,flat", [
    ([noisy(1)], True),
    ([noisy(2, slope=5)], False),
    ([noisy(3, slope=0.2)], True),  # certain one day, and never enough
    ([noisy(4, slope=-5)], True),
    ([[(n, 1000.0) for n in LONG]], True),
    ([[(n, 1000.0 if n < WARM_UP else 2000.0) for n in LONG]], True),
    ([[(n, 500.0 + n) for n in range(30)], [(n, 2000.0) for n in range(30, 60)]], True),  # the first ends below 5%
    ([[(n, 1000.0 + 20 * (n % 20)) for n in range(k, k + 20)] for k in (0, 20, 40)], False),  # in each anew
    ([[(n, 1000.0 + 200 * (1 - 0.8 ** n)) for n in LONG]], True),  # fills up
    ([noisy(5)[:WARM_UP + 4]], None),
])
def test_verdicts(strata, flat):
    assert verdict(strata, floor=20.0).flat is flat


def test_growth_below_the_floor_does_not_matter():
    few = [[(n, 10.0 + n // 10) for n in LONG]]
    assert verdict(few, floor=4.0).flat and not verdict(few, floor=1.0).flat


def test_a_restart_is_no_growth():
    """The second process begins higher, and neither grows."""
    strata = [noisy(6)[:30], [(n + 30, value + 500) for n, value in noisy(7)[:30]]]
    assert verdict(strata, floor=0.0).flat
