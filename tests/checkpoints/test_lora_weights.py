"""Adapters of somebody else's checkpoint are merged where their shapes are an adapter's."""

import pytest

from mem_agent.checkpoints.lora_weights import fits

GOOD = {"weight": (6, 5), "a": (4, 5), "b": (6, 2), "part": (6,), "scale": (1,)}


@pytest.mark.parametrize("change", [{}, {"a": (2, 5)}, {"a": (6, 5)}, {"scale": ()}])
def test_one_to_three_projections_fit(change):
    assert fits(**GOOD | change)


@pytest.mark.parametrize("change", [
    {"weight": (6,)}, {"weight": ()}, {"b": (6,)}, {"b": ()}, {"b": (6, 0), "a": (0, 5)}, {"b": (6, 3)}, {"b": (5, 2)},
    {"a": (3, 5)}, {"a": (8, 5)}, {"a": (4, 6)}, {"a": (4,)}, {"part": (5,)}, {"part": (6, 1)}, {"scale": (2,)},
    {"scale": (1, 1)}, {"scale": (1, 1, 1)},
    {"scale": (0,)}, {"a": (4000, 1), "weight": (6, 1)},
])
def test_others_do_not(change):
    assert not fits(**GOOD | change)
