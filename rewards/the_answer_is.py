"""The answer behind the last "the answer is": how MemAgent's evaluation reads a reply.

    Therefore, the answer is **Rome**.            -> Rome
    the answer is Paris. No, the answer is Rome   -> Rome       the last one counts
    The Answer Is Rome                            -> None       as written, in lower case
    the answer is .                               -> ""         found, and empty
    Rome                                          -> None

Source: ``extract_answer`` of MemAgent's ``taskutils/memory_eval/utils/__init__.py`` (76b7a65), which reads all its
published rows of memory agents and of whole documents in one prompt. Nothing found and nothing said score 0 there, and
so here.

Invariant: equal to the published function on every text (``tests/rewards/test_the_answer_is.py``).
"""

from __future__ import annotations

_MARK = "the answer is"
_EMPHASIS = "*"
_CHAT_MARKS = ("<｜Assistant｜>", "<｜end▁of▁sentence｜>")
"""Control tokens of DeepSeek's chats, which some servers leave in the text; taken out in this order."""


def the_answer_is(reply: str) -> str | None:
    """What stands behind the last mark, without asterisks anywhere and dots around it; None without a mark."""
    _, mark, answer = reply.replace(_EMPHASIS, "").rpartition(_MARK)
    if not mark:
        return None
    answer = answer.strip()
    for control in _CHAT_MARKS:
        answer = answer.replace(control, "")
    return answer.strip().strip(".").strip()
