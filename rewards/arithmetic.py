"""The exact value of a sum that a model wrote: whole numbers, ``+ - * /`` and parentheses, nothing else.

    (5 + 3) * 2 / 4  ->  4, from 5 3 2 4        1 / 3 * 3  ->  1        3 - 1 - 1  ->  1

Everything else is no sum, and None: ``2**10**9``, ``7 // 2``, ``-3 + 5`` (a sign is no operator), ``1e9``, ``0x10``,
``2.5``, names, calls, division by zero, two sums, an equation.

The text is parsed, never run: a walk over Python's syntax tree with exact fractions. Bounds make every text quick:
200 characters, 40 numbers of at most 20 digits, 40 levels.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

_SUM = re.compile(r"[0-9+\-*/() \t\r\n]+")
MOST_CHARACTERS, _MOST_NUMBERS, _MOST_DIGITS, _MOST_LEVELS = 200, 40, 20, 40
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}


class _NoSum(Exception):
    pass


def exact_value(text: str) -> tuple[Fraction, list[int]] | None:
    """The value of a sum and the numbers in it, from left to right; None where ``text`` is no sum."""
    text = " ".join(text.split()) if len(text) <= MOST_CHARACTERS else ""
    numbers = re.findall(r"[0-9]+", text)
    if not _SUM.fullmatch(text) or len(numbers) > _MOST_NUMBERS or max(map(len, numbers), default=0) > _MOST_DIGITS:
        return None
    try:
        tree = ast.parse(text, mode="eval")
        return _value(tree.body, _MOST_LEVELS), list(map(int, numbers))
    except (_NoSum, SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, levels: int) -> Fraction:
    if levels == 0:
        raise _NoSum
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, levels - 1), _value(node.right, levels - 1))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    raise _NoSum
