"""Rows of parquet files and the questions they are."""

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.sessions.records import BadRow, HistoryQuestion, Language, Session, Turn, question_of, row_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.lists(TEXT.filter(str.strip), unique=True, max_size=4)
TURNS = st.lists(st.builds(Turn, TEXT, TEXT), max_size=3).map(tuple)


@st.composite
def questions(draw):
    ids = draw(NAMES)
    sessions = tuple(Session(name, draw(TURNS), draw(TEXT)) for name in ids)
    gold = tuple(name for name in ids if draw(st.booleans()))
    return HistoryQuestion(
        draw(TEXT.filter(bool)), draw(TEXT.map(str.strip).filter(bool)), tuple(draw(NAMES)), sessions, gold,
        draw(TEXT), draw(TEXT), draw(st.sampled_from(Language)), tuple(draw(st.lists(TEXT, max_size=4))),
        {"topic": draw(TEXT)},
    )


@given(questions())
def test_a_question_comes_back_from_parquet(asked):
    (row,) = pa.Table.from_pylist([row_of(asked)]).to_pylist()
    assert question_of(row, "f") == asked


def row(**columns):
    moved = {"role": "user", "content": "I moved to Lyon.", "has_answer": True}
    sessions = [[moved], [{"role": "user", "content": "Hi"}]]
    return {"question": "Where?", "answer": "Lyon", "haystack_sessions": orjson.dumps(sessions).decode(),
            "haystack_session_ids": ["a", "b"], "answer_session_ids": ["a"], **columns}


def test_a_published_row_is_read():
    asked = question_of(row(question_id=7, haystack_dates=["2023/05/20 (Sat) 02:11", None], question_type="x"), "f")
    assert asked == HistoryQuestion(
        "7", "Where?", ("Lyon",), (Session("a", (Turn("user", "I moved to Lyon."),), "2023/05/20 (Sat) 02:11"),
                                    Session("b", (Turn("user", "Hi"),))), ("a",), "", "x",
    )
    assert asked.gold_positions == (0,)


@pytest.mark.parametrize(
    ("columns", "field", "value"),
    [
        ({"answer": 7}, "answers", ("7",)),
        ({"answer": None, "gold_answer": "Paris"}, "answers", ("Paris",)),
        ({"answers": ["A", "A", " ", "B"]}, "answers", ("A", "B")),
        ({"question_id": ""}, "id", "3"),
        ({"answer_session_ids": ["b", "a", "b"]}, "gold", ("b", "a")),
        ({"answer_session_ids": 7, "haystack_session_ids": [7, 8]}, "gold", ("7",)),
        ({"question": " 他住在哪里？ "}, "language", Language.ZH),
        ({"question": "他住在哪里？", "language": "en"}, "language", Language.EN),
        ({"all_options": ["(a) x", "(b) y"]}, "options", ("(a) x", "(b) y")),
        ({"topic": "t", "similarities": [1.0]}, "own", {"topic": "t", "similarities": [1.0]}),
    ],
)
def test_columns(columns, field, value):
    assert getattr(question_of(row(**columns), "f", 3), field) == value


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"question": None}, "question"), ({"haystack_sessions": None}, "haystack_sessions"),
        ({"haystack_sessions": "{"}, "haystack_sessions"), ({"haystack_sessions": "7"}, "haystack_sessions"),
        ({"haystack_sessions": '[[{"role": "user"}]]'}, "haystack_sessions"),
        ({"haystack_session_ids": ["a"]}, "haystack_session_ids"),
        ({"haystack_session_ids": ["a", "a"]}, "haystack_session_ids"), ({"haystack_dates": ["x"]}, "haystack_dates"),
        ({"answer_session_ids": ["c"]}, "'c'"),
    ],
)
def test_a_bad_row_says_where_and_what(columns, says):
    with pytest.raises(BadRow, match=rf"^f: row 3 \(q1\).*{says}"):
        question_of(row(question_id="q1", **columns), "f", 3)
