"""Rows of the known data sets: accepted shapes, and what is said about bad rows."""

import numpy as np
import pytest

from mem_agent.data.row_schemas import BadRow, Schema, read_question, schema_of

MEMAGENT = {
    "prompt": [{"role": "user", "content": "Who?"}],
    "context": "Document 1:\nAnn\nAnn is.",
    "reward_model": {"ground_truth": ["Ann"]},
    "extra_info": {"question": "Who, again?"},
}
HOTPOTQA = {
    "question": "Who?",
    "answer": "Ann",
    "context": {"title": ["Ann"], "sentences": [["Ann is.", " She was."]]},
}


def without(row, field):
    return {key: value for key, value in row.items() if key != field}


def test_schemas_are_told_apart():
    assert schema_of(MEMAGENT) is Schema.MEMAGENT
    assert schema_of(HOTPOTQA) is Schema.HOTPOTQA
    assert schema_of({"text": "a", "context": "b"}) is None


def test_arrays_of_paragraphs():
    paragraphs = {"title": np.array(["Ann"]), "sentences": np.array([["Ann is.", " She was."]])}
    expected = read_question(HOTPOTQA, Schema.HOTPOTQA)
    assert read_question(HOTPOTQA | {"context": paragraphs}, Schema.HOTPOTQA) == expected
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.array(["a."]), np.array(["b.", " c."])]
    paragraphs = {"title": np.array(["A", "B"]), "sentences": ragged}
    question = read_question(HOTPOTQA | {"context": paragraphs}, Schema.HOTPOTQA)
    assert question.context == "Document 1:\nA\na.\n\nDocument 2:\nB\nb. c."


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        ("Who?", "Who?"),
        (np.array([{"role": "user", "content": "Who?"}], dtype=object), "Who?"),
        ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}], "Who?"),
        ([{"role": "user", "content": [{"type": "text", "text": "Who?"}]}], "Who?"),
        (None, "Who, again?"),
        ([], "Who, again?"),
    ],
)
def test_shapes_of_a_prompt(prompt, question):
    assert read_question(MEMAGENT | {"prompt": prompt}, Schema.MEMAGENT).question == question


@pytest.mark.parametrize(
    ("truth", "golds"),
    [
        ("Ann", ("Ann",)),
        (["B", "A", "", "B", None], ("B", "A")),
        (np.array(["B", "A"], dtype=object), ("B", "A")),
    ],
)
def test_shapes_of_golds(truth, golds):
    assert read_question(MEMAGENT | {"reward_model": {"ground_truth": truth}}, Schema.MEMAGENT).golds == golds


BAD_ROWS = [
    (without(MEMAGENT, "context"), "context is missing or empty"),
    (MEMAGENT | {"context": " \n"}, "context is blank"),
    (MEMAGENT | {"context": ["text"]}, "context is list, expected text"),
    (MEMAGENT | {"context": "\ud800"}, "context holds half a Unicode character"),
    (MEMAGENT | {"prompt": "", "extra_info": None}, r"prompt \(and extra_info.question\) is missing"),
    (MEMAGENT | {"prompt": ["Who?"]}, "prompt holds str"),
    (MEMAGENT | {"prompt": 7}, "prompt is int"),
    (MEMAGENT | {"reward_model": None}, "reward_model.ground_truth is missing"),
    (MEMAGENT | {"reward_model": {"ground_truth": ["", None]}}, "reward_model.ground_truth is missing"),
    (MEMAGENT | {"reward_model": {"ground_truth": [7]}}, "ground_truth holds int"),
    (without(HOTPOTQA, "answer"), "answer is missing"),
    (HOTPOTQA | {"question": ""}, "question is missing"),
    (HOTPOTQA | {"context": []}, "context is empty"),
    (HOTPOTQA | {"context": "text"}, "context is str"),
    (HOTPOTQA | {"context": {"title": ["Ann"], "sentences": []}}, "equal length"),
    (HOTPOTQA | {"context": [["Ann", "Ann is."]]}, "not a title with a list"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS)
def test_bad_rows_say_why(row, reason):
    with pytest.raises(BadRow, match=reason):
        read_question(row, Schema.MEMAGENT if "reward_model" in row else Schema.HOTPOTQA)
