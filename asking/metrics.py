"""What `mem-agent serve` counts, for Prometheus: ``GET /metrics``. It holds no word of a question or document."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from .steps import Answered, Failed, Started, Step, TurnDone

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)
_TOKENS = tuple(4**power for power in range(3, 12))


class Metrics:
    """One registry of its own, so that several endpoints may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"namespace": "mem_agent", "registry": self.registry}
        self.requests = Counter("requests", "Requests by path and status", ["path", "status"], **named)
        self.reading = Gauge("reading", "Documents that are being read", **named)
        self.seconds = Histogram("reading_seconds", "From request to answer", buckets=_SECONDS, **named)
        self.first_seconds = Histogram("first_turn_seconds", "From request to the first turn", buckets=_SECONDS,
                                       **named)
        self.document = Histogram("document_tokens", "Tokens of documents", buckets=_TOKENS, **named)
        self.turns = Counter("turns", "Turns that were sampled", ["kind"], **named)
        self.tokens = Counter("tokens", "Tokens of prompts and replies", ["of"], **named)
        self.failures = Counter("failures", "Readings that failed", ["kind"], **named)
        self.cancelled = Counter("cancelled", "Readings that ended because the client left", **named)

    def count(self, step: Step) -> None:
        match step:
            case Started():
                self.document.observe(step.document_tokens)
            case TurnDone():
                self.turns.labels(step.kind).inc()
                self.tokens.labels("prompts").inc(step.prompt_tokens)
                self.tokens.labels("replies").inc(step.reply_tokens)
                self.tokens.labels("cached").inc(step.cached_tokens or 0)
            case Failed():
                self.failures.labels(step.kind).inc()

    def ended(self, step: Step | None, seconds: float) -> None:
        """``step`` is the last one; None where the client left before."""
        if isinstance(step, Answered):
            self.seconds.observe(seconds)
        if step is None:
            self.cancelled.inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
