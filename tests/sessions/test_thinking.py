"""Thinking ends with its last mark, or never."""

import pytest

from mem_agent.sessions.ranking import after_thinking


@pytest.mark.parametrize(
    ("reply", "said"),
    [("<think>a</think>b", "b"), ("a</think>b", "b"), ("b", "b"), ("<think>a", None), ("", ""), ("a</THINK>b", "b"),
     ("a</think>b</think> c", " c"), ("a <think>b", None)],
)
def test_thinking_is_cut_off(reply, said):
    assert after_thinking(reply) == said
