"""Which chat model is asked, and with what key; importing it does not load the client's library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..agents.records import FailureKind
from ..system.errors import ConfigError, MemAgentError
from ..system.server_url import chat_base

KEYS = ("API_KEY", "OPENAI_API_KEY")
"""Variables of the key, first one first; ANSWER_KEY stands before them where a training run asks."""
REDACTED = "***"


class ChatFailed(MemAgentError):
    """No reply; ``kind`` is the reason, ``status`` the HTTP status, or 0 where there is none."""

    def __init__(self, message: str, kind: FailureKind, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status

    @property
    def holds_for_all(self) -> bool:
        """Whether every other request must fail alike: the key, the route or the model's name is wrong."""
        return self.status in (401, 403, 404)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Raises ConfigError where the address or the key cannot be used."""

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
    is_own: bool = False
    """Started by this run: no proxy is asked."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", chat_base("the address of the chat model", self.url, " or ".join(KEYS)))
        object.__setattr__(self, "key", self.key.strip())
        if not (self.key.isascii() and self.key.isprintable()):
            raise ConfigError(f"the key of {self.url} holds letters that no request header takes; copy it again")


def without_key(text: str, key: str) -> str:
    """A server's error without the key that it may repeat."""
    return text.replace(key, REDACTED) if key else text


def key_from(environment: Mapping[str, str], names: Sequence[str] = KEYS) -> str:
    """The first key that is set, or none."""
    return next((environment[name].strip() for name in names if environment.get(name, "").strip()), "")
