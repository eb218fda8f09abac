"""What models say behind their thinking, in every reply about sessions: rankings, answers, verdicts."""

from __future__ import annotations

import re

_THINK, _THOUGHT = re.compile(r"<think>", re.I), re.compile(r"</think>", re.I)


def after_thinking(reply: str) -> str | None:
    """What a reply says behind its thinking; None where the thinking never ends."""
    ends = [match.end() for match in _THOUGHT.finditer(reply)]
    if ends:
        return reply[ends[-1] :]
    return None if _THINK.search(reply) else reply
