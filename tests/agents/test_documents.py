"""Chunks are exact slices, only the centre is ever dropped; a document is tokenised once, off the event loop."""

import asyncio
import threading

from hypothesis import given
from hypothesis import strategies as st

from mem_agent.agents.documents import DocumentCache, split_chunks


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 9))
def test_chunks_are_consecutive_slices_and_nothing_is_lost_silently(length, chunk, most):
    result = split_chunks(list(range(length)), chunk, most)
    joined = [i for c in result.chunks for i in c]
    assert len(joined) + result.dropped == length == result.tokens and len(result.chunks) <= most
    assert all(len(c) == chunk for c in result.chunks[:-1]) and joined == sorted(joined)


def test_the_centre_is_dropped():
    result = split_chunks(list(range(10)), 2, 3)
    assert ([list(chunk) for chunk in result.chunks], result.dropped) == ([[0, 1], [2, 7], [8, 9]], 4)


def test_siblings_share_one_encoding_made_in_another_thread_in_any_event_loop():
    threads = []

    def encode(text):
        threads.append(threading.current_thread())
        return [len(text)]

    cache = DocumentCache(encode)

    async def group():
        return await asyncio.gather(*(cache.get("a document") for _ in range(16)))

    for _ in range(2):
        assert [list(ids) for ids in asyncio.run(group())] == [[10]] * 16
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
