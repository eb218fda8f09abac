"""What the ranker is shown, and that the prompt never exceeds its limit."""

import pytest

from mem_agent.memsifter.stages.ranking_prompt import NoRoom, ranking_prompt
from mem_agent.sessions.wording import load_wording
from mem_agent.tests.helpers.stage_rows import history_question

WORDING = load_wording()


def words(text):
    return len(text.split())


def prompt(asked, similarities, tokens, limit=10_000, top_k=0, count=words):
    return ranking_prompt(asked, similarities, tokens, limit=limit, top_k=top_k, wording=WORDING, count=count)


ASKED = history_question(0, sessions=4)
EMPTY = words(WORDING.ranking_prompt(ASKED.question, "", 0, ASKED.language, ASKED.date))


@pytest.mark.parametrize("budget,top_k,shown", [
    (100, 0, (0, 1, 2, 3)), (100, 2, (1, 3)), (59, 0, (0, 1, 3)), (58, 0, (1, 3)), (20, 0, (3,)), (19, 0, (1,)),
])
def test_the_most_similar_sessions_that_fit_in_the_order_of_time(budget, top_k, shown):
    """Most similar first: 3, 1, 0, 2, of 20 tokens each, but 1 of 19 and 2 of 30; a larger one is passed over."""
    tokens = [20, 19, 30, 20]
    found = prompt(ASKED, [0.5, 0.8, 0.1, 0.9], tokens, EMPTY + budget, top_k)
    assert found.shown == shown
    assert [f"note {n}." in found.text for n in range(4)] == [n in shown for n in range(4)]
    assert f"<session{len(shown) - 1}>" in found.text and f"<session{len(shown)}>" not in found.text


@pytest.mark.parametrize("limit", range(EMPTY + 25, EMPTY + 120, 7))
def test_a_prompt_never_exceeds_its_limit_whatever_stage_1_counted(limit):
    found = prompt(ASKED, [0.5, 0.8, 0.1, 0.9], [1, 1, 1, 1], limit)
    assert found.shown and words(found.text) <= limit


def test_no_session_fits():
    with pytest.raises(NoRoom, match="19"):
        prompt(ASKED, [0.5, 0.8, 0.1, 0.9], [20, 19, 20, 20], EMPTY + 5)
