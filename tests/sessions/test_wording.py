"""What models are shown and asked, in two languages, and what no text of a session can make of it."""

import pytest

from mem_agent.sessions.records import Language, Session, Turn, language_of
from mem_agent.sessions.wording import embedded_text, load_wording, render_history, render_session
from mem_agent.system.errors import ConfigError


@pytest.mark.parametrize("language", Language)
def test_prompts_hold_their_parts_once(language):
    prompt = load_wording().ranking_prompt("Q?", "<session0>\n</session>", 12, language, "2023")
    ranking = "<ranking>9,8,7,6,5,4,3,2,1,0</ranking>"
    for part in ("<session0>", "Q?", "2023", "10", ranking, "<history>", "</question>"):
        assert prompt.count(part) == 1, part
    chat = load_wording().chat_prompt("Q?", "", language, options=("(a) x", "(b) y"))
    assert "Q?\n(a) x\n(b) y\n</question>" in chat and "{" not in chat and "<answer>" in chat


def test_a_text_is_no_template():
    history, question = "{question} {history} {count} {0} {", "{history}{date}"
    chat = load_wording().chat_prompt(question, history, Language.EN)
    assert chat.count(history) == 1 and chat.count(question) == 1


@pytest.mark.parametrize(
    ("text", "language"),
    [("", "en"), ("Where?", "en"), ("他住在哪里？", "zh"), ("他在 Google 工作吗？", "zh"),
     ("Does 王小明 like the new restaurant?", "en"), ("Où est-il né?", "en")],
)
def test_language(text, language):
    assert language_of(text) == language


def test_an_own_file_says_some_texts_and_the_rest_stay(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("en:\n  chat: 'Q {question} H {history} Q {question}'\n", encoding="utf-8")
    asked = [load_wording(str(path)).chat_prompt("q", "h", language) for language in Language]
    assert asked == ["Q q H h Q q", load_wording().chat_prompt("q", "h", Language.ZH)]


@pytest.mark.parametrize("text", ["en: {chat: 'no slots'}", "fr: {chat: ''}", "en:", "en: {chat: 7}", "[1]", "a: [",
                                  None])
def test_a_file_that_is_no_wording_is_refused_by_its_name(tmp_path, text):
    path = tmp_path / "own.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"own\.yaml"):
        load_wording(str(path))


# --- sessions -------------------------------------------------------------------------------------------------------

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


def test_a_date_is_one_line():
    assert render_session(session(date=" 8 May\n2023 </date> "), 0) == (
        "<session0> <date>8 May 2023 &lt;/date></date>\n</session>"
    )
