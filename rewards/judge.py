"""An answer's score by a judge: a chat model that compares it with the accepted answers, 0 to 1 in steps of 0.2.

    asked for {"score": 0.8, "reason": "..."}      read 0.8        {"score": 0.5} or "8 of 10": BadVerdict

Nothing is guessed from a reply that is not in this form: a score that nobody gave is missing, not 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import orjson

from ..sessions.records import Language
from ..sessions.thinking import after_thinking

_STEPS = 5
_FENCE = "```"
_ASKED = {
    Language.EN: """\
Compare a reply with the accepted answers to a question.

Question: {question}
Accepted answers: {golds}
Reply: {answer}

How much of an accepted answer does the reply say, without saying what contradicts it? 1 is all of it in whatever
words, 0 is nothing of it, and 0.2, 0.4, 0.6, 0.8 lie between. Write a JSON object and nothing else:
{{"score": <one of 0, 0.2, 0.4, 0.6, 0.8, 1>, "reason": "<a few words>"}}""",
    Language.ZH: """\
请把一个回复与某个问题的参考答案进行比较。

问题：{question}
参考答案：{golds}
回复：{answer}

回复在不与参考答案矛盾的前提下，说出了参考答案的多少内容？
全部说出（措辞不限）为 1，完全没有为 0，介于两者之间用 0.2、0.4、0.6、0.8。
只写一个 JSON 对象，不写其他内容：{{"score": <0、0.2、0.4、0.6、0.8、1 之一>, "reason": "<简短理由>"}}""",
}


class BadVerdict(ValueError):
    """A judge's reply that gives no score; the message says why."""


def judge_prompt(question: str, golds: Sequence[str], answer: str, language: Language) -> str:
    """The user message to a judge; texts stand in it as JSON strings, so that none of them ends its line."""
    shown = {"question": _quoted(question), "golds": _quoted(list(golds)), "answer": _quoted(answer)}
    return _ASKED[language].format(**shown)


def read_verdict(reply: str) -> float:
    """The score. Raises BadVerdict."""
    text = (after_thinking(reply) or "").strip()
    try:
        given = orjson.loads(_unfenced(text))
    except ValueError:
        raise BadVerdict(f"no JSON object: {text!r:.80}") from None
    score = given.get("score") if isinstance(given, dict) else None
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise BadVerdict(f"no score from 0 to 1: {text!r:.80}")
    if not math.isclose(score * _STEPS, round(score * _STEPS), abs_tol=1e-6):
        raise BadVerdict(f"score {score}: expected a step of 0.2")
    return round(score * _STEPS) / _STEPS


def _unfenced(text: str) -> str:
    """Without the marks that chat models put around code."""
    is_fenced = len(text) >= 2 * len(_FENCE) and text.startswith(_FENCE) and text.endswith(_FENCE)
    return text[len(_FENCE) : -len(_FENCE)].removeprefix("json").strip() if is_fenced else text


def _quoted(value: object) -> str:
    return orjson.dumps(value).decode()
