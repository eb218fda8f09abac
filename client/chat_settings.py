"""Which chat model is asked, with what key and patience, and how no reply is told; without the client's library.

The key is never shown: no ``repr`` holds it, and ``redacted`` takes it out of what a server says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..agents.records import FailureKind
from ..config import ConfigError
from ..system.errors import MemAgentError
from ..system.redirects import REDIRECTS
from ..system.server_url import chat_base

KEYS = ("API_KEY", "OPENAI_API_KEY")
"""Where a key is looked for, first one first; ANSWER_KEY stands before them where a training run asks."""
REDACTED = "***"
_SECRET_FROM = 8
"""Letters from which on a key is one: the ``none`` or ``EMPTY`` of a server without keys may stand in a reply."""


class ChatFailed(MemAgentError):
    """No reply; ``kind`` says why, and ``status`` is the HTTP status, or 0 where there is none."""

    def __init__(self, message: str, kind: FailureKind, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status

    @property
    def holds_for_all(self) -> bool:
        """Whether every other request must fail alike: the key, the route or the model's name is wrong."""
        return self.status in (401, 403, 404, *REDIRECTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Raises ConfigError where the address or the key cannot be used; the key is never shown."""

    url: str
    """``http://HOST:PORT``, or OpenAI's base with its path and query, ``https://HOST/v1`` (``chat_base``)."""
    model: str
    key: str = field(default="", repr=False)
    concurrency: int = 32
    timeout_s: float = 300.0
    """Seconds for one attempt."""
    retries: int = 3
    backoff_s: float = 0.5
    """Seconds before the second attempt; doubles each time."""
    max_output_tokens: int = 4096
    temperature: float = 0.6
    top_p: float | None = None
    samples: int = 1
    """Replies to one request."""
    is_own: bool = False
    """The pack has started it: no proxy is asked."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", chat_base("the address of the chat model", self.url, " or ".join(KEYS)))
        object.__setattr__(self, "key", self.key.strip())
        if not (self.key.isascii() and self.key.isprintable()):
            raise ConfigError(f"the key of {self.url} holds letters that no request header takes; copy it again")

    def redacted(self, text: str) -> str:
        return without_key(text, self.key)


def without_key(text: str, key: str) -> str:
    """What a server said, a reply perhaps."""
    return text.replace(key, REDACTED) if len(key) >= _SECRET_FROM else text


def key_from(environment: Mapping[str, str], names: Sequence[str] = KEYS) -> str:
    """The first key that is there, or none."""
    return next((environment[name].strip() for name in names if environment.get(name, "").strip()), "")
