"""Replies: rankings that earn a reward, what can still be used of others, answers, and thinking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.sessions.ranking import (
    BadRanking,
    after_thinking,
    answer_of,
    completed,
    lenient_ranking,
    strict_ranking,
)

TEN = ",".join(map(str, range(10)))
# reply, sessions shown, the strict ranking or None where it is refused, the lenient ranking
REPLIES = [
    ("<think>a</think><ranking>2,0,1</ranking>", 3, (2, 0, 1), (2, 0, 1)),
    ("because of 2</think>\n<ranking> 2 , 0,\n1 </ranking> done", 3, (2, 0, 1), (2, 0, 1)),  # the template opened it
    ("<RANKING>1,0</Ranking>", 2, (1, 0), (1, 0)),  # ranks without thinking
    (f"<ranking>{TEN}</ranking>", 40, tuple(range(10)), tuple(range(10))),
    ("<ranking>007,0</ranking>", 8, None, (7, 0)),
    # thinking
    ("<think>it is <ranking>0,1</ranking>", 2, None, ()),
    ("<think>draft <ranking>0,1</ranking></think><ranking>1,0</ranking>", 2, (1, 0), (1, 0)),
    ("<think>a</think> no block, though <ranking> was meant", 2, None, ()),
    # tags: the last block counts, as the last answer does
    ("", 2, None, ()), ("2,0,1</ranking>", 3, None, ()), ("<ranking>2,0,1", 3, None, (2, 0, 1)),
    ("<ranking>1,0</ranking>, no: <ranking>0,1</ranking>", 2, (0, 1), (0, 1)),
    ("<ranking>1,0</ranking>, or <ranking>0,", 2, None, (0,)),
    ("<ranking><ranking>1,0</ranking>", 2, (1, 0), (1, 0)),
    # numbers
    ("<ranking></ranking>", 2, None, ()), ("<ranking>none</ranking>", 2, None, ()),
    ("<ranking>1,,0</ranking>", 2, None, (1, 0)), ("<ranking>1,two,0</ranking>", 2, None, (1, 0)),
    ("<ranking>1 0</ranking>", 2, None, (1, 0)), ("<ranking>-1,0</ranking>", 2, None, (0,)),
    ("<ranking>1.5, 0.</ranking>", 2, None, (0,)), ("<ranking>[1] > [0]</ranking>", 2, None, (1, 0)),
    ("<ranking>session1, 0x0, 1e1, 1_0</ranking>", 2, None, ()), ("<ranking>会话1，会话0</ranking>", 2, None, (1, 0)),
    ("<ranking>１,0</ranking>", 2, None, (0,)),
    # numbers of sessions
    ("<ranking>2,0</ranking>", 2, None, (0,)), (f"<ranking>{'9' * 5000}</ranking>", 2, None, ()),
    ("<ranking>0,1,0</ranking>", 2, None, (0, 1)), ("<ranking>1</ranking>", 2, None, (1,)),
    (f"<ranking>{TEN},10</ranking>", 40, None, tuple(range(11))), ("<ranking>0</ranking>", 0, None, ()),
]


@pytest.mark.parametrize(("reply", "shown", "strict", "lenient"), REPLIES)
def test_replies(reply, shown, strict, lenient):
    assert lenient_ranking(reply, shown) == lenient
    if strict is not None:
        assert strict_ranking(reply, shown) == strict
    else:
        with pytest.raises(BadRanking):
            strict_ranking(reply, shown)


PIECES = ["<think>", "</think>", "<ranking>", "</ranking>", "1", "-1", ",", " ", "x", "9" * 12]


@given(st.lists(st.sampled_from(PIECES)), st.integers(0, 4))
def test_no_reply_breaks_the_parsers_and_strict_is_a_case_of_lenient(pieces, shown):
    reply = "".join(pieces)
    lenient = lenient_ranking(reply, shown)
    assert len(set(lenient)) == len(lenient) and all(0 <= number < shown for number in lenient)
    try:
        assert strict_ranking(reply, shown) == lenient
    except BadRanking:
        pass


def test_what_a_ranking_does_not_name_follows_by_similarity():
    assert completed((7, 2), [0, 2, 7, 1]) == (7, 2, 0, 1)


@pytest.mark.parametrize("reply, said", [
    ("<think>a</think>b", "b"), ("a</THINK>b", "b"), ("b", "b"), ("<think>a", None), ("a</think>b</think> c", " c"),
    ("a <think>b", None)])
def test_thinking_is_cut_off(reply, said):
    assert after_thinking(reply) == said


@pytest.mark.parametrize("reply, answer", [
    ("It is <ANSWER> Lyon </ANSWER>.", "Lyon"), ("<think>Lyon?</think><answer>Lyon</answer>", "Lyon"),
    ("<think><answer>Paris</answer></think> Lyon", "Lyon"),
    ("I write <answer>Paris</answer>, no: <answer>Lyon", "Lyon"), ("<answer>in\nLyon", "in\nLyon"),
    ("In Lyon.</answer> Sure.", "In Lyon."), ("<think>Lyon or", ""), ("<answer></answer>", ""), ("", ""),
])
def test_the_answer_of_a_reply(reply, answer):
    assert answer_of(reply) == answer
