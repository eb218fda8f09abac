"""The answer in a reply."""

import pytest

from mem_agent.sessions.ranking import answer_of


@pytest.mark.parametrize("reply,answer", [
    ("<answer>Lyon</answer>", "Lyon"),
    ("It is <ANSWER> Lyon </ANSWER>.", "Lyon"),
    ("<think>Lyon?</think><answer>Lyon</answer>", "Lyon"),
    ("Lyon?</think><answer>Lyon</answer>", "Lyon"),  # a template that opened the thinking itself
    ("<think><answer>Paris</answer></think> Lyon", "Lyon"),
    ("I write <answer>Paris</answer>, no: <answer>Lyon", "Lyon"),
    ("<answer>in\nLyon", "in\nLyon"),
    ("In Lyon. ", "In Lyon."),
    ("In Lyon.</answer> Sure.", "In Lyon."),
    ("<think>Lyon or", ""),
    ("<answer></answer>", ""),
    ("", ""),
    ("<answer>5</answer", "5</answer"),
    ("<answer>里昂</answer>", "里昂"),
])
def test_the_answer_of_a_reply(reply, answer):
    assert answer_of(reply) == answer
