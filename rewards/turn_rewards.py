r"""State rewards: what each turn of a ReMemR1 trajectory earns by itself, beside the outcome of the whole.

Source: ReMemR1, arXiv 2509.23040, section 3.3 (multi-level rewards), and its released code (verl/trainer/ppo/
metric_utils.py). With rec(text) the share of a gold's words that stand in the text, of the best gold::

    memory turn   format   1 if the reply has exactly one update, at most one recall, no blank one and no stray tag
                  gain     rec(m_t) - rec(m_(t-1))                       below 0 where the memory lost a gold
                  recall   rec(r_t and p_t together) - rec(p_t)          equation 6; r_t is what q_t found, p_t what
                                                                         the prompt showed when q_t was written
    final turn    format   1 if the reply has exactly one box, balanced and not blank

A turn's state reward is the sum. Worked example, gold "Ann Lee"; the turn's prompt shows neither name::

    m_(t-1) "a painter"   m_t "the painter is Ann"   r_t "Lee was born in Rome"
    format 1, gain 1/2 - 0, recall 1/2 - 0: state reward 2

As published, with these defects mended: a memory or an update of several lines counts (there it gave 0, and the
previous memory always looked empty, so the gain was no gain); words match whole and in SQuAD form (there "no" stood in
"know"); golds that are yes, no or noanswer give no gain, since texts hold them by chance; the best gold counts, as in
the paper (there the mean); the format of the recall counts, as in the paper; a final turn must close its box, and have
one; who repeats the prompt's own example has an ill-formed turn; the words of the instructions are not in p_t. Scripts
without blanks between words have no words here, so golds in them earn no gain.

``published_state_rewards`` has the release's own rules, for its tables. With rec(text) the share of a gold's words
(runs between blanks) that are substrings of the text, case and all, the mean over the golds::

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
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from .answers import behind_one_box
from .qa_metrics import CLOSED_ANSWERS, normalise_squad

Rewards = dict[str, float]
_UPDATE, _MEMORY = re.compile("<update>(.*?)</update>"), re.compile("<memory>(.*?)</memory>")
_BOX = re.compile(r"\\boxed\{(.+)\}")
_FOREIGN_PUNCTUATION = re.compile(r"[^\w\s\x00-\x7f]")
Wanted = tuple[tuple[str, ...], ...]
"""The words of some texts."""


@dataclass(frozen=True, slots=True)
class Step:
    """A memory turn, in text."""

    good: bool
    """The reply has the asked form."""
    before: str
    after: str
    recalled: str = ""
    """The memory that the turn's query found; the next prompt shows it."""
    shown_recall: str = ""
    """``recalled``, or what the next prompt shows in place of nothing."""


def state_rewards(
    steps: Sequence[Step], prompts: Sequence[Callable[[], Sequence[str]]], answer: str, golds: Sequence[str]
) -> list[Rewards]:
    """The named rewards of every turn, the final one last.

    Args:
        prompts: of each step, the texts that its prompt showed: question, section, memory, recalled memory. Called
            only where the reward depends on them.
    """
    wanted = _words_of(golds)
    rewards = [_memory_turn(step, prompt, wanted) for step, prompt in zip(steps, prompts, strict=True)]
    return [*rewards, {"format": float(behind_one_box(answer) is not None)}]


def _memory_turn(step: Step, prompt: Callable[[], Sequence[str]], golds: Wanted) -> Rewards:
    recalled, bonus = _held(step.recalled), 0.0
    if _best(recalled, golds):  # else there is nothing to add, so the long prompt need not be looked at
        shown = frozenset[str]().union(*map(_held, prompt()))
        bonus = _best(recalled | shown, golds) - _best(shown, golds)
    gain = _best(_held(step.after), golds) - _best(_held(step.before), golds)
    return {"format": float(step.good), "gain": gain, "recall": bonus}


def _words_of(texts: Iterable[str]) -> Wanted:
    """The words of each text, without texts that others contain by chance (yes, no, noanswer)."""
    forms = [_words(text) or _words(text, keep_articles=True) for text in texts]
    return tuple(tuple(words) for words in forms if words and " ".join(words) not in CLOSED_ANSWERS)


@lru_cache(maxsize=256)
def _held(text: str) -> frozenset[str]:
    """The words of a text; remembered because siblings share sections, and a memory is the next one's predecessor."""
    return frozenset(_words(text, keep_articles=True))


def _words(text: str, keep_articles: bool = False) -> list[str]:
    """In SQuAD form, which knows ASCII's punctuation only: other punctuation parts words."""
    return normalise_squad(_FOREIGN_PUNCTUATION.sub(" ", text), keep_articles=keep_articles).split()


def _best(held: frozenset[str], wanted: Wanted) -> float:
    return max((sum(word in held for word in words) / len(words) for words in wanted), default=0.0)


# --- as released ----------------------------------------------------------------------------------------------------


def published_state_rewards(
    steps: Sequence[Step], texts: Sequence[tuple[str, str]], answer: str, golds: Sequence[str]
) -> list[Rewards]:
    """The named rewards of every turn, the final one last. ``texts``: prompt and reply of each step, end to end."""
    rewards, share = [], partial(recall_of_substrings, golds=golds)
    for step, (prompt, reply) in zip(steps, texts, strict=True):
        updates, memories = _UPDATE.findall(reply), _MEMORY.findall(prompt)
        rewards.append({
            "format": _one_filled(updates),
            "gain": share("".join(updates[:1])) - share("".join(memories[:1])),
            "recall": max(0.0, share(f"{step.shown_recall} {prompt}") - share(prompt)),
        })
    return [*rewards, {"format": _one_filled(_BOX.findall(answer))}]


def recall_of_substrings(text: str, golds: Sequence[str]) -> float:
    """The share of a gold's words that are substrings of the text, the mean over the golds; 0 without golds.

    >>> recall_of_substrings("I know Ann", ["Ann Lee", "no"])
    0.75
    """
    words = [gold.split() for gold in golds]
    shares = [sum(word in text for word in some) / len(some) if some else 0.0 for some in words]
    return sum(shares) / len(shares) if shares else 0.0


def _one_filled(contents: Iterable[str]) -> float:
    return float(sum(bool(content.strip()) for content in contents) == 1)
