"""What is wrong with a request, in OpenAI's shape, so that their clients raise the error that they have for it.

    400 BadRequestError, 401 AuthenticationError, 403 PermissionDeniedError, 404 NotFoundError, 429 RateLimitError,
    413 APIStatusError, 5xx InternalServerError

::

    {"error": {"message": "n=2: one answer at a time", "type": "invalid_request_error", "param": "n", "code": null}}
"""

from __future__ import annotations

from typing import Any

from ..agents.records import FailureKind
from ..system.errors import MemAgentError
from .steps import ABORTED, TOO_LONG, Failed

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class RequestError(MemAgentError):
    """One request is refused, or cannot be answered."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """OpenAI's clients try most failures again; a reading that took its whole time would take it again."""
        again = {504: "false"}.get(self.status)
        return ({"Retry-After": str(self.retry_after)} if self.retry_after else {}) | (
            {"x-should-retry": again} if again else {}
        )


def shown(value: Any) -> str:
    """What was sent, for an error: its beginning, or only its kind where it holds others and may be of any depth."""
    if isinstance(value, str | bytes):
        return repr(value[:80])
    return f"{value!r:.80}" if isinstance(value, int | float | None) else f"a {type(value).__name__}"


_STATUS = {
    TOO_LONG: 413,
    ABORTED: 503,
    FailureKind.TIMEOUT: 504,
    FailureKind.CONNECTION: 503,
    FailureKind.SERVER_ERROR: 503,
    FailureKind.RATE_LIMITED: 503,
    FailureKind.REJECTED: 502,
    FailureKind.BAD_RESPONSE: 502,
    FailureKind.INTERNAL: 500,
}
"""Of a failed reading; all other kinds are the request's own fault, 400."""


def error_of(failed: Failed) -> RequestError:
    return RequestError(_STATUS.get(failed.kind, 400), failed.message, code=failed.kind)
