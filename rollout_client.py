"""Async client of the router in front of the inference engines: token ids in, token ids and log-probs out.

Two dialects, chosen by what the host's ``args`` offer:

- vLLM: ``POST /inference/v1/generate``, routing header ``x-session-id``;
- SGLang: ``POST /generate``, routing header ``X-SMG-Routing-Key``.

Invariants:
- every request carries the key of its GROUP (document), so that siblings meet the same prefix cache;
- a prompt that cannot fit the engine's context is refused before it is sent;
- retries happen on connection errors, 5xx and 429 only, a bounded number of times with doubling waits; a 4xx or a
  timeout is final;
- as many log-probs as sampled ids, all finite, or the turn fails: nothing is ever padded;
- an aborted request is a normal answer with ``StopReason.ABORT``.

Log-probs are passed on as the engine gives them, and trainers compare them with logits divided by the rollout
temperature. SGLang divides by it too, unless started with ``SGLANG_RETURN_ORIGINAL_LOGPROB=1``; vLLM does so with
``--logprobs-mode processed_logprobs``, which vime and the embedded host set. With ``top_p`` or ``top_k`` the two
engines differ: SGLang's are those before the cut, vLLM's those after it, and a trainer knows no cut at all. So
training rollouts sample with ``top_p`` 1 and no ``top_k``.
"""

from __future__ import annotations

import asyncio
import math
import random
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp
import orjson

from .agents.records import FailureKind, Generation, StopReason, TurnFailed
from .config import Config, ConfigError


class Dialect(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send requests, how to word them, and how many tokens a prompt plus its reply may have (0: unknown)."""

    dialect: Dialect
    base_url: str
    max_tokens: int = 0

    @property
    def url(self) -> str:
        return self.base_url + ("/inference/v1/generate" if self.dialect is Dialect.VLLM else "/generate")

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
        if self.endpoint.dialect is Dialect.VLLM:
            return vllm_body(prompt_ids, max_new_tokens, sampling), {"x-session-id": routing_key}
        return sglang_body(prompt_ids, max_new_tokens, sampling), {"X-SMG-Routing-Key": routing_key}

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


# --- wording ------------------------------------------------------------------------------------------------------


def vllm_body(prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """``POST /inference/v1/generate``; ``logprobs: 1`` returns the sampled token's own log-prob first."""
    params = _pick(sampling, ("temperature", "top_p", "top_k", "repetition_penalty", "stop", "stop_token_ids"))
    if sampling.get("min_new_tokens") is not None:
        params["min_tokens"] = sampling["min_new_tokens"]
    seed = seed_of(sampling)
    if seed is not None:
        params["seed"] = seed
    return {"token_ids": prompt_ids, "sampling_params": params | {"max_tokens": max_new_tokens, "logprobs": 1}}


def sglang_body(prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """``POST /generate``."""
    names = ("temperature", "top_p", "top_k", "repetition_penalty", "min_new_tokens", "stop", "stop_token_ids",
             "custom_params")
    params = _pick(sampling, names)
    seed = seed_of(sampling)
    if seed is not None:
        params["sampling_seed"] = seed
    params |= {
        "max_new_tokens": max_new_tokens,
        "skip_special_tokens": False,
        "no_stop_trim": True,
        "spaces_between_special_tokens": False,
    }
    return {"input_ids": prompt_ids, "sampling_params": params, "return_logprob": True}


def _pick(source: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    # Some hosts switch top_k off with 0, which SGLang refuses.
    return {n: source[n] for n in names if source.get(n) is not None and not (n == "top_k" and source[n] == 0)}


def seed_of(sampling: Mapping[str, Any]) -> int | None:
    """The request's seed: vLLM hosts call it ``seed``, SGLang hosts ``sampling_seed``."""
    return sampling["seed"] if sampling.get("seed") is not None else sampling.get("sampling_seed")


# --- reading ------------------------------------------------------------------------------------------------------


def parse_vllm(answer: Mapping[str, Any]) -> Generation:
    """One choice of ``/inference/v1/generate``."""
    choice = answer["choices"][0]
    ids = choice["token_ids"]
    content = (choice.get("logprobs") or {}).get("content") or []
    for position, (token_id, entry) in enumerate(zip(ids, content, strict=False)):
        if entry.get("token_id", token_id) != token_id:
            raise ValueError(f"log-prob {position} belongs to token {entry['token_id']}, sampled was {token_id}")
    usage = answer.get("usage") or {}
    return _generation(
        ids,
        [entry["logprob"] for entry in content],
        choice["finish_reason"],
        _versions(choice.get("weight_versions"), answer.get("weight_version")),
        (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
    )


def parse_sglang(answer: Mapping[str, Any]) -> Generation:
    """An answer of ``/generate``; ids come from ``output_token_logprobs``, entries ``[log-prob, id, text]``."""
    meta = answer["meta_info"]
    entries = meta.get("output_token_logprobs") or []
    ids = [entry[1] for entry in entries]
    sampled = answer.get("output_ids")
    aborted = _stop_reason(meta["finish_reason"]) is StopReason.ABORT
    if sampled is not None and list(sampled) != ids and not aborted:
        raise ValueError(f"{len(sampled)} output ids do not match the {len(ids)} ids with log-probs")
    return _generation(
        ids,
        [entry[0] for entry in entries],
        meta["finish_reason"],
        _versions(meta.get("weight_versions"), meta.get("weight_version")),
        meta.get("cached_tokens") or 0,
    )


def _versions(spans: list[Mapping[str, Any]] | None, last: Any) -> str:
    """Every weight version that sampled a part of the answer, in order, joined by ``+``."""
    return "+".join(dict.fromkeys(str(span["version"]) for span in spans or ())) or str(last or "")


_STOP_REASONS = {
    "stop": StopReason.STOP,
    "length": StopReason.LENGTH,
    "abort": StopReason.ABORT,
    "cancelled": StopReason.ABORT,
}


def _stop_reason(finish: Any) -> StopReason:
    reason = finish["type"] if isinstance(finish, Mapping) else finish
    if reason not in _STOP_REASONS:
        raise ValueError(f"finish reason {reason!r}; known are {', '.join(_STOP_REASONS)}")
    return _STOP_REASONS[reason]


def _generation(ids: list[int], log_probs: list[float], finish: Any, version: str, cached: int) -> Generation:
    reason = _stop_reason(finish)
    if reason is StopReason.ABORT:
        # Partial tokens of an aborted request are never used; some servers send them without log-probs.
        return Generation([], [], reason, version, int(cached))
    if not ids:
        raise ValueError("no token was sampled")
    if len(ids) != len(log_probs):
        raise ValueError(f"{len(log_probs)} log-probs for {len(ids)} sampled tokens")
    if not all(type(i) is int and i >= 0 for i in ids):
        raise ValueError("a sampled id is not a whole number from 0 on")
    if not all(type(p) in (int, float) and math.isfinite(p) and p < 0.01 for p in log_probs):
        raise ValueError("a log-prob is not a finite number up to 0")
    return Generation(list(ids), [float(p) for p in log_probs], reason, version, int(cached))
