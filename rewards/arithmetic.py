"""The exact value of a sum that a model wrote: whole numbers, ``+ - * /`` and parentheses, nothing else.

    (5 + 3) * 2 / 4  ->  4, from 5 3 2 4        1 / 3 * 3  ->  1        3 - 1 - 1  ->  1

Everything else is no sum, and None: ``2**10**9``, ``7 // 2``, ``-3 + 5`` (a sign is no operator), ``1e9``, ``0x10``,
``2.5``, names, calls, division by zero, two sums, an equation.

The text, at most 200 characters, is parsed and never run: a walk over Python's syntax tree with exact fractions.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

_SUM = re.compile(r"[0-9+\-*/() \t\r\n]+")
MOST_CHARACTERS = 200
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}


def exact_value(text: str) -> tuple[Fraction, list[int]] | None:
    """The value of a sum and the numbers in it, from left to right; None where ``text`` is no sum."""
    text = " ".join(text.split()) if len(text) <= MOST_CHARACTERS else ""
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
