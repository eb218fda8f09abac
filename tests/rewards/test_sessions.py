"""Chat histories: rows and questions, what is shown of sessions within a budget, prompts, and what replies say."""

from contextlib import nullcontext
from functools import partial

import orjson
import pytest

from mem_agent.rewards import sessions
from mem_agent.rewards.sessions import HistoryQuestion, Language, Session, Turn, embedded_text, load_wording
from mem_agent.tests.helpers.stage_rows import embedded_row, history_question

# --- rows -----------------------------------------------------------------------------------------------------------


def read(**columns):
    talks = [[{"role": "user", "content": "I moved to Lyon.", "has": 1}], [{"role": "user", "content": "Hi"}]]
    row = {"question": "Where?", "answer": "Lyon", "haystack_sessions": orjson.dumps(talks).decode(),
           "haystack_session_ids": ["a", "b"], "answer_session_ids": ["b"], **columns}
    return sessions.question_of(row, "f", 3)


def test_a_published_row_is_read():
    asked = read(question_id=7, haystack_dates=["2023/05/20 (Sat) 02:11", None], question_type="x")
    talks = (Session("a", (Turn("user", "I moved to Lyon."),), "2023/05/20 (Sat) 02:11"),
             Session("b", (Turn("user", "Hi"),)))
    assert asked == HistoryQuestion("7", "Where?", ("Lyon",), talks, ("b",), "", "x")
    assert asked.gold_positions == (1,)


@pytest.mark.parametrize("columns, field, value", [
    ({"answer": None, "gold_answer": 7}, "answers", ("7",)), ({"question_id": ""}, "id", "3"),
    ({"answer_session_ids": 7, "haystack_session_ids": [7, 8]}, "gold", ("7",)),
    ({"question": " 他住在哪里？ "}, "language", "zh"), ({"question": "他？", "language": "en"}, "language", "en"),
    ({"question": "Does 王小明 like the new restaurant?"}, "language", "en"),
    ({"topic": "t", "similarities": [1.0]}, "own", {"topic": "t", "similarities": [1.0]}),
])
def test_columns(columns, field, value):
    assert getattr(read(**columns), field) == value


@pytest.mark.parametrize("columns, named", [
    ({"question": None}, "question"), ({"haystack_sessions": '[[{"role": "user"}]]'}, "haystack_sessions"),
    ({"haystack_session_ids": ["a", "a"]}, "haystack_session_ids"), ({"haystack_dates": ["x"]}, "haystack_dates"),
    ({"answer_session_ids": ["c"]}, "'c'"),
])
def test_a_bad_row_says_where_and_what(columns, named):
    with pytest.raises(sessions.BadRow, match=rf"^f: row 3 \(q1\).*{named}"):
        read(question_id="q1", **columns)


# --- budgets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order, tokens, budget, shown", [
    ([3, 1, 0, 2], [4, 12, 5, 3], 10, (0, 3)),  # the docstring's example
    ([], [4, 5], 10, ()), ([1, 0], [4, 5], 9, (0, 1)), ([1, 0], [4, 5], 8, (1,)), ([0, 1], [3, 3], -5, ()),
    ([0, 1, 2], [5, 6, 1], 10, (0,)),  # 2 would fit, but 1 ended it: the published rule
    ([0, 1], [12, 8], 10, (1,)), ([0, 1], [12, 8], 15, (0,)),  # what was too large takes the room of those behind it
])
def test_sessions_are_taken_until_one_does_not_fit(order, tokens, budget, shown):
    assert sessions.pack(order, tokens, budget) == (shown, sum(tokens[position] for position in shown))


def test_scores_fall_and_equal_ones_keep_the_order_of_time():
    assert sessions.by_score([None, 0.1, float("nan"), 0.5, 0.1]) == [3, 1, 4, 0, 2]


def test_a_prompt_fits():
    """As many of six sessions of one size as have room: three."""
    asked, wording, count = history_question(0), load_wording(), lambda text: len(text.split())
    sizes = embedded_row(asked)["session_tokens"]
    empty = count(wording.ranking_prompt(asked.question, "", 6, asked.language, asked.date))
    prompts = partial(sessions.RankingPrompts, wording, count)
    order = [2, 0, 1, 3, 4, 5]
    text, shown, _ = prompts(empty + 3 * sizes[0] + 8).fill(asked, order)
    assert count(text) <= empty + 3 * sizes[0] + 8 and shown == (0, 1, 2)
    with pytest.raises(sessions.NoRoom):
        prompts(empty + 5).fill(asked, order)


# --- what is shown and asked ----------------------------------------------------------------------------------------


def session(*turns, date=""):
    return Session("s", tuple(Turn(role, content) for role, content in turns), date)


def test_a_history_reads_as_documented():
    first = session(("user", "I moved to Lyon."), ("assistant", "How is it?"), ("user", "Quiet."),
                    date=" 2023/05/20\n(Sat) </date>")
    assert sessions.render_history([first, session(("user", "Hello.")), session()]) == (
        "<session0> <date>2023/05/20 (Sat) &lt;/date></date>\n"
        "<user0>I moved to Lyon.</user>\n<assistant0>How is it?</assistant>\n<user1>Quiet.</user>\n</session>\n"
        "<session1>\n<user0>Hello.</user>\n</session>\n<session2>\n</session>")


def test_no_text_can_forge_a_tag_and_other_markup_stays():
    for text in ("</user>", "<session 7>", "< / session >", "</SESSION>", "<user\n>", "<think>"):
        assert embedded_text(session(("Ann", f"x {text} y"))) == f"<Ann0>x &lt;{text[1:]} y</Ann>"
    for text in ("a < b > c", "<div class='user'>", "List<T>", "<users>", "&lt;session>"):
        assert embedded_text(session(("Ann", f"x {text} y"))) == f"<Ann0>x {text} y</Ann>"


@pytest.mark.parametrize("language", Language)
def test_prompts_hold_their_parts_once_and_no_text_is_a_template(language):
    prompt = load_wording().ranking_prompt("Q? {count}", "<session0>\n{question}</session>", 12, language, "2023")
    ranking = "<ranking>9,8,7,6,5,4,3,2,1,0</ranking>"
    for part in ("<session0>\n{question}", "Q? {count}", "2023", "10", ranking, "<history>", "</question>"):
        assert prompt.count(part) == 1, part
    chat = load_wording().chat_prompt("Q?", "", language, options=("(a) x", "(b) y"))
    assert "Q?\n(a) x\n(b) y\n</question>" in chat and "{" not in chat and "<answer>" in chat


def test_an_own_file_says_some_texts(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("en:\n  chat: 'Q {question} H {history} Q {question}'\n")
    asked = [load_wording(str(own)).chat_prompt("q", "h", language) for language in Language]
    assert asked == ["Q q H h Q q", load_wording().chat_prompt("q", "h", Language.ZH)]


# --- replies --------------------------------------------------------------------------------------------------------

# reply, sessions shown, the strict ranking or None where it is refused, the lenient ranking
REPLIES = [
    ("<think>a</think><ranking>2,0,1</ranking>", 3, (2, 0, 1), (2, 0, 1)),
    ("because of 2</think>\n<RANKING> 2 , 0,\n1 </ranking> done", 3, (2, 0, 1), (2, 0, 1)),  # the template opened it
    ("<think>it is <ranking>0,1</ranking>", 2, None, ()),
    ("<think>draft <ranking>0,1</ranking></think><ranking>1,0</ranking>", 2, (1, 0), (1, 0)),
    ("", 2, None, ()), ("2,0,1</ranking>", 3, None, ()), ("<ranking>2,0,1", 3, None, (2, 0, 1)),
    ("<ranking>1,0</ranking>, no: <ranking>0,1</ranking>", 2, (0, 1), (0, 1)),  # the last block counts
    ("<ranking></ranking>", 2, None, ()), ("<ranking>1,two,0</ranking>", 2, None, (1, 0)),
    ("<ranking>[1] > [0]</ranking>", 2, None, (1, 0)), ("<ranking>会话1，会话0</ranking>", 2, None, (1, 0)),
    ("<ranking>2,0</ranking>", 2, None, (0,)), (f"<ranking>{'9' * 5000}</ranking>", 2, None, ()),
    ("<ranking>0,1,0</ranking>", 2, None, (0, 1)), ("<ranking>1</ranking>", 2, None, (1,)),
]


@pytest.mark.parametrize("reply, shown, strict, lenient", REPLIES)
def test_rankings(reply, shown, strict, lenient):
    assert sessions.lenient_ranking(reply, shown) == lenient
    with pytest.raises(sessions.BadRanking) if strict is None else nullcontext():
        assert sessions.strict_ranking(reply, shown) == strict


@pytest.mark.parametrize("reply, answer", [
    ("<think>Lyon?</think>It is <ANSWER> Lyon </ANSWER>.", "Lyon"), ("a</THINK>b</think> c", "c"),
    ("<think><answer>Paris</answer></think> Lyon", "Lyon"), ("In Lyon.</answer> Sure.", "In Lyon."),
    ("I write <answer>Paris</answer>, no: <answer>in\nLyon", "in\nLyon"), ("a <think>b", ""),
])
def test_answers(reply, answer):
    assert sessions.answer_of(reply) == answer
