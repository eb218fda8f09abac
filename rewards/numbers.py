r"""Numbers as people write them, and the sums that they write, read exactly.

    18   18.0   18.   +18   $18   \$18   18$   1,080   1{,}080   .5   -3   1/2   \frac{1}{2}   1/2,000   50%   50\%

``read_number`` wants nothing beside the number; ``number_and_unit`` lets words follow it, after a blank: ``72
dollars``, ``$18 per day``, ``18\text{ eggs}``. A fraction counts in lowest terms alone: ``36/2`` is still to be done.

``exact_value`` is of whole numbers, ``+ - * /`` and parentheses, nothing else::

    (5 + 3) * 2 / 4  ->  4, from 5 3 2 4        1 / 3 * 3  ->  1        3 - 1 - 1  ->  1

Everything else is no sum, and None: ``2**10**9``, ``7 // 2``, ``-3 + 5`` (a sign is no operator), ``1e9``, ``0x10``,
``2.5``, names, calls, division by zero, two sums, an equation. The text is parsed and never run: a walk over Python's
syntax tree with exact fractions.

Invariants: no float is ever made, so no digit is lost; linear time, and text that is too long is no number.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

MOST_CHARACTERS = 100
"""Of a number."""
MOST_OF_A_SUM = 200
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
        if self.percent == other.percent:
            return _equal(self.value, other.value, decimals)
        share, plain = (self.value, other.value) if self.percent else (other.value, self.value)
        return _equal(share, plain, decimals) or _equal(share / 100, plain, decimals)


def _equal(a: Fraction, b: Fraction, decimals: int | None) -> bool:
    return a == b if decimals is None else round(a, decimals) == round(b, decimals)


def read_number(text: str) -> Number | None:
    """The number that ``text`` is, or None where it is something else."""
    if len(text) > MOST_CHARACTERS:
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
    """The number that ``text`` is or begins with, where nothing but words follows."""
    if len(text) > MOST_CHARACTERS:
        return None
    found = _UNIT.fullmatch(_plain(text))
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


# --- sums -----------------------------------------------------------------------------------------------------------

_SUM = re.compile(r"[0-9+\-*/() \t\r\n]+")
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}


def exact_value(text: str) -> tuple[Fraction, list[int]] | None:
    """The value of a sum and the numbers in it, from left to right; None where ``text`` is no sum."""
    text = " ".join(text.split()) if len(text) <= MOST_OF_A_SUM else ""
    if not _SUM.fullmatch(text):
        return None
    try:
        return _value(ast.parse(text, mode="eval").body), list(map(int, re.findall("[0-9]+", text)))
    except (SyntaxError, ValueError, ZeroDivisionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    raise ValueError("no sum")
