"""Async client of the router in front of the inference engines: token ids in, token ids and log-probs out.

The dialect (``hooks/engine_api.py``) is chosen by what the host's ``args`` offer.

Invariants:
- every request carries the key of its GROUP (document), so that siblings meet the same prefix cache;
- a prompt that cannot fit the engine's context is refused before it is sent;
- retries happen on connection errors, 5xx and 429 only, a bounded number of times with doubling waits; a 4xx or a
  timeout is final;
- an aborted request is a normal answer with ``StopReason.ABORT``.
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from .agents.records import FailureKind, Generation, StopReason, TurnFailed
from .config import Config, ConfigError
from .hooks.engine_api import Dialect, parse_sglang, parse_vllm, sglang_body, vllm_body


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send requests, how to word them, and how many tokens a prompt plus its reply may have (0: unknown)."""

    dialect: Dialect
    base_url: str
    max_tokens: int = 0

    @property
    def url(self) -> str:
        return self.base_url + self.dialect.path

    def client(self, policy: RetryPolicy, concurrency: int) -> RouterClient:
        """A client for this endpoint; evaluation has endpoints that are worded otherwise."""
        return RouterClient(self, policy, concurrency)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    timeout: float
    """Seconds for one attempt."""
    retries: int
    backoff: float
    """Seconds before the first retry; doubles, with up to 25% jitter, capped at 30 s."""

    def wait(self, attempt: int) -> float:
        return min(30.0, self.backoff * 2**attempt) * random.uniform(1.0, 1.25)


def endpoint_from_args(args: Any, config: Config) -> Endpoint:
    """Read the host's router address, unless ``args.mem_agent_endpoint`` is one already.

    ``getattr`` defaults are the hosts' contract: each offers only its own names.
    """
    ready = getattr(args, "mem_agent_endpoint", None)
    if isinstance(ready, Endpoint):
        return ready
    for dialect, length in ((Dialect.VLLM, "vllm_max_model_len"), (Dialect.SGLANG, "sglang_context_length")):
        ip = getattr(args, f"{dialect}_router_ip", None)
        port = getattr(args, f"{dialect}_router_port", None)
        if ip and port:
            host = f"[{ip}]" if ":" in ip and not ip.startswith("[") else ip
            # vime sizes its engines by ``rollout_max_context_len`` where the engine's own flag is not set.
            offered = getattr(args, length, None) or getattr(args, "rollout_max_context_len", None)
            limit = config.mem_max_prompt_tokens or offered or 0
            return Endpoint(dialect, f"http://{host}:{port}", int(limit))
    raise ConfigError("no router: args has neither vllm_router_ip/port nor sglang_router_ip/port")


class RouterClient:
    """One keep-alive connection pool; make it inside the event loop that uses it, or take it from ``client_for``."""

    def __init__(self, endpoint: Endpoint, policy: RetryPolicy, concurrency: int) -> None:
        self.endpoint = endpoint
        self.policy = policy
        self.retries_done = 0
        timeout = aiohttp.ClientTimeout(total=policy.timeout, connect=min(30.0, policy.timeout))
        connector = aiohttp.TCPConnector(limit=concurrency, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=False)
        self._slots = asyncio.Semaphore(concurrency)

    async def close(self) -> None:
        await self._session.close()

    async def generate(
        self,
        prompt_ids: list[int],
        max_new_tokens: int,
        sampling: Mapping[str, Any],
        routing_key: str,
        is_aborted: Callable[[], bool] = lambda: False,
    ) -> Generation:
        """Sample one reply.

        Args:
            sampling: the host's sampling parameters (``temperature``, ``top_p``, ``top_k``, ``stop_token_ids``,
                ``seed`` ...); only read. Its ``max_new_tokens`` is replaced by this turn's own.
            routing_key: the group's key.
            is_aborted: asked right before each attempt; a request that still waits then is never sent.

        Raises:
            TurnFailed: the kind says why.
        """
        limit = self.endpoint.max_tokens
        if limit and len(prompt_ids) + max_new_tokens > limit:
            raise TurnFailed(
                FailureKind.LONG_PROMPT,
                f"prompt of {len(prompt_ids)} + reply of {max_new_tokens} tokens exceed the engine's {limit}; "
                f"lower MEM_CHUNK_TOKENS or MEM_MAX_MEMORY",
            )
        body, headers = self.worded(prompt_ids, max_new_tokens, sampling, routing_key)
        async with self._slots:
            answer = await self._post(orjson.dumps(body), headers, is_aborted)
        if answer is None:
            return Generation([], [], StopReason.ABORT)
        try:
            return self.parsed(answer)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise TurnFailed(
                FailureKind.BAD_RESPONSE, f"{self.endpoint.url}: {type(error).__name__}: {error}"
            ) from error

    def worded(
        self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any], routing_key: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The request's body and headers in the endpoint's dialect."""
        dialect = self.endpoint.dialect
        make_body = vllm_body if dialect is Dialect.VLLM else sglang_body
        return make_body(prompt_ids, max_new_tokens, sampling), {dialect.routing_header: routing_key}

    def parsed(self, answer: Any) -> Generation:
        """What an answer in the endpoint's dialect holds; anything that is amiss in it is an ordinary exception."""
        return parse_vllm(answer) if self.endpoint.dialect is Dialect.VLLM else parse_sglang(answer)

    async def _post(self, body: bytes, headers: Mapping[str, str], is_aborted: Callable[[], bool]) -> Any:
        """The answer, or None where the host asked to end before it was sent."""
        for attempt in range(self.policy.retries + 1):
            if is_aborted():
                return None
            failure = None
            try:
                async with self._session.post(
                    self.endpoint.url, data=body, headers={**headers, "Content-Type": "application/json"}
                ) as response:
                    content = await response.read()
                    failure = self._status_failure(response.status, content)
                    if failure is None:
                        return orjson.loads(content)
                    if failure.kind is FailureKind.REJECTED:
                        raise failure
            except aiohttp.ConnectionTimeoutError as error:
                failure = self._failure(FailureKind.CONNECTION, error)
            except TimeoutError as error:
                reason = f"no answer within {self.policy.timeout:g} s (MEM_REQUEST_TIMEOUT)"
                raise TurnFailed(FailureKind.TIMEOUT, f"{self.endpoint.url}: {reason}") from error
            except aiohttp.ClientError as error:
                failure = self._failure(FailureKind.CONNECTION, error)
            except orjson.JSONDecodeError as error:
                raise self._failure(FailureKind.BAD_RESPONSE, error) from error
            if attempt == self.policy.retries:
                raise failure
            self.retries_done += 1
            await asyncio.sleep(self.policy.wait(attempt))
        raise AssertionError("unreachable")

    def _status_failure(self, status: int, content: bytes) -> TurnFailed | None:
        if status == 200:
            return None
        kind = FailureKind.SERVER_ERROR if status >= 500 or status == 429 else FailureKind.REJECTED
        text = " ".join(content[:300].decode("utf-8", "replace").split())
        return TurnFailed(kind, f"{self.endpoint.url}: HTTP {status}: {text}")

    def _failure(self, kind: FailureKind, error: Exception) -> TurnFailed:
        return TurnFailed(kind, f"{self.endpoint.url}: {type(error).__name__}: {error}")


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, RouterClient]] = weakref.WeakKeyDictionary()


def client_for(endpoint: Endpoint, config: Config) -> RouterClient:
    """The running event loop's shared client for ``endpoint``."""
    policy = RetryPolicy(config.mem_request_timeout, config.mem_max_retries, config.mem_retry_backoff)
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    key = (endpoint, policy, config.mem_concurrency)
    if key not in clients:
        clients[key] = endpoint.client(policy, config.mem_concurrency)
    return clients[key]


async def close_clients() -> None:
    """Close the running event loop's clients."""
    for client in _clients.pop(asyncio.get_running_loop(), {}).values():
        await client.close()
