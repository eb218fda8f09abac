"""Which questions need no document, by the replies to them."""

import pytest

from mem_agent.evaluation.closed_book import Asked, judge


def asked(name, answers, *replies):
    return Asked(name, tuple(answers), replies)


def boxed(*answers):
    return tuple(f"I think \\boxed{{{answer}}}" for answer in answers)


ONE = [
    (["Ann Lee"], boxed("Bob", "Bob", "Bob", "the Ann Lee."), True),
    (["Ann Lee", "A. Lee"], boxed("Bob", "Bob", "Bob", "A Lee"), True),
    (["Ann Lee"], ("It was Ann Lee, surely.",) + boxed("Bob"), True),
    (["Ann Lee"], ("Joann Leeds.", "lee ann"), False),
    (["Ann Lee"], ("<think>Ann Lee?</think>\\boxed{Bob}", "no"), False),
    (["Rome"], ("Rome", ""), True),
    (["1984"], ("It was in 1984 or 1985, I am not sure.", "\\boxed{1985}"), False),
    (["1,984"], boxed("1985", "1984"), True),
    (["U2"], ("Was it U2?", "ABBA"), False),
    (["seven"], boxed("six", "seven"), True),
]


@pytest.mark.parametrize(("answers", "replies", "known"), ONE)
def test_open_answers_and_numbers_need_one_right_reply(answers, replies, known):
    assert judge([asked("q", answers, *replies)]).dropped == (("q",) if known else ())


def coins(*patterns):
    """Questions with a yes or no as gold, and what was said to each."""
    return [asked(f"{gold}{n}", [gold], *boxed(*said)) for n, (gold, said) in enumerate(patterns)]


def test_yes_and_no_survive_a_model_that_guesses():
    both = ["yes", "no"]
    rows = coins(*((gold, [both[(n >> k) & 1] for k in range(4)]) for gold in both for n in range(16)))
    verdict = judge(rows)
    assert verdict.dropped == ("yes0", "no31")  # all four right, of the 16 patterns of each
    assert verdict.statistics["choices_before"] == {"no": 16, "yes": 16}
    assert verdict.statistics["choices_after"] == {"no": 15, "yes": 15}


def test_a_habit_is_no_knowledge():
    always = judge(coins(*[("yes", ["yes"] * 4), ("no", ["yes"] * 4)] * 5))
    assert always.dropped == () and always.statistics["habits"] == {"yes": 1.0}
    mostly = judge(coins(*[("yes", ["yes"] * 4)] * 9, ("no", ["no"] * 4)))
    assert mostly.dropped == ("no9",)


def test_statistics():
    rows = [asked("a", ["Anna"], *boxed("Anna", "Bob")), asked("b", ["12"], *boxed("1", "2"))]
    assert judge([*rows, *coins(("no", ["no"] * 2))]).statistics == {
        "asked": 3, "dropped": 1, "choices_before": {"no": 1}, "choices_after": {"no": 1}, "habits": {"no": 1.0},
        "by_kind": {"choice": {"asked": 1, "dropped": 0}, "number": {"asked": 1, "dropped": 0},
                    "open": {"asked": 1, "dropped": 1}},
        "replies_right": 0.5,
    }
