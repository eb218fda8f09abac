"""Which option a reply chooses."""

import pytest

from mem_agent.rewards.option_choice import choice_score, chosen_option, option_labels, option_text, right_option

FOUR = ("(a) You like tea.", "(b) You like coffee.", "(c) You said that you like tea with milk.", "(d) A walk.")


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        ("(c)", 2), ("c", 2), ("C.", 2), ("c) the milk", 2), ("（c）", 2), ("[C]", 2), (" (C) ", 2), ("**(c)**", 2),
        ("I would say (c).", 2), ("(c) You said that you like tea with milk.", 2), ("The answer is C", 2),
        ("Answer: c", 2), ("option c is best", 2), ("Option C.", 2), ("选c", 2), ("答案是C", 2), ("选项 b", 1),
        ("(a) or (c)", None), ("(c), that is (c)", 2), ("(e)", None), ("", None), (None, None), ("tea", None),
        ("You like coffee", 1), ("you like COFFEE!", 1), ("a good idea is coffee", None), ("a", 0), ("A walk", 3),
        ("a good choice is (b)", 1), ("the answer is a walk", 3), ("I like it", None),
        ("You like tea. You like coffee.", None),
        ("**C**", 2), ("I would say **C**.", 2), ("\\boxed{c}", 2), ("\\boxed{\\text{C}}", 2), ("so $\\boxed{C}$.", 2),
        ("The best one is C", 2), ("The best one is C.", 2), ("C is right", 2), ("I think B is the correct one.", 1),
        ("This is a good question", None), ("The best one is not C", None),
    ],
)
def test_replies(reply, number):
    assert chosen_option(reply, FOUR) == number


@pytest.mark.parametrize(
    ("answers", "number"), [(("You like coffee.", "(b)"), 1), (("(d)",), 3), (("You like",), None), ((), None),
                            (("(b) You like coffee.",), 1)]
)
def test_the_right_one_is_named_whole_by_label_or_by_text(answers, number):
    assert right_option(answers, FOUR) == number


def test_options_without_labels_are_counted():
    assert option_labels(["tea", "coffee"]) == ["a", "b"]
    assert (option_text("B. coffee"), option_text("coffee")) == ("coffee", "coffee")
    assert (chosen_option("b", ["tea", "coffee"]), chosen_option("coffee", ["tea", "coffee"])) == (1, 1)
    assert option_labels(["(d) x", "(a) y"]) == ["d", "a"] and chosen_option("(a)", ["(d) x", "(a) y"]) == 1
    assert chosen_option("(c)", []) is None


def test_a_choice_is_worth_all_or_nothing_and_without_one_to_make_there_is_no_score():
    right = ("You like coffee.", "(b)")
    assert [choice_score(said, right, FOUR) for said in ("b", "You like tea.", None)] == [1.0, 0.0, 0.0]
    assert choice_score("b", ("coffee",), FOUR) is None and choice_score("b", right, ()) is None
