"""Async client of the router in front of the inference engines: token ids in, token ids and log-probs out.

What is sent and how an answer is read is the endpoint's business (``engine_api``); here are connections, retries and
patience.

Invariants:
- every request carries the key of its GROUP (document), so that siblings meet the same prefix cache;
- while requests wait for others to be answered, the next to be sent is the one with the greatest weight;
- a prompt that cannot fit the engine's context is refused before it is sent;
- retries happen on connection errors, 5xx and 429 only, a bounded number of times with doubling waits, or what
  ``Retry-After`` asks for where that is longer; a 4xx or a timeout is final;
- the message of a failure is one short line without the endpoint's key;
- an aborted request is a normal answer with ``StopReason.ABORT``;
- once somebody was told of tokens, their request is not sent again: it would sample others.
"""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from ..agents.records import FailureKind, Generation, StopReason, TurnFailed
from ..config import Config
from ..system.priority_gate import PriorityGate
from ..system.text import one_line
from .engine_api import MALFORMED, Endpoint
from .server_session import NO_ANSWER, seconds_asked, server_session
from .sessions import Sessions
from .siblings import Ahead
from .token_stream import STREAMED, TokenStream

logger = logging.getLogger(__name__)
_TOLD = 300
"""Characters of a failure's reason."""
Tell = Callable[[list[int]], bool]
"""Is told of the ids sampled so far, all of them each time; the list grows on. Says whether they are enough."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    timeout: float
    """Seconds for one attempt."""
    retries: int
    backoff: float
    """Seconds before the first retry; doubles up to 30 s, with up to 25% jitter."""

    def wait(self, attempt: int) -> float:
        return min(30.0, self.backoff * 2**attempt) * random.uniform(1.0, 1.25)


@dataclass(slots=True)
class Answered:
    """What has been answered so far; it only grows, and any thread may read it."""

    turns: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0

    def add(self, prompt_ids: list[int], generation: Generation) -> None:
        self.turns += 1
        self.prompt_tokens += len(prompt_ids)
        self.cached_tokens += generation.cached_tokens or 0
        self.sampled_tokens += len(generation.token_ids)


class GenerationClient:
    """One keep-alive connection pool; make it inside the event loop that uses it, or take it from ``client_for``."""

    def __init__(self, endpoint: Endpoint, policy: RetryPolicy, concurrency: int) -> None:
        self.endpoint = endpoint
        self.policy = policy
        self.retries_done = 0
        self.answered = Answered()
        self.ahead = Ahead()
        self.sessions = Sessions(self._finish)
        self._finishing: set[asyncio.Task[None]] = set()
        self._counts_sessions = bool(endpoint.finish_url)
        timeout = aiohttp.ClientTimeout(total=policy.timeout, connect=min(30.0, policy.timeout))
        connector = aiohttp.TCPConnector(limit=concurrency + 1, keepalive_timeout=60)  # one tells of ended keys
        self._session = server_session(endpoint.base_url, timeout=timeout, connector=connector)
        self._slots = PriorityGate(concurrency)

    async def close(self) -> None:
        if self._finishing:
            await asyncio.wait(self._finishing, timeout=1.0)
        await self._session.close()

    def _finish(self, key: str) -> None:
        if self._counts_sessions and not self._session.closed:
            task = asyncio.ensure_future(self._tell_finished(key))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

    async def _tell_finished(self, key: str) -> None:
        """Only balance depends on it, so nobody waits for it; a server that is no such router is told once."""
        try:
            async with self._session.post(self.endpoint.finish_url, params={"session_id": key}) as response:
                self._counts_sessions = response.status == 200
        except NO_ANSWER as error:
            logger.debug("the router was not told that %s has ended: %s", key, error)

    async def generate(
        self,
        prompt_ids: list[int],
        max_new_tokens: int,
        sampling: Mapping[str, Any],
        routing_key: str,
        is_aborted: Callable[[], bool] = lambda: False,
        weight: float = 0.0,
        tell: Tell | None = None,
    ) -> Generation:
        """Sample one reply.

        Args:
            sampling: the host's sampling parameters (``temperature``, ``top_p``, ``top_k``, ``stop_token_ids``,
                ``seed`` ...); only read. Its ``max_new_tokens`` is replaced by this turn's own.
            routing_key: the group's key.
            is_aborted: asked right before each attempt; a request that still waits then is never sent.
            weight: the greater, the sooner it is sent where requests wait.
            tell: called whenever tokens have come, if the endpoint streams; it may never be called. Where it says
                that they are enough, the reply ends there.

        Raises:
            TurnFailed: the kind says why.
        """
        patience = self.endpoint.patience()
        stream = _Stream(tell) if tell and self.endpoint.streams else None
        while True:
            try:
                return await self._generate(
                    prompt_ids, max_new_tokens, sampling, routing_key, is_aborted, weight, stream
                )
            except TurnFailed as failure:
                told = stream is not None and stream.told
                if told or patience is None or not await patience.try_again(failure):
                    raise

    async def _generate(
        self,
        prompt_ids: list[int],
        max_new_tokens: int,
        sampling: Mapping[str, Any],
        routing_key: str,
        is_aborted: Callable[[], bool],
        weight: float,
        stream: _Stream | None,
    ) -> Generation:
        limit = self.endpoint.max_tokens
        if limit and len(prompt_ids) + max_new_tokens > limit:
            raise TurnFailed(
                FailureKind.LONG_PROMPT,
                f"prompt of {len(prompt_ids)} + reply of {max_new_tokens} tokens exceed the engine's {limit}; "
                f"lower MEM_CHUNK_TOKENS or MEM_MAX_MEMORY",
            )
        body, headers = self.endpoint.build_request(prompt_ids, max_new_tokens, sampling, routing_key)
        body |= STREAMED if stream else {}
        async with self._slots.slot(weight):
            answer = await self._post(orjson.dumps(body), headers, is_aborted, stream)
        if answer is None:
            return Generation([], [], StopReason.ABORT)
        try:
            generation = self.endpoint.parse_response(answer)
        except MALFORMED as error:
            raise self._failure(FailureKind.BAD_RESPONSE, error) from None
        self.answered.add(prompt_ids, generation)
        return generation

    async def _post(
        self, body: bytes, headers: Mapping[str, str], is_aborted: Callable[[], bool], stream: _Stream | None
    ) -> Any:
        """The answer, or None where the host asked to end before it was sent."""
        for attempt in range(self.policy.retries + 1):
            if is_aborted():
                return None
            failure, wait = None, self.policy.wait(attempt)
            try:
                async with self._session.post(
                    self.endpoint.url, data=body, headers={**headers, "Content-Type": "application/json"}
                ) as response:
                    if stream and response.status == 200 and response.content_type == "text/event-stream":
                        return await stream.read(response)
                    if response.status == 200:
                        return orjson.loads(await response.read())
                    failure = await self._status_failure(response)
                    if failure.kind is FailureKind.REJECTED:
                        raise failure
                    wait = max(wait, failure.wait)
            except aiohttp.ConnectionTimeoutError as error:
                failure = self._failure(FailureKind.CONNECTION, error)
            except TimeoutError as error:
                reason = f"no answer within {self.policy.timeout:g} s (MEM_REQUEST_TIMEOUT)"
                raise self._failed(FailureKind.TIMEOUT, reason) from error
            except aiohttp.ClientError as error:
                failure = self._failure(FailureKind.CONNECTION, error)
            except ValueError as error:  # of JSON or of a stream
                raise self._failure(FailureKind.BAD_RESPONSE, error) from None
            if attempt == self.policy.retries or (stream and stream.told):
                raise failure
            self.retries_done += 1
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def _status_failure(self, response: aiohttp.ClientResponse) -> TurnFailed:
        status, text = response.status, await response.text(errors="replace")
        kind = FailureKind.SERVER_ERROR if status >= 500 else FailureKind.REJECTED
        kind = FailureKind.RATE_LIMITED if status == 429 else kind
        wait = seconds_asked(response.headers.get("Retry-After"))
        return self._failed(kind, f"HTTP {status}: {text}", wait)

    def _failure(self, kind: FailureKind, error: Exception) -> TurnFailed:
        return self._failed(kind, f"{type(error).__name__}: {error}")

    def _failed(self, kind: FailureKind, reason: str, wait: float = 0.0) -> TurnFailed:
        return TurnFailed(kind, f"{self.endpoint.url}: {one_line(self.endpoint.redacted(reason), _TOLD)}", wait)


class _Stream:
    """Of one reply, whose tokens are told as they come."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.told = False

    async def read(self, response: aiohttp.ClientResponse) -> dict[str, Any]:
        """The answer. Raises ValueError where the stream breaks off."""
        stream = TokenStream()
        async for line in response.content:
            if stream.add(line):
                self.told = True
                if self._tell(stream.token_ids):
                    stream.end()  # leaving the response unread ends the request at the engine
                    break
        return stream.answer()


_Clients = dict[Any, GenerationClient]
_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = weakref.WeakKeyDictionary()


def client_for(endpoint: Endpoint, config: Config) -> GenerationClient:
    """The running event loop's shared client for ``endpoint``."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    key = _key(endpoint, config)
    if key not in clients:
        clients[key] = GenerationClient(*key)
    return clients[key]


def answered(loop: asyncio.AbstractEventLoop) -> list[Answered]:
    """Of each client of ``loop``."""
    return [client.answered for client in list(_clients.get(loop, {}).values())]


def _key(endpoint: Endpoint, config: Config) -> tuple[Endpoint, RetryPolicy, int]:
    policy = RetryPolicy(config.mem_request_timeout, config.mem_max_retries, config.mem_retry_backoff)
    return endpoint, policy, config.mem_concurrency


async def close_client(endpoint: Endpoint, config: Config) -> None:
    """Close the running event loop's client for ``endpoint``, where it has one: for addresses that are used once."""
    client = _clients.get(asyncio.get_running_loop(), {}).pop(_key(endpoint, config), None)
    if client is not None:
        await client.close()


async def close_clients() -> None:
    """Close the running event loop's clients."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.close()
