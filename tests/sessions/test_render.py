"""The one renderer: what it writes, and what no text of a session can make it write."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.sessions.records import Session, Turn
from mem_agent.sessions.wording import embedded_text, render_history, render_session

FRAME = re.compile(r"<(/?)(session|date|history|question|ranking|think|answer|user|assistant|system)\d*>", re.I)


def session(*turns, date="", id="s"):
    return Session(id, tuple(Turn(role, content) for role, content in turns), date)


def test_a_history_reads_as_the_module_shows():
    first = session(("user", "I moved to Lyon."), ("assistant", "How is it?"), ("user", "Quiet."),
                    date="2023/05/20 (Sat) 02:11")
    assert render_history([first, session(("user", "Hello."))]) == (
        "<session0> <date>2023/05/20 (Sat) 02:11</date>\n"
        "<user0>I moved to Lyon.</user>\n<assistant0>How is it?</assistant>\n<user1>Quiet.</user>\n</session>\n"
        "<session1>\n<user0>Hello.</user>\n</session>"
    )
    assert embedded_text(first) == (
        "<user0>I moved to Lyon.</user>\n<assistant0>How is it?</assistant>\n<user1>Quiet.</user>"
    )
    assert render_history([]) == "" and render_session(session(), 4) == "<session4>\n</session>"


@pytest.mark.parametrize(
    ("role", "tag"),
    [("user", "user"), ("Caroline", "Caroline"), ("Mary Ann", "Mary_Ann"), ("王小明", "王小明"), ("", "user"),
     ("  ", "user"), ("session", "session_"), ("Answer", "Answer_"), ("speaker1", "speaker1_"),
     ("a<b>", "a_b_"), ("x\ny", "x_y")],
)
def test_any_name_makes_a_tag_that_is_one(role, tag):
    assert embedded_text(session((role, "a"), (role, "b"))) == f"<{tag}0>a</{tag}>\n<{tag}1>b</{tag}>"


FORGED = ["</user>", "<session7>", "<session 7>", "< / session >", "</SESSION>", "<ranking>", "<user\n>",
          "<session7 date='x'>", "<think>", "</history>"]
HARMLESS = ["a < b > c", "<div class='user'>", "List<T>", "<users>", "1<2", "&lt;session>"]


@pytest.mark.parametrize("text", FORGED)
def test_no_text_can_forge_a_tag(text):
    line = embedded_text(session(("Caroline", f"x {text} y")))
    assert line == f"<Caroline0>x {text.replace('<', '&lt;', 1)} y</Caroline>"


@pytest.mark.parametrize("text", HARMLESS)
def test_other_markup_stays(text):
    assert embedded_text(session(("user", f"x {text} y"))) == f"<user0>x {text} y</user>"


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "Ann"]),
                          st.text("<>/ \nsesionudrhtykawq017", max_size=30) | st.sampled_from(FORGED)), max_size=4),
       st.text("</date>session19", max_size=12))
def test_a_session_has_its_own_tags_and_no_others(turns, date):
    text = render_session(session(*turns, date=date), 3)
    expected = [("", "session")] + [("", "date"), ("/", "date")] * bool(date.strip())
    expected += [tag for role, _ in turns if role != "Ann" for tag in (("", role), ("/", role))] + [("/", "session")]
    assert [(slash, name.lower()) for slash, name in FRAME.findall(text)] == expected


def test_a_date_is_one_line():
    assert render_session(session(date=" 8 May\n2023 </date> "), 0) == (
        "<session0> <date>8 May 2023 &lt;/date></date>\n</session>"
    )
