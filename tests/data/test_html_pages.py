"""Pages as they are shown, and pages that would be shown as the square of what they are."""

import pytest

from mem_agent.data.html_pages import page_text
from mem_agent.tests.helpers.cpu_time import at_most


def lines(body: str) -> list[str]:
    return page_text(f"<html><title>T</title>{body}").splitlines()[2:]


def test_hidden_parts_leave_what_is_around_them():
    assert lines("a<b hidden>x</b>b<i style='display:none'>x<u hidden>y</u>z</i>c<p hidden>x</p>d") == ["abcd"]
    assert lines("<table><tr><td>a<td hidden>b<td>c</table>") == ["a  c"]


@pytest.mark.parametrize("tag", [
    "center", "dd", "details", "dialog", "dir", "div", "dt", "fieldset", "figcaption", "figure", "footer", "form",
    "header", "hgroup", "main", "menu", "nav", "optgroup", "option", "p", "search", "section",
])  # fmt: skip
def test_what_a_browser_shows_below_each_other_is_no_one_word(tag):
    assert [line for line in lines(f"a<{tag}>b</{tag}><{tag}>c</{tag}>d") if line] == ["a", "b", "c", "d"]


def test_definitions_and_rules_end_a_line():
    assert lines("<dl><dt>Metal<dd>Gold is yellow.<dt>Fruit<dd>Fig.</dl>") == [
        "Metal", "Gold is yellow.", "Fruit", "Fig."]
    assert lines("a<hr>b<fieldset><legend>c</legend>d</fieldset><details><summary>e</summary>f</details>") == [
        "a", "b", "c", "d", "e", "f"]


def test_fields_of_a_form_are_apart_and_words_are_whole():
    form = "<label>Name</label><input><label><b>Town</b></label><select><option>x</select><button>Go</button>now"
    assert lines(f"<form>{form}</form>") == ["Name Town Go now"]
    assert lines("<p>a<wbr>b H<sub>2</sub>O <i>it</i>alic") == ["ab H2O italic"]


def test_lists_are_indented_as_deep_as_people_write_them():
    nested = "".join(f"<ul><li>{level}" for level in range(16))
    assert lines(nested) == [f"{'    ' * level}  {'*+o-'[level % 4]} {level}" for level in range(16)]
    assert lines("<ol><li>a<li value=7>b<li>c</ol>") == [" 1. a", " 7. b", " 8. c"]


@pytest.mark.parametrize("number", ["²", "9" * 5000, "", "-1"])
def test_a_number_that_is_none_is_ignored(number):
    assert lines(f"<ol><li>a<li value='{number}'>b</ol>") == [" 1. a", " 2. b"]


def test_a_line_of_people_is_never_broken():
    assert lines(f"<p>{'<i>word</i> ' * 9_000}<p>b") == ["word " * 8_999 + "word", "", "b"]
    assert set(lines(f"<table><tr><td>{'a' * 9_000}<td>b</table>" * 120)) - {""} == {"a" * 9_000 + "  b"}


@pytest.mark.parametrize("body", [
    f"<p hidden>a</p>{'b' * 300}" * 20_000,
    f"<b hidden>a</b>{'b' * 300}" * 20_000,
    f"<i>{'b' * 300}</i>" * 20_000,
    "<ul><li>" * 400 + "<li>a" * 20_000,
    "<ul><li>" * 300 + "<pre>" + "a\n" * 20_000,
    "<ul><li>" * 300 + "<table><tr><td>a</table>" * 5_000,
], ids=["hidden paragraphs", "hidden words", "words", "list", "lines", "tables"])
def test_time_and_text_are_in_proportion_to_the_page(body):
    with at_most(20):
        assert len(page_text(f"<html>{body}")) < 40 * len(body)
