"""What models are asked, in two languages, and where a text of a history goes."""

import pytest

from mem_agent.sessions.records import Language, language_of
from mem_agent.sessions.wording import load_wording
from mem_agent.system.errors import ConfigError


@pytest.mark.parametrize("language", Language)
def test_prompts_hold_their_parts_once(language):
    prompt = load_wording().ranking_prompt("Q?", "<session0>\n</session>", 12, language, "2023")
    ranking = "<ranking>9,8,7,6,5,4,3,2,1,0</ranking>"
    for part in ("<session0>", "Q?", "2023", "10", ranking, "<history>", "</question>"):
        assert prompt.count(part) == 1, part
    chat = load_wording().chat_prompt("Q?", "", language, options=("(a) x", "(b) y"))
    assert "Q?\n(a) x\n(b) y\n</question>" in chat and "{" not in chat and "<answer>" in chat


def test_fewer_sessions_are_asked_for_where_there_are_fewer():
    prompt = load_wording().ranking_prompt("Q?", "h", 2, Language.EN)
    assert "<ranking>1,0</ranking>" in prompt and "the 2 best" in prompt


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
