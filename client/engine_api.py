"""How an inference engine is asked and how its answer is read: an ``Endpoint`` speaks vLLM's API or SGLang's.

Invariant: as many log-probs as sampled ids, all finite, or reading raises: nothing is ever padded.

Log-probs are passed on as the engine gives them, and trainers compare them with logits divided by the rollout
temperature. SGLang divides by it too, unless started with ``SGLANG_RETURN_ORIGINAL_LOGPROB=1``; vLLM does so with
``--logprobs-mode processed_logprobs``, which vime and the embedded host set. With ``top_p`` or ``top_k`` the two
engines differ: SGLang's are those before the cut, vLLM's those after it, and a trainer knows no cut at all. So
training rollouts sample with ``top_p`` 1 and no ``top_k``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from ..agents.records import Generation, StopReason, TurnFailed

MALFORMED = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer of any wrong shape raises."""


class Dialect(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"

    @property
    def path(self) -> str:
        return "/inference/v1/generate" if self is Dialect.VLLM else "/generate"

    @property
    def routing_header(self) -> str:
        """By which the router keeps a group on one engine."""
        return "x-session-id" if self is Dialect.VLLM else "X-SMG-Routing-Key"

    @property
    def shares_while_computing(self) -> bool:
        """Whether requests that arrive together compute what they begin with once."""
        return self is Dialect.VLLM


class Patience(Protocol):
    """Of one request with a server that may come back."""

    async def try_again(self, failure: TurnFailed) -> bool:
        """Wait, perhaps, and say whether to send the request again."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A router or server, and its API; evaluation derives endpoints that speak OpenAI's."""

    dialect: Dialect
    base_url: str
    max_tokens: int = 0
    """What a prompt plus its reply may have; 0: unknown."""
    salted: bool = False
    """Whether each group has a prefix cache of its own, by its routing key; of vLLM."""

    @property
    def url(self) -> str:
        return self.base_url + self.dialect.path

    def build_request(
        self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any], routing_key: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The body and the headers of one generation request."""
        headers = {self.dialect.routing_header: routing_key}
        if self.dialect is Dialect.SGLANG:
            return sglang_body(prompt_ids, max_new_tokens, sampling), headers
        salt = {"cache_salt": routing_key} if self.salted else {}
        return vllm_body(prompt_ids, max_new_tokens, sampling) | salt, headers

    def parse_response(self, answer: Any) -> Generation:
        """Read an answer. Raises one of MALFORMED, whatever is amiss in it."""
        return parse_vllm(answer) if self.dialect is Dialect.VLLM else parse_sglang(answer)

    @property
    def finish_url(self) -> str:
        """Where a router is told, as ``session_id``, that nobody will use a routing key again; empty: nowhere."""
        return f"{self.base_url}/finish_session" if self.dialect is Dialect.VLLM else ""

    @property
    def streams(self) -> bool:
        """Whether it can tell tokens as they are sampled (``token_stream``)."""
        return self.dialect is Dialect.VLLM

    def redacted(self, text: str) -> str:
        """``text`` without anything secret that this endpoint sends."""
        return text

    def patience(self) -> Patience | None:
        """What one request does when all its attempts failed; None: it fails."""
        return None


# --- requests -----------------------------------------------------------------------------------------------------


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


# --- answers ------------------------------------------------------------------------------------------------------


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
        (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
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
        meta.get("cached_tokens"),
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


def _generation(ids: list[int], log_probs: list[float], finish: Any, version: str, cached: int | None) -> Generation:
    reason = _stop_reason(finish)
    if reason is StopReason.ABORT:
        # Partial tokens of an aborted request are never used; some servers send them without log-probs.
        return Generation([], [], reason, version, cached)
    if not ids:
        raise ValueError("no token was sampled")
    if len(ids) != len(log_probs):
        raise ValueError(f"{len(log_probs)} log-probs for {len(ids)} sampled tokens")
    if not all(math.isfinite(p) and p < 0.01 for p in log_probs):
        raise ValueError("a log-prob is not a finite number up to 0")
    return Generation(list(ids), [float(p) for p in log_probs], reason, version, cached)
