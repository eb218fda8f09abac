"""Documents whose sections are two letters, an endpoint to use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.asking.app import Service
from mem_agent.asking.reader import AskingReader
from mem_agent.asking.serve import listening_socket, server
from mem_agent.config import Config
from mem_agent.rollout_client import Dialect, Endpoint, close_clients
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.tiny_tokenizer import encode as reply
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

VOCABULARY = Vocabulary(make_tokenizer())
SETTINGS = {"mem_chunk_tokens": 2, "mem_max_memory": 32, "mem_max_final": 16}
DOCUMENT = "QWZRXY"
"""Three sections: QW, ZR and XY."""
ASKED = [{"role": "user", "content": f"{DOCUMENT}\nQuestion: Who, then?"}]
REPLIES = ["red", "red", f"red {DOCUMENT}", f"so \\boxed{{{DOCUMENT}}}"]
FAULTS = ("hang", "abort")


def router_of(replies: Sequence[Any], streams: bool = True) -> FakeRouter:
    """``replies`` are texts, ids or the router's faults; further ones are ``x``."""
    script = [reply(each) if isinstance(each, str) and each not in FAULTS else each for each in replies]
    return FakeRouter(script, default=reply("x"), streams=streams)


async def chat(client: AsyncOpenAI, **others: Any) -> Any:
    """One that asks ``ASKED``, to which ``REPLIES`` are an engine's."""
    return await client.chat.completions.create(**{"model": "pocket", "messages": ASKED, **others})


def reader_of(folder: Path, router: FakeRouter, **config: Any) -> AskingReader:
    endpoint = Endpoint(Dialect.VLLM, f"http://127.0.0.1:{router.port}", 4096)
    return AskingReader(Config(**SETTINGS | config), folder, endpoint)


def use(
    folder: Path, replies: Sequence[Any], user: Callable[..., Coroutine[Any, Any, Any]],
    service: dict[str, Any] | None = None, **config: Any,
) -> Any:
    """What ``user(client, served, router)`` returns; ``client`` is OpenAI's own and does not try again, ``served`` the
    service with its ``url``."""
    async def main() -> Any:
        router = router_of(replies)
        async with running(router):
            served = Service(reader_of(folder, router, **config), "pocket", **service or {})
            with listening_socket("127.0.0.1", 0) as sock:
                running_server, served.url = server(served), f"http://127.0.0.1:{sock.getsockname()[1]}"
                task = asyncio.ensure_future(running_server.serve([sock]))
                async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="secret", max_retries=0) as client:
                    result = await user(client, served, router)
                running_server.should_exit = True
                await task
            await close_clients()
        return result

    return asyncio.run(main())
