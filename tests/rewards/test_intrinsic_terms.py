"""The two terms, their window and their sizes, by vectors whose numbers were worked out by hand."""

import math

import numpy as np
import pytest

from mem_agent.rewards.intrinsic import terms
from mem_agent.rewards.intrinsic.spread import intrinsic_share
from mem_agent.rewards.intrinsic.texts import normalised, place, question_id, sentences
from mem_agent.rewards.intrinsic.window import Window


def vectors(*rows):
    return np.array(rows, np.float32)


X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)

# The mean of x and y is (1/2, 1/2, 0). From x to it: (1/2, -1/2, 0), length sqrt(1/2). From z: (1/2, 1/2, -1), length
# sqrt(1/4 + 1/4 + 1) = sqrt(3/2). A response of the two sentences x and z: the mean of both.
EXPLOIT = {
    "itself": ([X], [X], 0.0),
    "one of two": ([X], [X, Y], -math.sqrt(0.5)),
    "neither": ([Z], [X, Y], -math.sqrt(1.5)),
    "sentences": ([X, Z], [X, Y], -(math.sqrt(0.5) + math.sqrt(1.5)) / 2),
    "opposite": ([X], [(-1.0, 0.0, 0.0)], -2.0),
}


@pytest.mark.parametrize(("pieces", "successes", "expected"), EXPLOIT.values(), ids=EXPLOIT)
def test_exploit_is_minus_the_distance_to_the_mean(pieces, successes, expected):
    assert terms.exploit(vectors(*pieces), terms.centre(vectors(*successes))) == pytest.approx(expected, abs=1e-6)


# (0.6, 0.8, 0) has length 1: its cosine with x is 0.6, with y 0.8. (3, 4, 0) is its direction, five times as long.
SLOPE = (0.6, 0.8, 0.0)
EXPLORE = {
    "there": ([X], [X, Z], 0.0),
    "right angle": ([Z], [X, Y], 1.0),
    "the nearest counts": ([Y], [X, SLOPE], 1 - 0.8),
    "not the length": ([Y], [X, (3.0, 4.0, 0.0)], 1 - 0.8),
    "sentences": ([Y, Z], [SLOPE], (0.2 + 1.0) / 2),
    "opposite": ([X], [(-1.0, 0.0, 0.0)], 2.0),
}


@pytest.mark.parametrize(("pieces", "failures", "expected"), EXPLORE.values(), ids=EXPLORE)
def test_explore_is_one_minus_the_greatest_cosine(pieces, failures, expected):
    failed = vectors(*failures)
    assert terms.explore(vectors(*pieces), failed, terms.lengths(failed)) == pytest.approx(expected, abs=1e-6)


# --- the window ------------------------------------------------------------------------------------------------------

SCALED = {
    "empty": ([], 0.4, 0.0),
    "one value": ([0.4], 0.9, 0.0),
    "all equal": ([0.4] * 7, 0.9, 0.0),
    "equal but for rounding": ([0.4, 0.4 + 1e-7], 0.9, 0.0),
    "least": ([0.2, 0.6], 0.2, 0.0),
    "greatest": ([0.2, 0.6], 0.6, 1.0),
    "between": ([0.2, 0.6, 0.3], 0.3, 0.25),
    "below": ([0.2, 0.6], 0.1, 0.0),
    "above": ([0.2, 0.6], 0.7, 1.0),
    "negative": ([-0.8, -0.4], -0.5, 0.75),
}


@pytest.mark.parametrize(("values", "raw", "expected"), SCALED.values(), ids=SCALED)
def test_a_raw_value_is_scaled_by_the_window_and_cut(values, raw, expected):
    scaled = Window(100, values).scaled(raw)
    assert scaled == pytest.approx(expected, abs=1e-6) and 0 <= scaled <= 1


def test_a_window_forgets_its_oldest_only_when_it_is_full():
    window = Window(3)
    window.extend([0.0, 1.0, 0.5])
    assert window.bounds == (0.0, 1.0)  # exactly full
    window.extend([0.6])
    assert window.bounds == (0.5, 1.0)
    window.extend([0.7, 0.8, 0.9, 1.1])  # more than it holds
    assert window.bounds == (0.8, 1.1)


# --- texts and shares ------------------------------------------------------------------------------------------------

SENTENCES = {
    "ends": ("She has 3.5 km. He walks! Why?", ["She has 3.5 km.", "He walks!", "Why?"]),
    "lines": ("a = 1\n\n  b = 2 \r\n", ["a = 1", "b = 2"]),
    "none": (" \n ", []),
    "no end": ("nothing more", ["nothing more"]),
    "dots": ("Well... yes.", ["Well...", "yes."]),
}


@pytest.mark.parametrize(("text", "parts"), SENTENCES.values(), ids=SENTENCES)
def test_a_text_falls_into_sentences(text, parts):
    assert sentences(text) == parts


def test_questions_are_the_same_but_for_blanks_and_forms_of_letters():
    assert question_id(" How\nmany  ﬁsh? ") == question_id("How many fish?") != question_id("how many fish?")
    assert normalised("a\u00a0b") == "a b" and len(question_id("")) == 16
    assert place(question_id("q"), "x") != place(question_id("p"), "x")


# Group a: rest 1 0 has squares 1/4 + 1/4, intrinsic 0 1 the same; group b: rest 0 0, intrinsic 0.5 0.5: nothing.
SHARES = {
    "half": ("aabb", [1, 0, 0, 0], [0, 1, 0.5, 0.5], 0.5),
    "none": ("aabb", [1, 0, 1, 0], [0.3, 0.3, 0.9, 0.9], 0.0),
    "all": ("aa", [0, 0], [0.2, 0.4], 1.0),
    "nothing differs": ("ab", [1, 0], [0, 1], 0.0),
}


@pytest.mark.parametrize(("groups", "rest", "intrinsic", "expected"), SHARES.values(), ids=SHARES)
def test_the_share_looks_inside_groups_only(groups, rest, intrinsic, expected):
    assert intrinsic_share(groups, rest, intrinsic) == pytest.approx(expected)
