"""Every row is trained exactly once, no micro-batch exceeds its budget, and ranks agree without talking."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mem_agent.training.packing import Piece, cut_tries, first_fit, rank_micro_batches, split_pieces, trie_tokens

# Few different tokens, so that rows share prefixes, are prefixes of each other, and are equal.
ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=0, max_size=14)


def tokens_of_tries(rows):
    """By definition: as many as there are different prefixes."""
    return len({tuple(row[:n]) for row in rows for n in range(1, len(row) + 1)})


@given(ROWS)
def test_the_tokens_of_tries_are_the_different_prefixes(rows):
    assert trie_tokens(rows) == tokens_of_tries(rows)


@settings(deadline=None)
@given(ROWS, st.integers(1, 5), st.integers(1, 30), st.booleans())
def test_every_row_lands_on_exactly_one_rank_and_in_one_micro_batch(rows, ranks, budget, share):
    plan = rank_micro_batches(rows, ranks, budget, share)
    assert len(plan) == ranks
    assert sorted(i for rank in plan for batch in rank for i in batch) == list(range(len(rows)))


@settings(deadline=None)
@given(ROWS, st.integers(1, 5), st.integers(1, 30))
@example([[1, 2, 3]] * 4, 2, 30)
@example([[1], [1, 2], [1, 2, 3]], 3, 1)
def test_a_micro_batch_keeps_to_its_trie_tokens_unless_it_is_one_long_row(rows, ranks, budget):
    for batch in (batch for rank in rank_micro_batches(rows, ranks, budget) for batch in rank):
        assert tokens_of_tries([rows[i] for i in batch]) <= budget or len(batch) == 1


@settings(deadline=None)
@given(ROWS, st.integers(1, 5))
def test_pieces_fit_a_rank_and_ranks_differ_by_a_piece_at_most(rows, ranks):
    pieces = cut_tries(rows, ranks, 10**6)
    share = -(-tokens_of_tries(rows) // ranks)
    for piece in pieces:
        assert piece.tokens == tokens_of_tries([rows[i] for i in piece.rows])
        mine = [rows[i] for i in piece.rows]
        common = next(n for n in range(min(map(len, mine)), -1, -1) if len({tuple(row[:n]) for row in mine}) == 1)
        assert piece.tokens - common <= share or len(piece.rows) == 1
    totals = [sum(piece.tokens for piece in mine) for mine in split_pieces(pieces, ranks)]
    assert max(totals) - min(totals) <= max((piece.tokens for piece in pieces), default=0)
    assert all(totals) or len(pieces) < ranks


def test_siblings_stay_together_and_a_trie_is_cut_where_least_is_shared():
    chunk_a, chunk_b = [1, *range(10, 20)], [1, *range(30, 40)]
    rows = [chunk + [sibling] for sibling in (50, 51) for chunk in (chunk_a, chunk_b)]
    assert trie_tokens(rows) == 1 + 2 * (10 + 2)
    whole = cut_tries(rows, 1, 25)
    halves = cut_tries(rows, 1, 24)
    assert [(piece.rows, piece.tokens) for piece in whole] == [((0, 2, 1, 3), 25)]
    assert [(piece.rows, piece.tokens) for piece in halves] == [((0, 2), 13), ((1, 3), 13)]


def test_the_split_is_a_function_of_the_rows_alone():
    assert rank_micro_batches([[1, 2, 3], [1, 2, 4], [1, 2, 5, 6, 7], [8, 9]], 2, 100) == [[[0, 1, 2]], [[3]]]
    assert rank_micro_batches([[1] * 5, [2], [3] * 4, [4] * 2], 2, 6, share=False) == [[[0, 1]], [[2, 3]]]
    assert first_fit([Piece((0,), 5), Piece((1,), 1), Piece((2,), 4), Piece((3,), 2)], 6) == [[0, 1], [2, 3]]


def test_a_tie_is_cut_in_the_middle():
    rows = [[1, 2, sibling] for sibling in range(8)]
    assert [piece.rows for piece in cut_tries(rows, 2, 100)] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_a_comb_is_cut_tooth_by_tooth():
    """Row i is the first i tokens of one row and a token of its own: the longest two have 6 tokens."""
    rows = [[*range(1, i), 99] for i in range(1, 6)]
    assert [piece.rows for piece in cut_tries(rows, 1, 6)] == [(4, 3), (2,), (1,), (0,)]


def test_no_rows_make_no_micro_batches():
    assert rank_micro_batches([], 2, 10) == [[], []]
    assert rank_micro_batches([[7]], 2, 10) == [[[0]], []]
