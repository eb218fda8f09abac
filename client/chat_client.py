"""Any OpenAI-compatible chat endpoint: MemSifter's frozen chat model, the closed-book filter, the judge.

``ask`` gives the reply's text, also where its limit cut it or it is empty; ``sampled`` gives all ``samples`` of them.
Everything else is a ``ChatFailed``. The library retries timeouts, connection errors, HTTP 408, 409, 429 and 5xx, and
waits as long as ``Retry-After`` asks. At most ``concurrency`` requests are on their way from one event loop; each loop
has connections of its own. The key is in the request header alone, never in a ``repr``, log line or error.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import openai

from ..agents.records import FailureKind
from ..system.text import one_line
from .chat_settings import ChatFailed, ChatSettings, without_key
from .server_session import uses_proxy

_SHOWN = 200
"""Characters of a server's error that a message repeats."""
_BUDGETS = ("max_tokens", "max_completion_tokens")
"""OpenAI's two names of a reply's limit; some models know the second one only."""

Messages = Sequence[Mapping[str, str]]
_OfLoop = tuple[openai.AsyncOpenAI, asyncio.Semaphore]


@dataclass(slots=True)
class ChatCounts:
    """Calls so far."""

    asked: int = 0
    answered: int = 0
    failed: int = 0


class ChatClient:
    """Asks one model at one address; may be shared by several event loops."""

    def __init__(self, settings: ChatSettings) -> None:
        self.settings = settings
        self.counts = ChatCounts()
        self._budget = _BUDGETS[0]
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = weakref.WeakKeyDictionary()
        for name in ("openai", "httpx", "httpx2"):  # they log every request
            logging.getLogger(name).setLevel(logging.WARNING)

    async def ask(self, messages: Messages, seed: int | None = None) -> str:
        """The reply to ``messages``, ``{role, content}`` each. Raises ChatFailed."""
        return (await self.sampled(messages, seed))[0]

    async def sampled(self, messages: Messages, seed: int | None = None) -> list[str]:
        """As many replies as the settings say. Raises ChatFailed."""
        self.counts.asked += 1
        client, slots = self._of_this_loop()
        try:
            async with slots:
                replies = await self._asked(client, messages, seed)
        except ChatFailed:
            self.counts.failed += 1
            raise
        self.counts.answered += 1
        return replies

    async def served(self) -> list[str]:
        """Names of the models that ``/models`` lists. Raises ChatFailed."""
        client, _ = self._of_this_loop()
        try:
            return [model.id for model in (await client.models.list()).data]
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            raise self._failure(error) from None

    async def close(self) -> None:
        """End the running event loop's connections; the next ``ask`` makes new ones."""
        own = self._loops.pop(asyncio.get_running_loop(), None)
        if own is not None:
            await own[0].close()

    def _of_this_loop(self) -> _OfLoop:
        loop, settings = asyncio.get_running_loop(), self.settings
        if loop not in self._loops:
            base, _, query = settings.url.partition("?")
            proxy = not settings.is_own and uses_proxy(base)
            client = openai.AsyncOpenAI(
                base_url=base, default_query=dict(parse_qsl(query)), api_key=settings.key or "EMPTY",
                max_retries=settings.retries, http_client=openai.DefaultAsyncHttpxClient(trust_env=proxy),
                timeout=openai.Timeout(settings.timeout_s, connect=min(30.0, settings.timeout_s)),
            )
            self._loops[loop] = client, asyncio.Semaphore(settings.concurrency)
        return self._loops[loop]

    async def _asked(self, client: openai.AsyncOpenAI, messages: Messages, seed: int | None) -> list[str]:
        settings, budget = self.settings, self._budget
        body: dict[str, Any] = {budget: settings.max_output_tokens, "temperature": settings.temperature}
        body |= {"seed": seed} if seed is not None else {}
        body |= {"top_p": settings.top_p} if settings.top_p is not None else {}
        body |= {"n": settings.samples} if settings.samples > 1 else {}
        try:
            answer = await client.chat.completions.create(
                model=settings.model, messages=list(messages), **body  # type: ignore[arg-type]
            )
            replies = [_text(choice.message.content) for choice in answer.choices[: settings.samples]]
        except openai.BadRequestError as error:
            if budget == _BUDGETS[0] and _BUDGETS[1] in error.response.text:
                self._budget = _BUDGETS[1]
                return await self._asked(client, messages, seed)
            raise self._failure(error) from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            raise self._failure(error) from None
        if len(replies) < settings.samples:
            reason = f"{len(replies)} replies, {settings.samples} were asked for"
            raise self._failed(FailureKind.BAD_RESPONSE, reason)
        return replies

    def _failure(self, error: Exception) -> ChatFailed:
        if isinstance(error, openai.APIStatusError):
            status = error.status_code
            kind = FailureKind.SERVER_ERROR if status >= 500 else FailureKind.REJECTED
            kind = FailureKind.RATE_LIMITED if status == 429 else kind
            remedy = {401: "the key is refused: ", 403: "the key is refused: ",
                      404: f"no such route, or no model {self.settings.model!r}: "}.get(status, "")
            return self._failed(kind, f"HTTP {status}: {remedy}{error.response.text}", status)
        if isinstance(error, openai.APITimeoutError):
            return self._failed(FailureKind.TIMEOUT, f"no answer within {self.settings.timeout_s:g} s")
        if isinstance(error, openai.APIConnectionError):
            reason = f"nothing answers there ({error.__cause__ or error}); start it, or correct the address or proxy"
            return self._failed(FailureKind.CONNECTION, reason)
        return self._failed(FailureKind.BAD_RESPONSE, f"expected a chat completion: {type(error).__name__}: {error}")

    def _failed(self, kind: FailureKind, reason: str, status: int = 0) -> ChatFailed:
        return ChatFailed(f"{self.settings.url}: {one_line(without_key(reason, self.settings.key), _SHOWN)}", kind,
                          status)


def _text(content: Any) -> str:
    """A message's content: none, a text, or a list of parts with texts."""
    return "".join(part.get("text") or "" for part in content) if isinstance(content, list) else content or ""
