"""Chunks are exact slices; only the centre is ever dropped, and it is counted."""

from hypothesis import given
from hypothesis import strategies as st

from mem_agent.agents.chunking import split_chunks


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 9))
def test_chunks_are_consecutive_slices_and_nothing_is_lost_silently(length, chunk, most):
    document = list(range(length))
    result = split_chunks(document, chunk, most)
    joined = [i for c in result.chunks for i in c]
    assert len(joined) + result.dropped == length == result.tokens
    assert len(result.chunks) <= most
    assert all(len(c) == chunk for c in result.chunks[:-1])
    assert joined == sorted(joined)
    if not result.dropped:
        assert joined == document


def test_centre_truncation_keeps_both_ends():
    result = split_chunks(list(range(10)), 2, 3)
    assert [list(c) for c in result.chunks] == [[0, 1], [2, 7], [8, 9]]
    assert result.dropped == 4


def test_odd_room_gives_the_extra_token_to_the_start():
    assert [list(c) for c in split_chunks(list(range(9)), 3, 1).chunks] == [[0, 1, 8]]
