"""Whether an answer equals a gold by math-verify: a program that imports nothing of the package.

::

    python -P math_worker.py

reads one question a line, ``{"how": "strict", "text": ..., "gold": ..., "limit": 5}``, and answers each by a line
``1`` or ``0``.

What a model wrote may take sympy for ever, so a question ends after ``limit`` seconds, by a signal: those work here,
in the main thread of a process that does nothing else. Work inside one long C call feels no signal; whoever asks then
ends this process (``math_checker.py``). It ends by itself once its parent is gone.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
from math import isclose
from typing import Any

MEMORY = 4 << 30
"""Bytes of address space: numbers may have billions of digits."""


class OutOfTime(BaseException):
    """No Exception, which sympy catches."""


def strict(text: str, gold: str) -> bool:
    """LightEval's extractive match as Memory-R configures it: a number or LaTeX, boxes first, five decimals."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    found = parse(text, [ExprExtractionConfig(), LatexExtractionConfig(boxed_match_priority=0)], parsing_timeout=None)
    return bool(verify(_latex(gold), found, float_rounding=5, timeout_seconds=None))


def equal(text: str, gold: str) -> bool:
    """The same value, all of the text being the answer."""
    from math_verify import verify

    return bool(verify(_latex(gold), _latex(text), timeout_seconds=None))


def close(text: str, gold: str) -> bool:
    """The same value, or both numbers and a ten-thousandth apart (Qwen2.5-Math's ``numeric_equal``)."""
    from sympy import N

    if equal(text, gold):
        return True
    try:
        pairs = [float(N(side[0])) for side in (_latex(text), _latex(gold))]
    except (AttributeError, IndexError, TypeError, ValueError):
        return False
    return isclose(*pairs, rel_tol=1e-4)


HOW = {"strict": strict, "equal": equal, "close": close}


def _latex(text: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    return list(parse(f"${text}$", [LatexExtractionConfig()], parsing_timeout=None))


def judge(how: str, text: str, gold: str, limit: int) -> bool:
    signal.alarm(limit)
    try:
        return HOW[how](text, gold)
    except (Exception, OutOfTime):  # whatever parsers raise on what a model wrote
        return False
    finally:
        signal.alarm(0)


def serve() -> None:
    parent = os.getppid()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard), hard))
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    verdicts = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing that a library prints is a verdict
    lines = os.fdopen(0, "r", encoding="utf-8")
    while os.getppid() == parent:
        if not select.select([lines], [], [], 1.0)[0]:
            continue
        line = lines.readline()
        if not line:
            return
        question = json.loads(line)
        try:
            right = judge(question["how"], question["text"], question["gold"], question["limit"])
        except OutOfTime:  # it rang on the way out
            right = False
        verdicts.write(f"{int(right)}\n")


def _out_of_time(*_: Any) -> None:
    raise OutOfTime


if __name__ == "__main__":
    import math_verify  # noqa: F401  before the first question's time begins

    serve()
