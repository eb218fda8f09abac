"""Whether two answers are equal by math-verify, in a process of its own that is ended after LIMIT_S.

What a model wrote may take sympy for ever, or all memory. The process serves all threads, one question at a time;
after one that hung the next starts another.
"""

from __future__ import annotations

import logging
import multiprocessing
import resource
from concurrent.futures import Future
from functools import lru_cache
from math import isclose
from typing import Any

from pebble import ProcessExpired, ProcessPool

logger = logging.getLogger(__name__)

LIMIT_S = 5
"""Seconds for a question: LightEval's own limit; the Qwen2.5-Math harness gives 3."""
MOST_CHARACTERS = 10_000
"""A longer text is no answer; of a whole reply the end counts."""
_MEMORY = 4 << 30
"""Bytes of address space: numbers may have billions of digits."""


@lru_cache(maxsize=1024)
def math_equal(how: str, text: str, gold: str) -> bool:
    """Whether ``text`` is worth ``gold`` by one of ``HOW``; no after LIMIT_S, and where sympy cannot read one."""
    if how == "strict":
        text = text[-MOST_CHARACTERS:]
    if max(len(text), len(gold)) > MOST_CHARACTERS:
        return False
    future: Future[bool] = _pool().schedule(HOW[how], args=(text, gold), timeout=LIMIT_S)
    try:
        return future.result()
    except (TimeoutError, ProcessExpired):
        logger.info("could not compare %.80r with %.80r", text, gold)
        return False
    except Exception:  # whatever parsers raise on what a model wrote
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
    return isclose(*(float(N(_latex(side)[0])) for side in (text, gold)), rel_tol=1e-4)


HOW = {"strict": strict, "equal": equal, "close": close}


def _latex(text: str) -> list[Any]:
    from math_verify import LatexExtractionConfig, parse

    return list(parse(f"${text}$", [LatexExtractionConfig()], parsing_timeout=None))
