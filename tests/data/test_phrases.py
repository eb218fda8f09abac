"""Phrases are found as whole words, and in one pass."""

import random

import pytest

from mem_agent.data.phrases import Phrases


@pytest.mark.parametrize(("phrases", "text", "found"), [
    (["ann lee"], "it was ann lee", True), (["ann lee"], "ann leeds", False), (["ann lee"], "ann b lee", False),
    (["a a b"], "a a a b", True), (["a b c d", "b c"], "a b c e", True), (["a b c d", "c e"], "a b c e", True),
    (["a b a b c"], "a b a b a b c", True), ([], "a", False), (["a"], "", False), (["tōkyō"], "in tōkyō", True),
])
def test_phrases_are_found_as_whole_words(phrases, text, found):
    assert Phrases(phrases).any_in(text) is found


def test_it_finds_what_a_search_for_each_finds():
    draw = random.Random(1)
    both = set()
    for _ in range(2000):
        made = [" ".join(draw.choices("abc", k=draw.randint(1, 6))) for _ in range(draw.randint(1, 4))]
        text = " ".join(draw.choices("abc", k=draw.randint(1, 30)))
        both.add(found := any(f" {phrase} " in f" {text} " for phrase in made))
        assert Phrases(made).any_in(text) is found, (made, text)
    assert both == {True, False}


def test_a_text_is_passed_once():
    """Neither the number of phrases nor how far each stands in the text makes the work more."""
    steps = 0

    class Counted(Phrases):
        def _step(self, node, word):
            nonlocal steps
            steps += 1
            return super()._step(node, word)

    phrases = Counted([*(f"x {number}" for number in range(1000)), "x " * 1000 + "y", "x " * 500 + "z"])
    steps = 0
    assert not phrases.any_in(" ".join(["x"] * 5000))
    assert steps == 5000
