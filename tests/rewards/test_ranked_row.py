"""A row of rank_sessions and its stored history: what is none of them is refused in one line."""

import json

import pytest

from mem_agent.rewards.ranked_row import read_history, read_row
from mem_agent.sessions.render import render_history
from mem_agent.sessions.table import BadRow

ROW = {"question": "Where?", "answers": ["Lyon"], "shown": 1, "session_tokens": [4], "history_id": "h"}
STORED = {"sessions": [[{"role": "user", "content": "Hi."}]], "ids": ["s"], "dates": ["2023"]}


@pytest.mark.parametrize("change", [
    {"shown": float("inf")}, {"session_tokens": [float("inf")]}, {"shown": None}, {"shown": 2}, {"answers": "Lyon"},
    {"session_tokens": 4}, {"session_tokens": [-4]}, {"question": " "}, {"options": ["o"] * 27},
], ids=str)
def test_a_row_that_is_none_is_refused_in_one_line(change):
    assert read_row(ROW).shown == 1 and len(read_row(ROW | {"options": ["o"] * 26}).options) == 26
    with pytest.raises(BadRow) as error:
        read_row(ROW | change)
    assert "\n" not in str(error.value)


def test_a_history_is_of_texts_whatever_was_stored():
    [session] = read_history(json.dumps(STORED | {"dates": [5]}), 1)
    assert session.date == "5" and "<date>5</date>" in render_history([session])


@pytest.mark.parametrize("document", [
    "", "5", json.dumps(STORED | {"ids": []}), json.dumps(STORED | {"dates": None}), "\ud800",
    json.dumps(STORED).replace('"Hi."', "[" * 1000 + "]" * 1000),
], ids=lambda document: document[:12])
def test_a_history_that_is_none_is_refused_in_one_line(document):
    with pytest.raises(BadRow, match="a stored history is no JSON of sessions, ids and dates") as error:
        read_history(document, 1)
    assert "\n" not in str(error.value)
