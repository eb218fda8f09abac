r"""State rewards: what each turn of a ReMemR1 trajectory earns by itself, beside the outcome of the whole.

Source: ReMemR1, arXiv 2509.23040, section 3.3 (multi-level rewards), and its released code (verl/trainer/ppo/
metric_utils.py). With rec(text) the share of a gold's words that stand in the text, of the best gold::

    memory turn   format   1 if the reply has exactly one update, at most one recall, no blank one and no stray tag
                  gain     rec(m_t) - rec(m_(t-1))                       below 0 where the memory lost a gold
                  recall   rec(r_t and p_t together) - rec(p_t)          equation 6; r_t is what q_t found, p_t what
                                                                         the prompt showed when q_t was written
                  evidence the same as gain over the titles of the supporting documents, their mean; optional
    final turn    format   1 if the reply has exactly one box, balanced and not blank

A turn's state reward is the sum. Worked example, gold "Ann Lee"; the turn's prompt shows neither name::

    m_(t-1) "a painter"   m_t "the painter is Ann"   r_t "Lee was born in Rome"
    format 1, gain 1/2 - 0, recall 1/2 - 0: state reward 2

As published but for these defects: a memory or an update of several lines counts (there it gave 0, and the previous
memory always looked empty, so the gain was no gain); words match whole and in SQuAD form (there "no" stood in "know");
golds that are yes, no or noanswer give no gain, since texts hold them by chance; the best gold counts, as in the paper
(there the mean); the format of the recall counts, as in the paper; a final turn must close its box, and have one; who
repeats the prompt's own example has an ill-formed turn; the words of the instructions are not in p_t. Scripts without
blanks between words have no words here, so golds in them earn no gain. ``published_state`` has the release's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

from .boxed import one_box
from .qa_metrics import CLOSED_ANSWERS, normalise_squad

Rewards = dict[str, float]
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
    prompt: Callable[[], Sequence[str]] = tuple
    """The texts that the turn's prompt showed: question, section, memory, recalled memory. Asked for only where the
    reward depends on them."""
    whole_prompt: Callable[[], str] = str
    reply: Callable[[], str] = str
    """Prompt and reply from end to end; asked for only by ``published_state``, as is the next."""
    shown_recall: str = ""
    """``recalled``, or what the next prompt shows in place of nothing."""


def state_rewards(
    steps: Sequence[Step], answer: str, golds: Sequence[str], titles: Sequence[str] = ()
) -> list[Rewards]:
    """The named rewards of every turn, the final one last. Without ``titles`` there is no evidence reward."""
    wanted = _words_of(golds)
    supporting = _words_of(titles)
    rewards = [_memory_turn(step, wanted, supporting) for step in steps]
    return [*rewards, {"format": float(one_box(answer))}]


def recall_of(text: str, golds: Sequence[str]) -> float:
    """The share of a gold's words that stand in the text, of the best gold; 0 without golds that tell anything.

    >>> recall_of("I know that Ann paints", ["no", "Ann Lee"])
    0.5
    """
    return _best(_held(text), _words_of(golds))


def supporting_titles(metadata: dict) -> list[str]:
    """Titles of the documents that a question needs, from either form of training row; empty where it has none.

    ``supporting``: titles. ``supporting_facts``: pairs of title and sentence, or ``{"title": [...], ...}``.
    """
    facts = metadata.get("supporting") or metadata.get("supporting_facts") or []
    titles = facts.get("title", []) if isinstance(facts, dict) else facts
    if not isinstance(titles, list | tuple):
        return []
    named = [t[0] if isinstance(t, list | tuple) and t else t for t in titles]
    return list(dict.fromkeys(t for t in named if isinstance(t, str)))


def _memory_turn(step: Step, golds: Wanted, titles: Wanted) -> Rewards:
    before, after = _held(step.before), _held(step.after)
    rewards = {
        "format": float(step.good),
        "gain": _best(after, golds) - _best(before, golds),
        "recall": _recall_bonus(step, golds),
    }
    if titles:
        rewards["evidence"] = fmean(_shares(after, titles)) - fmean(_shares(before, titles))
    return rewards


def _recall_bonus(step: Step, golds: Wanted) -> float:
    recalled = _held(step.recalled)
    if not _best(recalled, golds):
        return 0.0  # nothing to add, so the long prompt need not be looked at
    prompt = frozenset[str]().union(*map(_held, step.prompt()))
    return _best(recalled | prompt, golds) - _best(prompt, golds)


def _words_of(texts: Iterable[str]) -> Wanted:
    """The words of each text that tells something by standing in another one."""
    forms = [_words(text) or _words(text, keep_articles=True) for text in texts]
    return tuple(tuple(words) for words in forms if words and " ".join(words) not in CLOSED_ANSWERS)


@lru_cache(maxsize=256)
def _held(text: str) -> frozenset[str]:
    """The words of a text; remembered because siblings share sections, and a memory is the next one's predecessor."""
    return frozenset(_words(text, keep_articles=True))


def _words(text: str, keep_articles: bool = False) -> list[str]:
    """In SQuAD form, which knows ASCII's punctuation only: other punctuation parts words."""
    return normalise_squad(_FOREIGN_PUNCTUATION.sub(" ", text), keep_articles=keep_articles).split()


def _shares(held: frozenset[str], wanted: Wanted) -> list[float]:
    return [sum(word in held for word in words) / len(words) for words in wanted]


def _best(held: frozenset[str], wanted: Wanted) -> float:
    return max(_shares(held, wanted), default=0.0)
