"""Any OpenAI-compatible chat endpoint, asked with patience: MemSifter's frozen chat model, in stage 3 and in training.

``ask`` gives the reply's text, whole as the server tells it, also where its limit cut it or it is empty: those are
replies; ``sampled`` gives all ``samples`` of them. Everything else is a ``ChatFailed``, whose kind, status and one
line say why.

Invariants:
- at most ``concurrency`` requests are on their way from one event loop; each loop has connections of its own;
- an attempt lasts ``timeout_s`` at most, whatever the server sends in bits; attempts follow on timeouts, connection
  errors, HTTP 429 and 5xx only, at most ``retries`` of them, after doubling waits or what ``Retry-After`` asks for;
- a redirect is a refusal, and not followed;
- the key is in the request header and nowhere else: no ``repr``, log line, error or reply holds it, not even where
  the server echoes it;
- proxies and certificates of the environment are taken as ``way_out`` says, credentials of it play no part.
"""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import openai

from ..agents.records import FailureKind
from ..system.bounded_json import loads
from ..system.printable import one_line
from ..system.redirects import Redirected
from .answer_body import BodyTooLong, most_bytes
from .bounded_transport import BoundedTransport
from .chat_settings import ChatFailed, ChatSettings
from .retry_after import LONGEST_WAIT_S, seconds_asked
from .way_out import way_out

_CONNECT_S = 30.0
_TOLD = 200
"""Letters of a server's answer that an error repeats."""
_BUDGETS = ("max_tokens", "max_completion_tokens")
"""OpenAI's two names of a reply's limit; some models know the second one only."""

Messages = Sequence[Mapping[str, str]]


@dataclass(slots=True)
class ChatCounts:
    """What became of all ``ask`` calls so far; retries are attempts beyond each call's first."""

    asked: int = 0
    answered: int = 0
    failed: int = 0
    retries: int = 0
    cut: int = 0
    """Replies that their limit ended."""
    empty: int = 0


@dataclass(frozen=True, slots=True)
class _Loop:
    """What belongs to one event loop."""

    client: openai.AsyncOpenAI
    slots: asyncio.Semaphore


class ChatClient:
    """Asks one model at one address; may be shared by several event loops. Raises ConfigError as ``way_out`` does."""

    def __init__(self, settings: ChatSettings) -> None:
        self.settings = settings
        self._way = way_out(settings.url, settings.is_own)
        self.counts = ChatCounts()
        self._budget = _BUDGETS[0]
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()
        for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):  # they tell of every request
            logger = logging.getLogger(name)
            logger.setLevel(max(logger.level, logging.WARNING))

    def __repr__(self) -> str:
        return f"ChatClient({self.settings!r})"

    async def ask(self, messages: Messages, seed: int | None = None) -> str:
        """The reply to ``messages``, ``{role, content}`` each. Raises ChatFailed."""
        return (await self.sampled(messages, seed))[0]

    async def sampled(self, messages: Messages, seed: int | None = None) -> list[str]:
        """As many replies as the settings say. Raises ChatFailed."""
        self.counts.asked += 1
        own = self._of_this_loop()
        try:
            async with own.slots:
                replies = await self._asked(own.client, messages, seed)
        except ChatFailed:
            self.counts.failed += 1
            raise
        self.counts.answered += 1
        self.counts.empty += not all(replies)
        return replies

    async def served(self) -> list[str]:
        """Names of the models that ``/models`` lists. Raises ChatFailed."""
        client = self._of_this_loop().client
        own = {} if self.settings.key else {"extra_headers": {"Authorization": openai.Omit()}}
        try:
            content = await self._got(client.models.with_raw_response.list(**own))  # type: ignore[arg-type]
        except _Again as failure:
            raise failure.failed from None
        try:
            return [self.settings.redacted(str(entry["id"])) for entry in loads(content)["data"]]
        except (ValueError, LookupError, TypeError):
            raise self._failed(FailureKind.BAD_RESPONSE, "expected a list of models at /models") from None

    async def close(self) -> None:
        """End the running event loop's connections; the next ``ask`` makes new ones."""
        own = self._loops.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own.client.close()

    def _of_this_loop(self) -> _Loop:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for known in self._loops.keyrefs():  # what belongs to a loop that has ended keeps it alive
                if (other := known()) is not None and other.is_closed():
                    self._loops.pop(other, None)
            self._loops[loop] = _Loop(self._connected(), asyncio.Semaphore(self.settings.concurrency))
        return self._loops[loop]

    def _connected(self) -> openai.AsyncOpenAI:
        settings = self.settings
        timeout = openai.Timeout(settings.timeout_s, connect=min(_CONNECT_S, settings.timeout_s))
        base, _, query = settings.url.partition("?")
        return openai.AsyncOpenAI(
            base_url=base, default_query=dict(parse_qsl(query)), api_key=settings.key or "none", max_retries=0,
            timeout=timeout,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False, timeout=timeout, transport=BoundedTransport(
                most_bytes(settings.max_output_tokens * settings.samples), settings.concurrency + 1, self._way,
            )),
        )

    async def _asked(self, client: openai.AsyncOpenAI, messages: Messages, seed: int | None) -> list[str]:
        attempt = 0
        while True:
            budget = self._budget
            try:
                body = self._body(messages, seed, budget)
                return self._read(await self._got(client.chat.completions.with_raw_response.create(**body)))
            except _Again as failure:
                if attempt == self.settings.retries:
                    raise failure.failed from None
                wait = failure.wait or self.settings.backoff_s * 2**attempt * random.uniform(1.0, 1.25)
                attempt += 1
                self.counts.retries += 1
                await asyncio.sleep(min(LONGEST_WAIT_S, wait))
            except ChatFailed as failed:
                if not (failed.status == 400 and budget == _BUDGETS[0] and _BUDGETS[1] in str(failed)):
                    raise
                self._budget = _BUDGETS[1]  # another request, not the same once more

    def _body(self, messages: Messages, seed: int | None, budget: str) -> dict[str, Any]:
        body = {"model": self.settings.model, "messages": list(messages), "temperature": self.settings.temperature}
        body |= {} if self.settings.key else {"extra_headers": {"Authorization": openai.Omit()}}
        body |= {budget: self.settings.max_output_tokens} | ({} if seed is None else {"seed": seed})
        body |= {} if self.settings.top_p is None else {"top_p": self.settings.top_p}
        return body | ({} if self.settings.samples == 1 else {"n": self.settings.samples})

    async def _got(self, request: Awaitable[Any]) -> bytes:
        """What the server answers with HTTP 200.

        Raises _Again where another attempt may help, else ChatFailed; neither keeps the library's error.
        """
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                return (await request).content
        except (openai.APITimeoutError, TimeoutError):
            reason = f"no answer within {self.settings.timeout_s:g} s"
            raise _Again(self._failed(FailureKind.TIMEOUT, reason)) from None
        except openai.APIStatusError as error:
            raise self._status_failure(error) from None
        except (BodyTooLong, Redirected) as error:  # of the transport; older clients make connection errors of them
            raise self._unread(error) from None
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, BodyTooLong | Redirected):
                raise self._unread(error.__cause__) from None
            told = f"nothing answers there ({error.__cause__ or error})"
            remedy = "start it, or correct the address"
            if self._way.proxy:
                remedy = "it was asked through the environment's proxy: correct that, or name the server in NO_PROXY"
            reason = f"{told}; {remedy}"
            raise _Again(self._failed(FailureKind.CONNECTION, reason)) from None
        except (openai.OpenAIError, OSError, ValueError) as error:
            raise self._failed(FailureKind.BAD_RESPONSE, f"{type(error).__name__}: {error}") from None

    def _unread(self, error: BodyTooLong | Redirected) -> ChatFailed:
        if isinstance(error, Redirected):
            return self._failed(FailureKind.REJECTED, str(error), error.status)
        return self._failed(FailureKind.BAD_RESPONSE, str(error))

    def _status_failure(self, error: openai.APIStatusError) -> Exception:
        status, text = error.status_code, error.response.text
        if status == 429 or status >= 500:
            kind = FailureKind.RATE_LIMITED if status == 429 else FailureKind.SERVER_ERROR
            wait = seconds_asked(error.response.headers.get("retry-after"))
            return _Again(self._failed(kind, f"HTTP {status}: {text}", status), wait)
        remedy = {401: "the key is refused: ", 403: "the key is refused: ",
                  404: f"no such route, or no model {self.settings.model!r}: "}.get(status, "")
        return self._failed(FailureKind.REJECTED, f"HTTP {status}: {remedy}{text}", status)

    def _read(self, content: bytes) -> list[str]:
        try:
            choices = loads(content)["choices"][: self.settings.samples]
            if not choices:
                raise LookupError
            replies = [self._text(choice) for choice in choices]
        except (ValueError, LookupError, TypeError, AttributeError):
            shown = content[: 8 * _TOLD].decode("utf-8", "replace")
            raise self._failed(FailureKind.BAD_RESPONSE, f"expected a chat completion, got: {shown}") from None
        if len(replies) < self.settings.samples:
            reason = f"{len(replies)} replies where {self.settings.samples} were asked for"
            raise self._failed(FailureKind.BAD_RESPONSE, reason)
        self.counts.cut += any(choice.get("finish_reason") == "length" for choice in choices)
        return replies

    def _text(self, choice: Any) -> str:
        text = choice["message"].get("content") or ""
        return self.settings.redacted(
            text if isinstance(text, str) else "".join(part.get("text") or "" for part in text)
        )

    def _failed(self, kind: FailureKind, reason: str, status: int = 0) -> ChatFailed:
        told = one_line(self.settings.redacted(reason), _TOLD)
        return ChatFailed(f"{self.settings.url}: {told}", kind, status)


class _Again(Exception):
    """Another attempt may help; after the last one it is ``failed``. ``wait``: seconds the server asks for."""

    def __init__(self, failed: ChatFailed, wait: float = 0.0) -> None:
        super().__init__()
        self.failed = failed
        self.wait = wait
