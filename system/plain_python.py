"""Python's literals as plain values, whoever wrote them: cells of tables, and what a file's code assigns.

Nothing runs, and a text can still hurt: ``ast.parse`` takes a time with the square of an f-string and ends in a
MemoryError for many brackets, ``ast.literal_eval`` hashes what a stranger chose such that all hashes are equal, and a
number in hexadecimal is longer than Python can show. Here a value is a text, a number of 64 bits, None, or a list,
tuple or dictionary with texts as keys of such values::

    plain_python("['a', -1.5]")   ["a", -1.5]
    plain_python("{1: 'a'}")      NotPlain
    plain_python("f'a'")          NotPlain
"""

from __future__ import annotations

import ast
from typing import Literal

LONGEST = 2**16
"""Characters: the f-string of so many takes half a second, one of ten times as many a minute."""

Value = str | int | float | None | list["Value"] | tuple["Value", ...] | dict[str, "Value"]


class NotPlain(ValueError):
    """One line."""


def plain_python(text: str) -> Value:
    """Raises NotPlain."""
    tree = parsed(text.lstrip(" \t"), "eval")
    assert isinstance(tree, ast.Expression)
    try:
        return plain_value(tree.body)
    except RecursionError:
        raise NotPlain("nested too deep") from None


def parsed(text: str, mode: Literal["exec", "eval"]) -> ast.AST:
    """Raises NotPlain."""
    if len(text) > LONGEST:
        raise NotPlain(f"more than {LONGEST} characters")
    try:
        return ast.parse(text, mode=mode)
    except (MemoryError, RecursionError):
        raise NotPlain("nested too deep") from None
    except (ValueError, SyntaxError) as error:
        raise NotPlain(f"{type(error).__name__}: {' '.join(str(error).split())}") from None


def plain_value(node: ast.expr) -> Value:
    """Raises NotPlain, RecursionError."""
    match node:
        case ast.Constant(value=str() | float() | None as value):
            return value
        case ast.Constant(value=int() as number) if number < 2**64:
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)) if number < 2**64:
            return -number
        case ast.List(elts=elements):
            return [plain_value(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(plain_value(element) for element in elements)
        case ast.Dict(keys=keys, values=values):
            names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            if len(names) == len(values):
                return dict(zip(names, map(plain_value, values), strict=True))
    raise NotPlain("no text, number, list or dictionary of texts")
