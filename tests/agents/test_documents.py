"""A document is tokenised once for all siblings, off the event loop, and survives a cancelled sibling."""

import asyncio
import threading

import pytest

from mem_agent.agents.documents import DocumentCache
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


def test_siblings_share_one_encoding_made_in_another_thread():
    threads = []

    def encode(text):
        threads.append(threading.current_thread())
        return [len(text)]

    async def main():
        cache = DocumentCache(encode)
        results = await asyncio.gather(*(cache.get("a document") for _ in range(16)))
        assert all(list(r) == [10] for r in results)
        return cache.encoded

    assert asyncio.run(main()) == 1
    assert threads[0] is not threading.main_thread()


def test_a_cancelled_sibling_does_not_cancel_the_others():
    release = threading.Event()

    def encode(text):
        assert release.wait(HANGS_AFTER_S)
        return [1, 2]

    async def main():
        cache = DocumentCache(encode)
        first, second = (asyncio.ensure_future(cache.get("d")) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        release.set()
        assert list(await second) == [1, 2]

    asyncio.run(main())


def test_works_across_event_loops():
    cache = DocumentCache(lambda text: [len(text)])
    assert [list(asyncio.run(cache.get("ab"))) for _ in range(2)] == [[2], [2]]
    assert cache.encoded == 1


def test_old_documents_leave_first():
    async def main():
        cache = DocumentCache(lambda text: [0] * 1000, max_tokens=2500)
        for text in ("a", "b", "c", "c", "b", "a"):
            await cache.get(text)
        return cache.encoded

    assert asyncio.run(main()) == 4


def test_an_encoder_error_reaches_every_sibling():
    def encode(text):
        raise RuntimeError("broken tokenizer")

    async def main():
        cache = DocumentCache(encode)
        return await asyncio.gather(*(cache.get("d") for _ in range(3)), return_exceptions=True)

    assert [str(e) for e in asyncio.run(main())] == ["broken tokenizer"] * 3
    with pytest.raises(RuntimeError):
        asyncio.run(DocumentCache(encode).get("d"))
