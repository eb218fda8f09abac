r"""Whether a reply is right, in the three ways in which Memory-R's tables were made, and in a fourth.

==========  ==================================================  ===================================================
mode        published as                                        what it takes
==========  ==================================================  ===================================================
``strict``  LightEval's task of ``evaluate.py`` (8e0dd1f):      a number or LaTeX with words around it: the first in
            math-verify's extraction, boxes first, 5 decimals   ``<answer>``, else the last
``medium``  the trainer's loop: text after the last             the gold's value alone in the answer's place, however
            ``<answer>`` equals the gold's text                 it is written: ``1,080``, ``$18``, ``18.0``, ``18.``
``loose``   the Qwen2.5-Math harness, ``evaluation/parser.py``  after the place, ``answer is ...``, or the last number;
            and ``grader.py`` (a193f4f)                         units, percent either way, a ten-thousandth apart
``exact``   the trainer's loop, to the character                the gold's text after the last ``<answer>``
==========  ==================================================  ===================================================

The *place* is the last ``<answer>`` block, else the last box, else what follows the last ``####``, so that the two
forms of a reply and GSM8K's own solutions are read alike. A reply that is a number and nothing else is its own place.
Invariant: what medium takes, strict and loose take too. Of those two neither contains the other: strict alone takes
``18 or 19`` for 18, loose alone takes 0.18 for 18.

Where these differ from the published codes, and why, is in ``docs/evaluation.md``, with how often they agree.
"""

from __future__ import annotations

import logging
import multiprocessing
import re
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, isclose
from typing import Any

from pebble import ProcessPool

from .answers import answer_place

_TOLERANCE = Fraction(1, 10_000)
_DECIMALS = 5
_SAYS = re.compile(r"answer is:?")
_SENTENCE_END = re.compile(r"\n|\.(?:\s|$)")
_NUMBER = re.compile(r"-?\d*\.?\d+")
_FORMULA = re.compile(r"(?<!\\)\$|\\[(\[]")
_NAMED = re.compile(r"[A-Za-z]\s?=")


def is_right(mode: str, reply: str, golds: Sequence[str]) -> bool:
    """Whether the reply's answer is any of the golds: each an answer, or a whole solution that has its answer in a
    place. An empty gold never is."""
    place = alone_in_its_place(reply)
    answers = [(gold if (found := answer_place(gold)) is None else found).strip() for gold in golds]
    return any(MODES[mode](reply, place, answer) for answer in answers if answer)


def alone_in_its_place(reply: str) -> str:
    """What is in the answer's place, or a reply that is a number and nothing else; empty where there is neither."""
    alone = reply.strip() if read_number(reply) else ""
    return alone if (place := answer_place(reply)) is None else place


# --- the modes ------------------------------------------------------------------------------------------------------
# Each by the reply, what is in its place, and a gold.


def _strict(reply: str, place: str, gold: str) -> bool:
    text, wanted = place or reply, read_number(gold)
    given = number_and_unit(text)
    if _same_text(text, gold):
        return True
    if wanted and given:
        return given.same_as(wanted, _DECIMALS)
    if not _could_be(text, wanted):
        return False
    if _is_one(place) and math_equal("equal", _undelimited(place), _for_sympy(gold, wanted)):
        return True
    anchor = "answer " if place and "<answer>" in reply else ""  # which LightEval sees in the tag
    return math_equal("strict", anchor + text, _for_sympy(gold, wanted))


def _medium(reply: str, place: str, gold: str) -> bool:
    wanted, given = read_number(gold), read_number(place)
    if wanted:
        return given is not None and given.same_as(wanted)
    return _same_text(place, gold) or (
        _is_one(place) and math_equal("equal", _undelimited(place), _undelimited(gold)))


def _loose(reply: str, place: str, gold: str) -> bool:
    answer, wanted = _undelimited(place or _said(reply)), number_and_unit(gold)
    if _same_text(answer, gold):
        return True
    if "=" not in gold and _NAMED.match(answer) and answer.count("=") == 1:
        answer = answer.partition("=")[2].strip()
    given = number_and_unit(answer)
    if given and wanted:
        sizes = (wanted.value * factor for factor in (1, 100, Fraction(1, 100)))
        return any(abs(given.value - size) <= _TOLERANCE * max(abs(given.value), abs(size)) for size in sizes)
    return _could_be(answer, wanted) and math_equal("close", answer, _for_sympy(gold, wanted))


MODES: Mapping[str, Callable[[str, str, str], bool]] = {
    "strict": _strict, "medium": _medium, "loose": _loose,
    "exact": lambda reply, place, gold: reply.rpartition("<answer>")[2].partition("</answer>")[0].strip() == gold}


# --- texts ----------------------------------------------------------------------------------------------------------


def _said(reply: str) -> str:
    """The answer of a reply without a place: in an unfinished box, behind "answer is", or its last number."""
    if "\\boxed{" in reply:
        return reply.rpartition("\\boxed{")[2]
    if said := [match.end() for match in _SAYS.finditer(reply)]:
        return _SENTENCE_END.split(reply[said[-1] :].strip(), maxsplit=1)[0]
    numbers = _NUMBER.findall(reply.replace(",", ""))
    return numbers[-1] if numbers else ""


def _could_be(text: str, wanted: Number | None) -> bool:
    """Whether comparing makes sense: text without a digit or a command cannot be a number."""
    return bool(text) and (wanted is None or bool(re.search(r"[\d\\]", text)))


def _is_one(place: str) -> bool:
    """Whether the place has one formula and no more: math-verify would take any of several."""
    return bool(place) and not _FORMULA.search(_undelimited(place))


def _for_sympy(gold: str, wanted: Number | None) -> str:
    """The gold as LaTeX that has one reading, whatever its separators."""
    if wanted is None or wanted.percent:
        return _undelimited(gold)
    value = wanted.value
    return str(value) if value.denominator == 1 else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _undelimited(text: str) -> str:
    return undelimited(text.strip().rstrip(".").strip())


def _same_text(a: str, b: str) -> bool:
    return "".join(a.lower().split()) == "".join(b.lower().split()) != ""


# --- numbers ---------------------------------------------------------------------------------------------------------
# Numbers as people write them, read exactly: no float is ever made, so no digit is lost.
#
#     18  18.0  18.  +18  $18  \$18  18$  1,080  1{,}080  .5  -3  1/2  \frac{1}{2}  1/2,000  50%  50\%
#
# A fraction counts in lowest terms alone: 36/2 is still to be done.

MOST_OF_A_NUMBER = 100
"""Characters."""
_CURRENCY = "$€£¥₹"
_WHOLE = r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)"
_DECIMAL = re.compile(rf"(?P<sign>[-+]?)(?:[{_CURRENCY}] ?)?(?P<sign2>-?)(?P<number>{_WHOLE}(?:\.\d*)?|\.\d+)"
                      rf"(?P<percent> ?%)?(?: ?[{_CURRENCY}])?\.?", re.ASCII)
_FRACTION = re.compile(rf"(?P<sign>[-+]?)(?:(?P<a>{_WHOLE}) ?/ ?(?P<b>{_WHOLE})"
                       rf"|\\[dt]?frac ?\{{(?P<c>{_WHOLE})\}} ?\{{(?P<d>{_WHOLE})\}}"
                       r"|\\[dt]?frac ?(?P<e>\d) ?(?P<f>\d))\.?", re.ASCII)
_UNIT = re.compile(r"(?P<number>[^A-Za-z\\]*\d[^A-Za-z\\ ]*)(?: +(?!(?:and|or|to|times)\b)[A-Za-z°][A-Za-z°'²³]+"
                   r"| *\\(?:text|mathrm|mbox) ?\{[^{}\d]*\})(?P<rest>[^\d\\=+*^<>]*)")
_PLAIN = str.maketrans({"−": "-", "–": "-", "\u00a0": " ", "\u202f": " "})
_LATEX = (("{,}", ","), ("\\,", ","), ("\\!", ""), ("\\$", "$"), ("\\%", "%"), ("\\ ", " "))
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


@dataclass(frozen=True, slots=True)
class Number:
    value: Fraction
    """As written: 50 for 50%."""
    percent: bool = False

    def same_as(self, other: Number, decimals: int | None = None) -> bool:
        """Equal, to so many decimals; of one percentage and one number it may be either way: 25% is 25 and 0.25."""
        share, plain = (self, other) if self.percent else (other, self)
        sizes = [share.value] if share.percent == plain.percent else [share.value, share.value / 100]
        if decimals is None:
            return plain.value in sizes
        return round(plain.value, decimals) in [round(size, decimals) for size in sizes]


def read_number(text: str) -> Number | None:
    """The number that ``text`` is, or None where it is something else."""
    if len(text) > MOST_OF_A_NUMBER:
        return None
    text = _plain(text)
    if found := _DECIMAL.fullmatch(text):
        if found["sign"] and found["sign2"]:
            return None
        value = Fraction(found["number"].replace(",", "").rstrip("."))
        return Number(-value if "-" in (found["sign"], found["sign2"]) else value, bool(found["percent"]))
    if found := _FRACTION.fullmatch(text):
        above, below = (int(part.replace(",", "")) for part in found.group(*"abcdef") if part)
        if below > 1 and gcd(above, below) == 1:
            return Number(Fraction(-above if found["sign"] == "-" else above, below))
    return None


def number_and_unit(text: str) -> Number | None:
    r"""The number that ``text`` is or begins with, where nothing but words follows, after a blank: ``72 dollars``,
    ``$18 per day``, ``18\text{ eggs}``."""
    found = _UNIT.fullmatch(_plain(text)) if len(text) <= MOST_OF_A_NUMBER else None
    return read_number(text) or (read_number(found["number"]) if found else None)


def _plain(text: str) -> str:
    """Without LaTeX's ways to write a number; a single dollar sign is money."""
    text = text.translate(_PLAIN).strip()
    for written, plain in _LATEX:
        text = text.replace(written, plain)
    return undelimited(text, ("**", "**"))


def undelimited(text: str, *more: tuple[str, str]) -> str:
    r"""Without what marks a formula: ``$18$`` and ``\(18\)`` are 18; ``more`` are other marks."""
    for begin, end in (*_DELIMITERS, *more):
        if len(text) > len(begin + end) and text.startswith(begin) and text.endswith(end):
            return text[len(begin) : -len(end)].strip()
    return text


# --- math-verify, in a process of its own ---------------------------------------------------------------------------
# What a model wrote may take sympy for ever, or all memory. The process serves all threads, one question at a time;
# after one that hung the next starts another.

LIMIT_S = 5
"""Seconds for a question: LightEval's own limit; the Qwen2.5-Math harness gives 3."""
MOST_CHARACTERS = 10_000
"""A longer text is no answer; of a whole reply the end counts."""
_MEMORY = 4 << 30
"""Bytes of address space: numbers may have billions of digits."""


@lru_cache(maxsize=1024)
def math_equal(how: str, text: str, gold: str) -> bool:
    """Whether ``text`` is worth ``gold``; no after LIMIT_S, and where sympy cannot read one.

    Args:
        how: ``equal``: the same value, all of the text being the answer; ``close``: or both numbers and a
            ten-thousandth apart (Qwen2.5-Math's ``numeric_equal``); ``strict``: LightEval's extractive match as
            Memory-R configures it, a number or LaTeX, boxes first, five decimals.
    """
    if how == "strict":
        text = text[-MOST_CHARACTERS:]
    if max(len(text), len(gold)) > MOST_CHARACTERS:
        return False
    future = _pool().schedule(_compare, args=(how, text, gold), timeout=LIMIT_S)
    try:
        return bool(future.result())
    except Exception:  # too late, out of memory, or whatever parsers raise on what a model wrote
        return False


@lru_cache(maxsize=1)
def _pool() -> ProcessPool:
    """Spawned: a fork would inherit the locks of other threads."""
    return ProcessPool(max_workers=1, initializer=_begin, context=multiprocessing.get_context("spawn"))


def _begin() -> None:
    import math_verify  # noqa: F401  before the first question's time begins

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time limit of its own
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard), hard))


def _compare(how: str, text: str, gold: str) -> bool:
    """Whether ``text`` is worth ``gold``, both parsed in the process that this runs in."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
    from sympy import N

    def latex(formula: str) -> list[Any]:
        return list(parse(f"${formula}$", [LatexExtractionConfig()], parsing_timeout=None))

    wanted = latex(gold)
    if how == "strict":
        kinds = [ExprExtractionConfig(), LatexExtractionConfig(boxed_match_priority=0)]
        return bool(verify(wanted, parse(text, kinds, parsing_timeout=None), float_rounding=5, timeout_seconds=None))
    given = latex(text)
    if verify(wanted, given, timeout_seconds=None):
        return True
    return how == "close" and isclose(*(float(N(side[0])) for side in (given, wanted)), rel_tol=1e-4)
