"""A token sees in a trie what it sees in its row, and every response token is predicted where its row predicts it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.training.rows import TrainRow
from mem_agent.training.trie import build_trie, common_prefix, sorted_by_prefix


def row(tokens, response):
    return TrainRow(tokens, response, [1] * response, [0.0] * response, 1.0, 0, 1.0)


@st.composite
def rows(draw):
    tokens = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=10), min_size=1, max_size=10))
    return [row(t, draw(st.integers(0, len(t) - 1))) for t in tokens]


def seen(trie, q):
    """The tokens that token q sees, in order."""
    return [trie.tokens[k] for k in range(q + 1) if q < trie.end[k]]


def check(rows, trie):
    where = iter(trie.places)
    for r in rows:
        for number, token in enumerate(r.response, start=r.prompt_length):
            place = next(where)
            position = trie.predicting[place]
            assert seen(trie, position) == r.tokens[:number] and trie.targets[place] == token
            assert trie.positions[position] == number - 1
    assert next(where, None) is None
    for q in range(len(trie.tokens)):
        assert len(seen(trie, q)) == trie.positions[q] + 1


@settings(deadline=None)
@given(rows())
def test_a_prediction_sees_its_row_up_to_there_and_nothing_else(rows):
    trie = build_trie(rows)
    check(rows, trie)
    inputs = {tuple(r.inputs[:n]) for r in rows for n in range(1, len(r.inputs) + 1)}
    assert len(trie.tokens) == len(inputs)
    assert len(set(zip(trie.predicting, trie.targets, strict=True))) == len(trie.targets)


@settings(deadline=None)
@given(rows())
def test_unshared_rows_keep_paths_of_their_own_in_their_order(rows):
    trie = build_trie(rows, share=False)
    check(rows, trie)
    assert trie.tokens == [token for r in rows for token in r.inputs]


def test_the_example_of_the_module():
    trie = build_trie([row([1, 2, 3, 9], 2), row([1, 2, 4, 9], 2), row([7, 8, 9], 2), row([1, 2, 3, 9], 2)])
    assert trie.tokens == [1, 2, 3, 4, 7, 8]
    assert trie.positions == [0, 1, 2, 2, 0, 1]
    assert trie.end == [4, 4, 3, 4, 6, 6]
    predicted = list(zip(trie.predicting, trie.targets, strict=True))
    assert predicted == [(1, 3), (2, 9), (1, 4), (3, 9), (4, 8), (5, 9)]
    assert trie.places == [0, 1, 2, 3, 4, 5, 0, 1]


def test_a_row_of_one_token_is_read_and_predicts_nothing():
    trie = build_trie([row([5], 0)])
    assert (trie.tokens, trie.end, trie.places) == ([5], [1], [])


@given(st.lists(st.integers(0, 1), max_size=9), st.lists(st.integers(0, 1), max_size=9))
def test_the_common_prefix(a, b):
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(bytes(a), bytes(b)) == expected


def test_rows_are_sorted_as_numbers_and_share_whole_tokens():
    # 257 and 258 have their high bytes in common, and no token.
    rows = [[258, 7], [151_643], [257], [255, 1], [258, 263]]
    assert sorted_by_prefix(rows) == ([3, 2, 0, 4, 1], [0, 0, 0, 1, 0])


def test_sorting_is_stable_for_equal_rows():
    assert sorted_by_prefix([[2], [1, 1], [1], [1, 1]]) == ([2, 1, 3, 0], [0, 1, 2, 0])
    assert sorted_by_prefix([]) == ([], [])
