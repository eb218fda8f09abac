"""Which option a reply chooses."""

import pytest

from mem_agent.rewards.text_f1 import choice_score, chosen_option, option_labels, option_text, right_option

FOUR = ("(a) You like tea.", "(b) You like coffee.", "(c) You said that you like tea with milk.", "(d) A walk.")
CHOICES = {
    0: ["a"],
    1: ["选项 b", "You like coffee", "you like COFFEE!", "a good choice is (b)", "I think B is the correct one."],
    2: ["(c)", "C.", "c) the milk", "（c）", "I would say (c).", "The answer is C", "答案是C", "(c), that is (c)",
        "I would say **C**.", "so $\\boxed{\\text{C}}$.", "The best one is C", "C is right"],
    3: ["the answer is a walk"],
    None: ["(a) or (c)", "(e)", None, "a good idea is coffee", "You like tea. You like coffee.", "Not C"],
}


@pytest.mark.parametrize(("reply", "number"), [(reply, number) for number, some in CHOICES.items() for reply in some])
def test_replies(reply, number):
    assert chosen_option(reply, FOUR) == number


def test_the_right_one_is_named_whole_by_label_or_by_text():
    named = {("You like coffee.",): 1, ("(d)",): 3, ("(b) You like coffee.",): 1, ("You like",): None, (): None}
    assert {answers: right_option(answers, FOUR) for answers in named} == named


def test_options_without_labels_are_counted():
    assert option_labels(["tea", "coffee"]) == ["a", "b"] and option_text("B. coffee") == "coffee"
    assert (chosen_option("b", ["tea", "coffee"]), chosen_option("coffee", ["tea", "coffee"])) == (1, 1)
    assert option_labels(["(d) x", "(a) y"]) == ["d", "a"] and chosen_option("(a)", ["(d) x", "(a) y"]) == 1


def test_a_choice_is_worth_all_or_nothing_and_without_one_to_make_there_is_no_score():
    right = ("You like coffee.", "(b)")
    assert [choice_score(reply, right, FOUR) for reply in ("b", "You like tea.", None)] == [1.0, 0.0, 0.0]
    assert choice_score("b", ("coffee",), FOUR) is None and choice_score("b", right, ()) is None
