"""Any OpenAI-compatible chat endpoint: MemSifter's frozen chat model, the closed-book filter, the judge.

``ask`` gives the reply's text, even if it was cut off or is empty; ``replies`` gives all ``samples`` of them.
Everything else is a ``ChatFailed``. The library retries timeouts, connection errors, HTTP 408, 409, 429 and 5xx, and
waits as long as ``Retry-After`` asks. What servers would fill in from a model's generation_config.json is sent
neutrally where they take it. At most ``concurrency`` requests are in flight from one event loop; each loop
has its own connections. The key is in the request header alone, never in a ``repr``, log line or error.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import openai

from ..agents.records import FailureKind
from ..rollout_client import NEUTRAL
from ..system.errors import MemAgentError, reason_of
from ..system.server_url import KEYS, chat_base, uses_proxy, without_key
from ..system.text import one_line


class ChatFailed(MemAgentError):
    """No reply; ``kind`` is the reason, ``status`` the HTTP status, or 0 where there is none."""

    def __init__(self, message: str, kind: FailureKind, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status

    @property
    def holds_for_all(self) -> bool:
        """Whether every other request would fail the same way: the key, the route or the model's name is wrong."""
        return self.status in (401, 403, 404)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Raises ConfigError where the address cannot be used."""

    url: str
    """``http://HOST:PORT``, or OpenAI's base with its path and query, ``https://HOST/v1`` (``chat_base``)."""
    model: str
    key: str = field(default="", repr=False)
    concurrency: int = 32
    timeout_s: float = 300.0
    """Seconds for one attempt."""
    retries: int = 3
    max_output_tokens: int = 4096
    temperature: float = 0.6
    top_p: float | None = None
    samples: int = 1
    """Replies to one request."""
    thinking: bool | None = None
    """What a template with ``enable_thinking`` is told; None: nothing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key.strip())  # an error repeats it escaped otherwise
        object.__setattr__(self, "url", chat_base("the address of the chat model", self.url, " or ".join(KEYS)))


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    cut: bool
    """Whether the limit of its tokens ended it."""


_SHAPES = [(limit, neutral) for neutral in ({"top_p": 1.0} | NEUTRAL, {})
           for limit in ("max_tokens", "max_completion_tokens")]
"""How a request may be made: the limit's name, of which some models accept only the newer, and what is said neutrally,
which strict servers refuse."""

Messages = Sequence[Mapping[str, str]]
T = TypeVar("T")


class ChatClient:
    """Asks one model at one address; may be shared by several event loops."""

    def __init__(self, settings: ChatSettings) -> None:
        self.settings = settings
        self.answered = 0
        """Calls so far that were answered."""
        self._shapes: Sequence[tuple[str, Mapping[str, Any]]] = _SHAPES  # until a server has taken one
        self._loops: MutableMapping[Any, tuple[openai.AsyncOpenAI, asyncio.Semaphore]] = weakref.WeakKeyDictionary()
        for name in ("openai", "httpx", "httpx2"):  # they log every request
            logging.getLogger(name).setLevel(logging.WARNING)

    async def ask(self, messages: Messages, seed: int | None = None) -> str:
        """The reply to ``messages``, ``{role, content}`` each. Raises ChatFailed."""
        return (await self.replies(messages, seed))[0].text

    async def replies(self, messages: Messages, seed: int | None = None) -> list[Reply]:
        """As many replies as the settings say, and how each ended. Raises ChatFailed."""
        replies = await self._told(lambda client: self._asked(client, messages, seed))
        self.answered += 1
        return replies

    async def served(self) -> dict[str, int]:
        """The models that ``/models`` lists, and the tokens of their contexts; 0 where the server does not say.

        Raises ChatFailed.
        """

        async def listed(client: openai.AsyncOpenAI) -> dict[str, int]:
            models = (await client.models.list()).data
            return {model.id: int(getattr(model, "max_model_len", None) or 0) for model in models}

        return await self._told(listed)

    async def close(self) -> None:
        """End the running event loop's connections; the next ``ask`` makes new ones."""
        if own := self._loops.pop(asyncio.get_running_loop(), None):
            await own[0].close()

    def _of_this_loop(self) -> tuple[openai.AsyncOpenAI, asyncio.Semaphore]:
        loop, settings = asyncio.get_running_loop(), self.settings
        if loop not in self._loops:
            base, _, query = settings.url.partition("?")
            client = openai.AsyncOpenAI(
                base_url=base, default_query=dict(parse_qsl(query)), api_key=settings.key or "EMPTY",
                max_retries=settings.retries, http_client=openai.DefaultAsyncHttpxClient(trust_env=uses_proxy(base)),
                timeout=openai.Timeout(settings.timeout_s, connect=min(30.0, settings.timeout_s)))
            self._loops[loop] = client, asyncio.Semaphore(settings.concurrency)
        return self._loops[loop]

    async def _asked(self, client: openai.AsyncOpenAI, messages: Messages, seed: int | None) -> list[Reply]:
        settings, refusals = self.settings, list[Exception]()
        body: Any = {"model": settings.model, "messages": messages, "temperature": settings.temperature}
        optional = {"top_p": settings.top_p, "seed": seed, "n": settings.samples if settings.samples > 1 else None}
        body |= {name: value for name, value in optional.items() if value is not None}
        own = {} if settings.thinking is None else {"chat_template_kwargs": {"enable_thinking": settings.thinking}}
        for limit, neutral in self._shapes:
            more = {name: value for name, value in neutral.items() if name not in body} | own
            request: Any = body | {limit: settings.max_output_tokens, "extra_body": more}
            try:
                choices = (await client.chat.completions.create(**request)).choices
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                refusals.append(error)
                continue
            self._shapes = [(limit, neutral)]
            if len(choices) < settings.samples:
                raise ValueError(f"{len(choices)} replies, {settings.samples} were asked for")
            return [Reply(choice.message.content or "", choice.finish_reason == "length")
                    for choice in choices[: settings.samples]]
        raise refusals[0]

    async def _told(self, ask: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
        """The answer to ``ask``. What the library raises, or a reply of another shape, is a ChatFailed."""
        client, slots = self._of_this_loop()
        try:
            async with slots:
                return await ask(client)
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            status = getattr(error, "status_code", 0)
            kind = FailureKind.of_status(status) if status else FailureKind.BAD_RESPONSE
            if isinstance(error, openai.APIConnectionError):
                kind = FailureKind.TIMEOUT if isinstance(error, openai.APITimeoutError) else FailureKind.CONNECTION
            reason = f"no reply of model {self.settings.model!r}: {reason_of(error)} {error.__cause__ or ''}"
            shown = one_line(without_key(reason, self.settings.key), 200)
            raise ChatFailed(f"{self.settings.url}: {shown}", kind, status) from None
