"""The router in front of the inference engines: token ids in, token ids and log-probs out.

    with client_for(endpoint, concurrency).trajectory("group-3", siblings=8) as session:
        [reply] = await session.sample([request], number, how)         # one round of turns, side by side

Two dialects: vLLM's (vime, the embedded host, ``--logprobs-mode processed_logprobs``) and SGLang's (slime):

- as many log-probs as sampled ids, all finite, or the answer is refused: nothing is padded;
- siblings meet at one engine for each chunk: routers keep a key at one engine, so the key of a turn is its group and
  the ids that all of it begin with (``shared_ids``). A key that the whole group has left is ended, since vLLM's router
  sends a new key where the fewest are bound::

      group-3, question, chunk 0  ->  group-3/5f0c..  engine A    all 8 siblings

- vLLM computes a prefix once for requests that arrive together, SGLang only if the prefix is ready before: there the
  first sibling at a chunk sends the shared ids ahead, for one token, and the others wait for that;
- of the requests that wait for a slot, the one with the greatest weight (chunks left to read) is sent first;
- connection errors, 5xx and 429 are tried again, a 4xx and a timeout are not; an abort is a normal answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import aiohttp
import orjson

from .agents.records import FailureKind, Generation, StopReason, TurnFailed, TurnRequest
from .system.concurrency import PriorityGate, gather_or_cancel
from .system.server_url import seconds_asked, uses_proxy
from .system.text import one_line

GENERATE = "/inference/v1/generate"
TIMEOUT_S, RETRIES, BACKOFF_S = 600.0, 5, 0.5
PASSING = (FailureKind.CONNECTION, FailureKind.SERVER_ERROR)  # a next attempt may succeed
WORTH_TOKENS = 256  # a shorter prefix is computed sooner than a request that goes ahead is answered
MALFORMED = (LookupError, TypeError, ValueError, AttributeError)  # what reading an answer of a wrong shape raises
NO_ANSWER = (aiohttp.ClientError, OSError, ValueError)  # a timeout is an OSError, bad JSON a ValueError


class Dialect(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"


_BOTH = {name: name for name in ("temperature", "top_p", "top_k", "repetition_penalty", "stop", "stop_token_ids")}
_NAMES = {  # a host's name of a sampling parameter -> the engine's
    Dialect.VLLM: _BOTH | {"seed": "seed", "min_new_tokens": "min_tokens"},
    Dialect.SGLANG: _BOTH | {n: n for n in ("min_new_tokens", "custom_params")} | {"seed": "sampling_seed"},
}


NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""What servers of OpenAI's APIs fill in from a model's generation_config.json unless a request says otherwise."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A router or server and how it is spoken to; evaluation derives one that speaks OpenAI's APIs."""

    dialect: Dialect
    base_url: str
    max_tokens: int = 0
    """Most tokens of a prompt with its reply; 0: unknown."""
    salted: bool = False
    """Give each routing key a prefix cache of its own (vLLM's ``cache_salt``)."""

    @property
    def url(self) -> str:
        return self.base_url + (GENERATE if self.dialect is Dialect.VLLM else "/generate")

    @property
    def is_vllm(self) -> bool:
        return self.dialect is Dialect.VLLM  # which streams replies, and whose router ends routing keys

    def build_request(
        self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any], key: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Body and headers of one generation request."""
        params = {own: sampling[n] for n, own in _NAMES[self.dialect].items() if sampling.get(n) is not None}
        if self.dialect is Dialect.SGLANG:
            params |= {"max_new_tokens": max_new_tokens, "skip_special_tokens": False, "no_stop_trim": True,
                       "spaces_between_special_tokens": False}
            body = {"input_ids": prompt_ids, "sampling_params": params, "return_logprob": True}
            return body, {"X-SMG-Routing-Key": key}
        params |= {"max_tokens": max_new_tokens, "logprobs": 1}
        salt = {"cache_salt": key} if self.salted else {}
        return {"token_ids": prompt_ids, "sampling_params": params} | salt, {"x-session-id": key}

    def parse_response(self, answer: Any) -> Generation:
        """Raises one of MALFORMED where anything is missing or does not match."""
        return parse_vllm(answer) if self.dialect is Dialect.VLLM else parse_sglang(answer)

    def redacted(self, text: str) -> str:
        return text  # a plain endpoint has no key to remove


def parse_vllm(answer: Mapping[str, Any]) -> Generation:
    """The one choice of ``/inference/v1/generate``."""
    choice = answer["choices"][0]
    content, ids = (choice.get("logprobs") or {}).get("content") or [], choice["token_ids"]
    scored = ((entry.get("token_id", i), entry["logprob"]) for i, entry in zip(ids, content, strict=True))
    cached = ((answer.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens")
    return _generation(ids, scored, choice["finish_reason"], {**answer, **choice}, cached)


def parse_sglang(answer: Mapping[str, Any]) -> Generation:
    """An answer of ``/generate``; ``output_token_logprobs`` has entries ``[log-prob, id, text]``."""
    meta = answer["meta_info"]
    scored = [(entry[1], entry[0]) for entry in meta.get("output_token_logprobs") or []]
    ids = answer.get("output_ids", [i for i, _ in scored])
    return _generation(ids, scored, meta["finish_reason"], meta, meta.get("cached_tokens"))


def _generation(ids: Any, scored: Iterable[tuple[int, float]], finish: Any, meta: Any, cached: Any) -> Generation:
    """``scored`` are ids with their log-probs; ``meta`` names the weight versions that sampled the reply, in order."""
    finish = finish["type"] if isinstance(finish, Mapping) else finish
    stop, spans = StopReason("abort" if finish == "cancelled" else finish), meta.get("weight_versions") or ()
    version = "+".join(dict.fromkeys(str(s["version"]) for s in spans)) or str(meta.get("weight_version") or "")
    if stop is StopReason.ABORT:  # partial tokens are not used; some servers send them without log-probs
        return Generation([], [], stop, version, cached)
    of, log_probs = [list(column) for column in zip(*scored, strict=True)] or [[], []]
    if not ids or list(ids) != of:
        raise ValueError(f"log-probs of {len(of)} tokens do not match the {len(ids)} sampled")
    if not all(math.isfinite(p) and p < 0.01 for p in log_probs):
        raise ValueError("a log-prob is not a finite number up to 0")
    return Generation(list(ids), list(map(float, log_probs)), stop, version, cached)


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How the requests of a round are sent."""

    sampling: Mapping[str, Any]
    """Parameters of ``hooks.host.sampling_of``; the turn's own budget replaces ``max_new_tokens``."""
    is_aborted: Callable[[], bool] = lambda: False
    """Asked before each attempt; once it is true, nothing is sent."""
    weight: float = 0.0
    stream: Any = None
    """Reads a reply as it comes (``await stream.read(response)``); ``stream.begun``: some of it was shown."""


class RouterClient:
    """One connection pool of one event loop; take it from ``client_for``."""

    def __init__(self, endpoint: Endpoint, concurrency: int) -> None:
        self.endpoint = endpoint
        self.answered: Counter[str] = Counter()  # totals: turns, sampled_tokens
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S, connect=30.0)
        connector = aiohttp.TCPConnector(limit=concurrency + 1, keepalive_timeout=60)  # one more for ended keys
        proxied, headers = uses_proxy(endpoint.base_url), {"Content-Type": "application/json"}
        self._http = aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=proxied, headers=headers)
        self._slots = PriorityGate(concurrency)
        self._groups: dict[str, _Group] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._ends_keys = endpoint.is_vllm  # until a server turns out to have no such route

    async def close(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending, timeout=1.0)
        await self._http.close()

    async def generate(self, prompt_ids: list[int], max_new_tokens: int, key: str, how: How) -> Generation:
        """Sample one reply under a routing ``key``. Raises TurnFailed; its kind says why."""
        limit, size = self.endpoint.max_tokens, len(prompt_ids) + max_new_tokens
        if limit and size > limit:
            raise TurnFailed(FailureKind.LONG_PROMPT, f"prompt and reply of {size} tokens exceed an engine's {limit}; "
                             "lower MEM_CHUNK_TOKENS or MEM_MAX_MEMORY")
        body, headers = self.endpoint.build_request(prompt_ids, max_new_tokens, how.sampling, key)
        stream = how.stream if self.endpoint.is_vllm else None
        data = orjson.dumps(body | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {}))
        async with self._slots.slot(how.weight):
            for attempt in range(RETRIES + 1):
                if how.is_aborted():
                    return Generation([], [], StopReason.ABORT)
                try:
                    reply = self.endpoint.parse_response(await self._post(data, headers, stream))
                    break
                except MALFORMED as error:
                    raise self._failed(FailureKind.BAD_RESPONSE, error) from None
                except TurnFailed as failure:
                    if failure.kind not in PASSING or attempt == RETRIES or (stream and stream.begun):
                        raise
                    await asyncio.sleep(max(failure.wait, BACKOFF_S * 2.0**attempt * random.uniform(1.0, 1.25)))
        self.answered.update(turns=1, sampled_tokens=len(reply.token_ids))
        return reply

    async def _post(self, data: bytes, headers: Mapping[str, str], stream: Any) -> Any:
        try:
            async with self._http.post(self.endpoint.url, data=data, headers=headers) as response:
                if response.status == 200:
                    streamed = stream and response.content_type == "text/event-stream"
                    return await stream.read(response) if streamed else orjson.loads(await response.read())
                status, text = response.status, await response.text(errors="replace")
        except aiohttp.ClientError as error:
            raise self._failed(FailureKind.CONNECTION, error) from None
        except TimeoutError:
            raise self._failed(FailureKind.TIMEOUT, f"no answer within {TIMEOUT_S:g} s") from None
        wait = seconds_asked(response.headers.get("Retry-After"))
        raise self._failed(FailureKind.of_status(status), f"HTTP {status}: {text}", wait)

    def _failed(self, kind: FailureKind, reason: Exception | str, wait: float = 0.0) -> TurnFailed:
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        return TurnFailed(kind, f"{self.endpoint.url}: {one_line(self.endpoint.redacted(text), 300)}", wait)

    @contextmanager
    def trajectory(self, name: str, siblings: int) -> Iterator[Session]:
        """One of ``siblings`` or more trajectories of group ``name``, for as long as it reads."""
        group = self._groups.setdefault(name, _Group(name, siblings))
        session, group.open = Session(self, group), group.open + 1
        group.siblings = max(group.siblings, group.open + len(group.ended))  # hosts tell evaluation of no groups
        try:
            yield session
        finally:
            group.open -= 1
            group.ended.add(session)
            session.leave(group.left)
            if not group.open:
                self.end_keys(self._groups.pop(name), list(group.left))
                for task in group.ahead.values():
                    task.cancel()

    def end_keys(self, group: _Group, keys: Sequence[str]) -> None:
        """Tell the router that nobody will use ``keys`` again. Only balance depends on it, so nobody waits for it."""

        async def end(key: str) -> None:
            with suppress(*NO_ANSWER):
                url = f"{self.endpoint.base_url}/finish_session"
                async with self._http.post(url, params={"session_id": key}) as reply:
                    self._ends_keys = reply.status == 200

        for key in keys:
            del group.left[key]
            if self._ends_keys and not self._http.closed:
                self._ending.add(task := asyncio.ensure_future(end(key)))
                task.add_done_callback(self._ending.discard)


@dataclass(slots=True)
class _Group:
    name: str
    siblings: int
    open: int = 0
    ended: set[Session] = field(default_factory=set)
    left: dict[str, set[Session]] = field(default_factory=dict)  # key -> trajectories that have gone on
    ahead: dict[str, asyncio.Task[Any]] = field(default_factory=dict)  # key -> the request that was sent ahead


class Session:
    """The requests of one trajectory of a group."""

    def __init__(self, client: RouterClient, group: _Group) -> None:
        self._client, self._group = client, group
        self._asked: set[str] = set()

    async def sample(self, requests: Sequence[TurnRequest], number: int, how: How) -> list[Generation]:
        """The replies to one round of turns, the first of which has ``number``. Raises TurnFailed."""
        keys = [turn_key(self._group.name, request) for request in requests]
        for key in keys:
            self._group.left.setdefault(key, set())
        self.leave(self._asked - set(keys))
        self._asked = set(keys)
        asked = zip(requests, keys, strict=True)
        return await gather_or_cancel(*(self._sample(*one, number + i, how) for i, one in enumerate(asked)))

    async def _sample(self, request: TurnRequest, key: str, number: int, how: How) -> Generation:
        if (seed := how.sampling.get("seed")) is not None:  # each turn has its own: a function of seed and number
            how = replace(how, sampling={**how.sampling, "seed": random.Random(f"{seed}/{number}").getrandbits(31)})
        computed_once = self._client.endpoint.dialect is Dialect.VLLM or self._group.siblings == 1
        shared = shared_ids(request)
        if len(shared) >= WORTH_TOKENS and not computed_once:
            if key not in self._group.ahead:  # a task of its own: this trajectory may be cancelled
                self._group.ahead[key] = asyncio.ensure_future(self._client.generate(shared, 1, key, how))
            await asyncio.wait({self._group.ahead[key]})  # whatever becomes of it
        return await self._client.generate(request.prompt_ids, request.max_new_tokens, key, how)

    def leave(self, keys: Iterable[str]) -> None:
        """This trajectory will not ask for ``keys`` again; a key that all siblings have left ends."""
        for key in set(keys) & self._group.left.keys():
            self._group.left[key].add(self)
            if len(self._group.left[key] | self._group.ended) >= self._group.siblings:
                self._client.end_keys(self._group, [key])


def shared_ids(request: TurnRequest) -> list[int]:
    """The ids that every reader of a section begins with: at most to its end, since questions behind it differ."""
    return request.prompt_ids[: min(request.shared, request.section.end if request.section else request.shared)]


def turn_key(group: str, request: TurnRequest) -> str:
    """The routing key of a turn: its group and the ids that siblings share."""
    shared = array("I", shared_ids(request)).tobytes()
    return f"{group}/{hashlib.sha256(shared).hexdigest()[:16]}" if shared else group


_clients: weakref.WeakKeyDictionary[Any, dict[Endpoint, RouterClient]] = weakref.WeakKeyDictionary()


def client_for(endpoint: Endpoint, concurrency: int) -> RouterClient:
    """The running event loop's one client of ``endpoint``."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if endpoint not in clients:
        clients[endpoint] = RouterClient(endpoint, concurrency)
    return clients[endpoint]


def answered(loop: asyncio.AbstractEventLoop) -> Counter[str]:
    """The totals of all clients of ``loop``; any thread may ask."""
    return sum((client.answered for client in list(_clients.get(loop, {}).values())), Counter())


async def close_clients(endpoint: Endpoint | None = None) -> None:
    """Close the running event loop's clients, or that of ``endpoint`` alone."""
    clients = _clients.get(asyncio.get_running_loop(), {})
    for one in [one for one in clients if endpoint in (None, one)]:
        await clients.pop(one).close()
