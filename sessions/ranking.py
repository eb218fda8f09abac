r"""What models reply about sessions: rankings, answers, and what they say behind their thinking.

A ranking is read strictly where it earns a reward, leniently where it has to be used. The reply names session numbers
as the prompt showed them, best first, after any thinking::

    <think>The move to Lyon is in session 7 ...</think>
    <ranking>7,0,3</ranking>

What is read is what follows the last ``</think>``. A chat template may have opened the thinking in the prompt already,
so a reply without ``<think>`` is as good; one that opens it and never closes it has said nothing yet.

``strict_ranking``   the last such block holds exactly ``min(asked, shown)`` different numbers below ``shown``, with
                     commas between them, and nothing else
``lenient_ranking``  what of the last block can be used: numbers out of range and repetitions are dropped, words
                     ignored; an unclosed block counts. ``completed`` then puts the other sessions behind, best first

Published parsers differ between training and inference, let ``-1`` mean the last session, and fall back to the order
of time (reference A15: 14, 11); here a reply that trains well is one that is used well.

Answers, in training's reward, stage 3 and the toolkit alike::

    reply                                              answer
    <think>Lyon?</think><answer>Lyon</answer>          Lyon
    I write <answer>Paris</answer>, no: <answer>Lyon   Lyon         the last one counts; an unclosed one is the rest
    In Lyon.                                           In Lyon.     without tags it is all of the reply
    <think>Lyon or                                                  thinking that never ends answers nothing
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_THINK, _THOUGHT = re.compile(r"<think>", re.I), re.compile(r"</think>", re.I)
_ANSWER, _ANSWERED = re.compile(r"<answer>", re.I), re.compile(r"</answer>", re.I)
_OPEN, _CLOSE = re.compile(r"<ranking>", re.I), re.compile(r"</ranking>", re.I)
# ASCII: a Chinese word may touch a number. Signs, points and letters make it something else than a session's number.
_NUMBER = re.compile(r"(?<![0-9A-Za-z_.+-])[0-9]{1,9}(?![0-9A-Za-z_]|\.[0-9])")
ASKED = 10
"""Sessions that a ranking names, or all where there are fewer."""


class BadRanking(ValueError):
    """A reply that is no valid ranking; the message says why."""


def after_thinking(reply: str) -> str | None:
    """What a reply says behind its thinking; None where the thinking never ends."""
    _, *after = _THOUGHT.split(reply)
    if after:
        return after[-1]
    return None if _THINK.search(reply) else reply


def answer_of(reply: str) -> str:
    """What the reply answers, stripped; may be empty."""
    after = _ANSWER.split(after_thinking(reply) or "")[-1]
    return _ANSWERED.split(after)[0].strip()


def strict_ranking(reply: str, shown: int, asked: int = ASKED) -> tuple[int, ...]:
    """The numbers of a valid ranking of ``shown`` sessions, best first. Raises BadRanking."""
    said = after_thinking(reply)
    if said is None:
        raise BadRanking("the thinking never ends")
    block, closed = _block(said)
    if block is None or not closed:
        raise BadRanking("no <ranking>...</ranking>")
    words = [word.strip() for word in block.split(",")]
    if odd := [word for word in words if not re.fullmatch("[0-9]{1,9}", word) or int(word) >= shown]:
        raise BadRanking(f"no number of the {shown} sessions: {odd[0]!r:.40}")
    numbers = tuple(map(int, words))
    if len(set(numbers)) != len(numbers):
        raise BadRanking("a session is named twice")
    if len(numbers) != min(asked, shown):
        raise BadRanking(f"{len(numbers)} sessions, expected {min(asked, shown)}")
    return numbers


def lenient_ranking(reply: str, shown: int) -> tuple[int, ...]:
    """The usable numbers of a reply, best first; none where there are none."""
    said = after_thinking(reply)
    block, _ = _block(said) if said is not None else (None, False)
    numbers = (int(word) for word in _NUMBER.findall(block or ""))
    return tuple(dict.fromkeys(number for number in numbers if number < shown))


def completed(ranking: Iterable[int], order: Sequence[int]) -> tuple[int, ...]:
    """The ranking, then all of ``order`` (by similarity, say) that it does not name."""
    return tuple(dict.fromkeys([*ranking, *order]))


def _block(said: str) -> tuple[str | None, bool]:
    """What stands in the last ranking block, and whether it is closed."""
    _, *blocks = _OPEN.split(said)
    if not blocks:
        return None, False
    block, *after = _CLOSE.split(blocks[-1], maxsplit=1)
    return block, bool(after)
