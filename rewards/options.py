r"""Which option of a multiple-choice question a reply chooses (PersonaMem's form: ``(a) ...``, one of four).

The first rule that finds exactly one option decides; one that finds several decides that none is chosen::

    1. letters in brackets, bold or boxed   "(c)", "I would say **C**.", "\boxed{c}"; but "(a) or (c)" chooses none
    2. a letter that stands for itself   "c", "C.", "c) Tea", "option c", "the answer is C", "选 c", "答案是C",
       "The best one is C", "C is right"
    3. the text of an option     "You said you like tea": the option's own words, whole, in order

A lone "a" within a sentence is a word, not an option. The published rule (PersonaMem, ``extract_answer``) takes any of
the letters a to d that stands alone, so "a good idea is (c)" and "a tea" choose there as well.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from .text_f1 import answer_words

MOST_OPTIONS = len(string.ascii_lowercase)
"""As many as there are letters to choose by; with more it is no multiple choice."""
_LABEL = re.compile(r"\s*[(（\[]?([a-z])[)）\].:：、]\s*", re.I)
_MARKED = re.compile(r"(?:[(（\[]|\*\*|\\boxed\s*\{(?:\\text\s*\{)?)\s*([a-z])\s*(?:[)）\]}]|\*\*)", re.I)
_ALONE = re.compile(r"\s*([a-z])\s*(?:[).:：、,。]|$)", re.I)
_NAMED = re.compile(
    r"(?:\b(?:options?|choices?|answers?)(?:\s++is)?+\s*+[:：]?|选项?|选择|答案是?[:：]?)\s*+\**"
    r"(a(?!\s+[a-z])|[b-z])(?![a-z'])",
    re.I,
)
_JUDGED = re.compile(
    r"\bis\s+([A-Z])(?=\s*(?:[.,;!]|$))|\b([A-Z])\s+is\s+(?:the\s+)?(?:right|correct|best|answer)\b")


def chosen_option(reply: str | None, options: Sequence[str]) -> int | None:
    """The number, from 0, of the option that a reply chooses; None where it chooses none, or several."""
    text = (reply or "").strip()
    letters = {label: number for number, label in enumerate(option_labels(options))}
    alone = _ALONE.match(text)
    judged = ["".join(groups) for groups in _JUDGED.findall(text)]
    rules = (_MARKED.findall(text), [alone[1]] if alone else [], [*_NAMED.findall(text), *judged])
    for found in rules:
        if named := {letters[letter.lower()] for letter in found if letter.lower() in letters}:
            return named.pop() if len(named) == 1 else None
    said = f" {' '.join(answer_words(text))} "
    meant = [number for number, words in enumerate(map(_words_of, options)) if words and f" {words} " in said]
    return meant[0] if len(meant) == 1 else None


def choice_score(reply: str | None, answers: Sequence[str], options: Sequence[str]) -> float | None:
    """1.0 where the right option is chosen, else 0.0.

    None where there are no options, or more than MOST_OPTIONS, or no answer names one.
    """
    right = right_option(answers, options) if len(options) <= MOST_OPTIONS else None
    return None if right is None else float(chosen_option(reply, options) == right)


def right_option(answers: Sequence[str], options: Sequence[str]) -> int | None:
    """The option that an accepted answer names, whole or by its label or text; None where none does."""
    named = {option.strip(): number for number, option in enumerate(options)}
    named |= {option_text(option): number for number, option in enumerate(options)}
    named |= {f"({label})": number for number, label in enumerate(option_labels(options))}
    return next((named[answer.strip()] for answer in answers if answer.strip() in named), None)


def option_labels(options: Sequence[str]) -> list[str]:
    """The letters of the options: as they are written, or a, b, c ... where they are not, or not each its own."""
    written = [match[1].lower() if (match := _LABEL.match(option)) else "" for option in options]
    lettered = all(written) and len(set(written)) == len(written)
    return written if lettered else list(string.ascii_lowercase[: len(options)])


def option_text(option: str) -> str:
    """An option without its label."""
    match = _LABEL.match(option)
    return option[match.end() :].strip() if match else option.strip()


def _words_of(option: str) -> str:
    return " ".join(answer_words(option_text(option)))
