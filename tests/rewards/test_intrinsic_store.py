"""Questions and their vectors: what is found, what leaves, and that a restored store is the same one."""

from collections import OrderedDict, deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.rewards.intrinsic.store import Entry, Store

DIMS = 8


def vector(number):
    """A unit vector of its own for each number."""
    row = np.random.default_rng(number).standard_normal(DIMS).astype(np.float32)
    return row / np.linalg.norm(row)


def entry(name, *numbers, key=None):
    values = np.array([vector(n) for n in numbers], np.float32).reshape(len(numbers), DIMS)
    return Entry(name.encode().ljust(16), vector(ord(name) + 1_000) if key is None else key, values)


def name_of(name):
    return name.encode().ljust(16)


def numbers_of(store, name):
    """The numbers of the vectors that a question holds, oldest first."""
    known = np.array([vector(n) for n in range(100)])
    return [int(np.argmin(np.linalg.norm(known - row, axis=1))) for row in store.vectors([name_of(name)], DIMS)]


def content_of(store):
    return {name: array.tolist() for name, array in store.arrays().items()}


def restored(store, keys=4, values=3):
    fresh = Store(keys, values)
    fresh.restore(store.arrays())
    return fresh


def test_first_in_first_out_on_both_levels():
    """The docstring's example."""
    store = Store(keys=2, values=2)
    store.add([entry("a", 1), entry("b", 2), entry("a", 3), entry("a", 4)])
    assert (numbers_of(store, "a"), numbers_of(store, "b")) == ([3, 4], [2])
    assert (store.questions, store.vectors_held) == (2, 3)
    store.add([entry("c", 5)])
    assert store.questions == 2 and numbers_of(store, "b") == [2] and numbers_of(store, "c") == [5]


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_exactly_as_many_questions_as_fit_stay_and_one_more_takes_the_oldest(keys):
    store = Store(keys=keys, values=2)
    names = "abcdef"
    for number, name in enumerate(names):
        store.add([entry(name, number)])
        assert store.questions == min(number + 1, keys)
        kept = names[max(0, number + 1 - keys) : number + 1]
        assert [numbers_of(store, name) for name in kept] == [[names.index(name)] for name in kept]


def test_a_question_that_comes_again_is_a_new_one():
    store = Store(keys=2, values=3)
    store.add([entry("a", 1, 2), entry("b", 3), entry("c", 4), entry("a", 5)])  # all in one batch
    assert (numbers_of(store, "a"), numbers_of(store, "c"), store.questions) == ([5], [4], 2)


def test_a_question_finds_itself_first_whatever_is_near():
    """Both have one and the same vector, as equal embeddings of different questions."""
    store = Store(keys=4, values=2)
    same = vector(7)
    store.add([entry("a", 1, key=same), entry("b", 2, key=same)])
    a, b = map(name_of, "ab")
    assert store.nearest([a, b], np.stack([same, same]), 1) == [[a], [b]]
    assert store.nearest([a, b], np.stack([same, same]), 2) == [[a, b], [b, a]]


def test_the_nearest_others_are_found_and_k_may_be_more_than_there_are():
    store = Store(keys=4, values=2)
    keys = {name: np.eye(DIMS, dtype=np.float32)[i] for i, name in enumerate("abc")}
    store.add([entry(name, i, key=keys[name]) for i, name in enumerate("abc")])
    asked = np.zeros((1, DIMS), np.float32)
    asked[0, :3] = 0.1, 0.9, 0.4
    a, b, c = map(name_of, "abc")
    found = [store.nearest([name_of("new")], asked, k)[0] for k in (1, 2, 3, 9)]
    assert found == [[b], [b, c], [b, c, a], [b, c, a]]
    assert store.nearest([a], asked, 2) == [[a, b]]
    assert store.vectors([a, b], DIMS).shape == (2, DIMS)


def test_an_empty_store_finds_nothing():
    store = Store(keys=4, values=2)
    assert store.nearest([name_of("a")], vector(1)[None], 3) == [[]] and store.vectors([], DIMS).shape == (0, DIMS)
    store.add([entry("a")])  # a question without vectors is none
    assert store.questions == 0 and restored(store).questions == 0


class Model:
    """The same in plain Python."""

    def __init__(self, keys, values):
        self.keys, self.values, self.held = keys, values, OrderedDict()

    def add(self, name, numbers):
        if name not in self.held:
            if len(self.held) == self.keys:
                self.held.popitem(last=False)
            self.held[name] = deque(maxlen=self.values)
        self.held[name].extend(numbers)


NUMBERS = st.lists(st.integers(0, 99), min_size=1, max_size=5)
BATCH = st.lists(st.tuples(st.sampled_from("abcdefg"), NUMBERS), max_size=6)


@settings(max_examples=60)
@given(batches=st.lists(BATCH, max_size=6), keys=st.integers(1, 4), values=st.integers(1, 3))
def test_a_store_is_two_levels_of_queues(batches, keys, values):
    store, model = Store(keys, values), Model(keys, values)
    for batch in batches:
        store.add([entry(name, *numbers) for name, numbers in batch])
        for name, numbers in batch:
            model.add(name, numbers)
        assert {name: numbers_of(store, name) for name in model.held} == {n: list(v) for n, v in model.held.items()}
        assert store.questions == len(model.held)
        if model.held:
            assert [bytes(q).strip().decode() for q in store.arrays()["questions"]] == list(model.held)
        assert store.vectors_held == sum(map(len, model.held.values()))
    again = restored(store, keys=keys, values=values)
    assert content_of(again) == content_of(store)
    again.add([entry("z", 1)]), store.add([entry("z", 1)])
    assert content_of(again) == content_of(store)


def test_a_smaller_store_takes_the_newest_of_a_saved_one():
    store = Store(keys=4, values=3)
    store.add([entry("a", 1), entry("b", 2, 3, 4), entry("c", 5, 6)])
    smaller = restored(store, keys=2, values=2)
    assert (smaller.questions, numbers_of(smaller, "b"), numbers_of(smaller, "c")) == (2, [3, 4], [5, 6])
    keys = vector(ord("b") + 1_000)[None]
    assert smaller.nearest([b"new".ljust(16)], keys, 1) == smaller.nearest([b"b".ljust(16)], keys, 1)
