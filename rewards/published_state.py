r"""State rewards as ReMemR1's released code computes them (verl/trainer/ppo/metric_utils.py), for its tables.

``MEM_STATE_REWARD=published``; what ``memory_state`` does otherwise, and why, stands there. With rec(text) the share
of a gold's words (runs between blanks) that are substrings of the text, case and all, the mean over the golds::

    memory turn   format   1 if exactly one <update> that opens and closes on one line is not blank
                  gain     rec(first such update) - rec(what stands between <memory> and </memory> on one line of the
                           prompt); prompts have line ends there, so the second is 0 unless a document has such a line
                  recall   rec(recalled, a blank, prompt) - rec(prompt), never below 0; recalled is the marker where
                           nothing was, and prompt is all of it, instructions included
    final turn    format   1 if exactly one line has \boxed{..}, whatever stands between its first and its last brace

Worked example, golds "Ann Lee" and "no"; the prompt shows "I know Ann", the reply <update>Ann Lee</update>, and "Lee"
was recalled::

    rec(update) = (2/2 + 0/1) / 2; rec(prompt) = (1/2 + 1/1) / 2, since "no" stands in "know"
    format 1, gain 1/2 - 0, recall 1 - 3/4: state reward 1.75

``prompt_weight`` is the release's option ``action_reweight``: 0.5 + rec(prompt) for a memory turn, 1 for a final one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .memory_state import Rewards, Step

_UPDATE, _MEMORY = re.compile("<update>(.*?)</update>"), re.compile("<memory>(.*?)</memory>")
_BOX = re.compile(r"\\boxed\{(.+)\}")


def published_state_rewards(steps: Sequence[Step], answer: str, golds: Sequence[str]) -> list[Rewards]:
    """The named rewards of every turn, the final one last."""
    return [*(_memory_turn(step, golds) for step in steps), {"format": _one_filled(_BOX.findall(answer))}]


def prompt_weight(prompt: str, golds: Sequence[str]) -> float:
    """The weight of a memory turn's advantage, 0.5 to 1.5."""
    return 0.5 + recall_of_substrings(prompt, golds)


def recall_of_substrings(text: str, golds: Sequence[str]) -> float:
    """The share of a gold's words that are substrings of the text, the mean over the golds; 0 without golds.

    >>> recall_of_substrings("I know Ann", ["Ann Lee", "no"])
    0.75
    """
    shares = [_share(text, gold.split()) for gold in golds]
    return sum(shares) / len(shares) if shares else 0.0


def _share(text: str, words: Sequence[str]) -> float:
    return sum(word in text for word in words) / len(words) if words else 0.0


def _memory_turn(step: Step, golds: Sequence[str]) -> Rewards:
    prompt, reply = step.whole_prompt(), step.reply()
    shown = recall_of_substrings(prompt, golds)
    together = recall_of_substrings(f"{step.shown_recall} {prompt}", golds)
    before = recall_of_substrings(_first(_MEMORY, prompt), golds)
    return {
        "format": _one_filled(_UPDATE.findall(reply)),
        "gain": recall_of_substrings(_first(_UPDATE, reply), golds) - before,
        "recall": max(0.0, together - shown),
    }


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _one_filled(contents: Iterable[str]) -> float:
    return float(sum(bool(content.strip()) for content in contents) == 1)
