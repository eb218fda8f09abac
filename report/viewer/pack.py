"""A group of siblings as the page reads it: a line of its index, its texts, its tokens, its documents.

Each part is JSON, deflated by itself, so that a page decodes what is looked at and nothing else. A text that comes
again, as the memory that the next turn is shown, is a number into the group's ``strings``::

    texts    {"strings": ["metal", "metal silver"], "traces": [{"turns": [
                 {"kind": "memory", "sections": [0], "before": -1, "reply": 0, "memory": 0, ...},
                 {"kind": "memory", "sections": [1], "before": 0, "reply": 1, "memory": 1, ...}]}]}
    tokens   [[[[3, 2], [21, 3]], [[5, 7], [1, 90]]]]        by sibling and turn: lengths, hundredths of -log_prob
    document ["Ann has it", "Bo sleeps and ..."]             its sections
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from ...evaluation.summary import main_metric
from ...traces.trace import Trace, TraceTurn
from .facts import facts_of
from .groups import Group, Place, Sibling, Tokens, before_of


@dataclass(frozen=True, slots=True)
class PackedGroup:
    group: Mapping[str, Any]
    """What the index says of it."""
    place: Place
    documents: tuple[str, ...]
    """Hashes; the index's siblings name them by their place here."""
    texts: bytes
    tokens: bytes | None


def pack(group: Group, documents: dict[str, bytes]) -> PackedGroup:
    """The group; documents that are new are added to ``documents``, by the hash of their sections."""
    facts = facts_of(group.first.golds)
    order: dict[str, int] = {}
    for sibling in group.siblings:
        if sibling.document is not None:
            order.setdefault(sibling.content, len(order))
            if sibling.content not in documents:
                documents[sibling.content] = deflated(sibling.document.sections)
    line = {
        "question_id": group.first.question_id, "group": group.name, "question": group.first.question,
        "golds": group.first.golds, "facts": [asdict(fact) for fact in facts],
        "siblings": [_sibling_line(s, order) for s in group.siblings],
    }
    tokens = [[_token_lists(t) for t in sibling.tokens] for sibling in group.siblings]
    kept = any(any(t is not None for t in sibling.tokens) for sibling in group.siblings)
    return PackedGroup(line, group.place, tuple(order), deflated(_texts(group)),
                       deflated(tokens) if kept else None)


def worth(trace: Trace) -> float | None:
    """What shows at a glance how good it is: its accuracy, the metric of its evaluation, else its reward."""
    metric = main_metric(trace.scores)
    if trace.accuracy is not None:
        return trace.accuracy
    return trace.scores[metric] if metric else trace.reward


def deflated(content: Any) -> bytes:
    return zlib.compress(orjson.dumps(content))


def _sibling_line(sibling: Sibling, documents: Mapping[str, int]) -> dict[str, Any]:
    trace = sibling.trace
    return {
        "sample": trace.sample, "worth": worth(trace), "reward": trace.reward, "advantage": trace.advantage,
        "failure": trace.failure, "prediction": trace.prediction,
        "document": documents[sibling.content] if sibling.document else -1, "turns": len(trace.turns),
    }


def _texts(group: Group) -> dict[str, Any]:
    """Strings lie in the order of turns, siblings side by side, so that alike texts are near for the compression."""
    strings: dict[str, int] = {}

    def number(text: str) -> int:
        return strings.setdefault(text, len(strings)) if text else -1

    turns: list[list[dict[str, Any]]] = [[] for _ in group.siblings]
    going, at = list(zip(group.siblings, turns, strict=True)), 0
    while going := [(sibling, made) for sibling, made in going if at < len(sibling.trace.turns)]:
        for sibling, made in going:
            before = before_of(sibling.trace.turns, at)
            made.append(_turn(sibling.trace.turns[at], before, sibling.tokens[at], number))
        at += 1
    traces = [
        {
            "id": s.trace.id, "task": s.trace.task, "agent": s.trace.agent, "weights": s.trace.weight_version,
            "response": number(s.trace.response), "outcome": s.trace.outcome,
            "failure_message": s.trace.failure_message, "reward_parts": s.trace.reward_parts,
            "accuracy": s.trace.accuracy, "scores": s.trace.scores, "counts": s.trace.counts, "turns": made,
        }
        for s, made in zip(group.siblings, turns, strict=True)
    ]
    return {"strings": list(strings), "traces": traces}


def _turn(turn: TraceTurn, before: str, tokens: Tokens | None, number: Any) -> dict[str, Any]:
    return {
        "kind": turn.kind, "sections": turn.sections, "before": number(before), "recalled": number(turn.recalled),
        "prompt": number(turn.prompt), "reply": number(turn.reply), "memory": number(turn.memory),
        "stop": turn.stop, "prompt_tokens": turn.prompt_tokens, "cached_tokens": turn.cached_tokens,
        "rewards": turn.rewards, "advantage": turn.advantage,
        "log_probs": [len(tokens.lengths), tokens.mean, tokens.lowest] if tokens else None,
    }


def _token_lists(tokens: Tokens | None) -> list[list[int]] | None:
    return None if tokens is None else [tokens.lengths.tolist(), tokens.hundredths.tolist()]
