r"""MEM1: one internal state that carries reasoning and memory, rewritten every turn.

Source: MEM1, arXiv 2506.15841. A document of chunks c1, c2 gives three turns; ``s`` are states::

    turn 1  MEMORY  problem, c1, empty marker -> <IS>s1</IS>
    turn 2  MEMORY  problem, c2, s1           -> <IS>s2</IS>
    turn 3  FINAL   problem, s2               -> <IS>s3</IS> <answer>\boxed{...}</answer>

What of the paper it is: the policy writes one ``<IS>`` that holds both what it has found and what it makes of it; the
new one replaces the old, and all earlier context is dropped, so prompts do not grow with the number of turns; the
answer stands in ``<answer>`` at the end.

What it is not: there the policy interleaves search queries with what an environment returns, and may answer at any
turn; here the chunks of a document, in order, are the observations. There PPO trains one masked trajectory whose
attention is that of the dropped contexts; here each turn is a row of its own and GRPO weighs the outcome.

Differs from ``rememr1`` and ``memagent`` in that reasoning is part of what is carried: thinking that is outside of
``<IS>`` (``MEM_THINKING=1``) is removed as everywhere.

A reply is read by its last closed ``<IS>``, the state without its tags::

    reply                         state    counted
    <IS>a</IS>                    a
    <IS>a</IS> so <IS>b</IS>      b
    so <IS> </IS>                 kept     format_fallbacks
    <IS>a                         kept     format_fallbacks
    a                             kept     format_fallbacks

The answer is the final reply's last ``<answer>``, boxed for the tasks that read a box; without one all of the reply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from . import memagent
from .interface import ReaderSettings
from .memagent import State
from .records import Generation

_STATE = re.compile(r"<IS>((?:(?!<IS>).)*?)</IS>", re.DOTALL)
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


class Mem1(memagent.MemAgent):
    """``AGENT=mem1``"""

    Settings, memory_name, final_name = ReaderSettings, "mem1", "mem1_final"
    counted = (*memagent.MemAgent.counted, "format_fallbacks")

    def update(self, state: State, reply: Generation) -> State:
        written = _last(_STATE, self.said(reply))
        if not written:
            return state.plus(format_fallbacks=1)
        return self.with_memory(state, self.encoded(written))

    def answer(self, state: Any) -> str:
        reply = super().answer(state)
        answer = _last(_ANSWER, reply)
        if not answer:
            return reply
        return answer if "\\boxed{" in answer else f"\\boxed{{{answer}}}"


def _last(block: re.Pattern[str], text: str) -> str:
    """The content of the last closed block, stripped; empty for none."""
    found: Sequence[str] = block.findall(text)
    return found[-1].strip() if found else ""
