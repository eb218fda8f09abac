r"""Numbers as people write them, read exactly.

    18   18.0   18.   +18   $18   \$18   18$   1,080   1{,}080   .5   -3   1/2   \frac{1}{2}   1/2,000   50%   50\%

``read_number`` wants nothing beside the number; ``number_and_unit`` lets words follow it, after a blank: ``72
dollars``, ``$18 per day``, ``18\text{ eggs}``. A fraction counts in lowest terms alone: ``36/2`` is still to be done.

Invariants: no float is ever made, so no digit is lost; text of more than 100 characters is no number; linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

MOST_CHARACTERS = 100
_CURRENCY = "$€£¥₹"
_WHOLE = r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)"
_DECIMAL = re.compile(rf"(?P<sign>[-+]?)(?:[{_CURRENCY}] ?)?(?P<sign2>-?)(?P<number>{_WHOLE}(?:\.\d*)?|\.\d+)"
                      rf"(?P<percent> ?%)?(?: ?[{_CURRENCY}])?\.?", re.ASCII)
_FRACTION = re.compile(rf"(?P<sign>[-+]?)(?:(?P<a>{_WHOLE}) ?/ ?(?P<b>{_WHOLE})"
                       rf"|\\[dt]?frac ?\{{(?P<c>{_WHOLE})\}} ?\{{(?P<d>{_WHOLE})\}})\.?", re.ASCII)
_UNIT = re.compile(r"(?P<number>[^A-Za-z\\]*\d[^A-Za-z\\ ]*)(?: +(?!(?:and|or|to|times)\b)[A-Za-z°][A-Za-z°'²³]+"
                   r"|\\(?:text|mathrm|mbox) ?\{[^{}\d]*\})(?P<rest>[^\d\\=+*^<>]*)")
_PLAIN = str.maketrans({"−": "-", "–": "-", "\u00a0": " ", "\u202f": " "})
_LATEX = (("{,}", ","), ("\\,", ","), ("\\!", ""), ("\\$", "$"), ("\\%", "%"), ("\\ ", " "))


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

    def close_to(self, other: Number, tolerance: Fraction) -> bool:
        """Whether they differ by at most ``tolerance`` of the larger one."""
        return abs(self.value - other.value) <= tolerance * max(abs(self.value), abs(other.value))


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
        above, below = (int((found[a] or found[b]).replace(",", "")) for a, b in (("a", "c"), ("b", "d")))
        if below > 1 and gcd(above, below) == 1:
            return Number(Fraction(-above if found["sign"] == "-" else above, below))
    return None


def number_and_unit(text: str) -> Number | None:
    """The number that ``text`` is or begins with, where nothing but words follows."""
    if number := read_number(text):
        return number
    if len(text) > MOST_CHARACTERS:
        return None
    found = _UNIT.fullmatch(_plain(text))
    return read_number(found["number"]) if found else None


def _plain(text: str) -> str:
    r"""Without LaTeX's ways to write a number; ``$18$`` and ``\(18\)`` are 18, a single dollar sign is money."""
    text = text.translate(_PLAIN).strip()
    for written, plain in _LATEX:
        text = text.replace(written, plain)
    for begin, end in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**")):
        if len(text) > len(begin + end) and text.startswith(begin) and text.endswith(end):
            return text[len(begin) : -len(end)].strip()
    return text
