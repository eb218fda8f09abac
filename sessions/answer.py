r"""The answer in a chat model's reply, in training's reward, stage 3 and the toolkit alike.

::

    reply                                              answer
    <think>Lyon?</think><answer>Lyon</answer>          Lyon
    I write <answer>Paris</answer>, no: <answer>Lyon   Lyon         the last one counts; an unclosed one is the rest
    In Lyon.                                           In Lyon.     without tags it is all of the reply
    <think>Lyon or                                                  thinking that never ends answers nothing
"""

from __future__ import annotations

import re

from .thinking import after_thinking

_OPEN = re.compile(r"<answer>", re.I)
_CLOSE = re.compile(r"</answer>", re.I)


def answer_of(reply: str) -> str:
    """What the reply answers, stripped; may be empty."""
    said = after_thinking(reply) or ""
    after = _OPEN.split(said)[-1]
    return _CLOSE.split(after)[0].strip()
