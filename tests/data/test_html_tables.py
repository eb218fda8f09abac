"""Which tables are shown as columns, and what others take."""

import pytest
from inscriptis.html_engine import Inscriptis

from mem_agent.data.html_pages import page_text
from mem_agent.tests.helpers.cpu_time import at_most

LONG = "word " * 200


def shown(body: str) -> list[str]:
    return page_text(f"<html><title>T</title>{body}").splitlines()[2:]


@pytest.mark.parametrize(("body", "text"), [
    ("<table><tr><td>metal<td>lead<tr><td>a long cell<td>x</table>", ["metal        lead", "a long cell  x"]),
    ("<table><tr><td>a<br>b<td>c<p>d</table>", ["   c", "a", "b  d"]),
    ("<table><tr><td>a<table><tr><td>b<td>c<tr><td>d</table><td>e</table>", ["ab  c", "d      e"]),
    ("<table>" + "<tr><td>a<td>b" * 1000 + "</table>", ["a  b"] * 1000),
    ("<table><tr><td><pre>a\nb</pre><td>c</table>", ["a  c", "b"]),
    ("<table><td>a<td>b</table>", ["a  b"]),
])  # fmt: skip
def test_tables_of_people_are_columns(body, text):
    assert shown(body) == text


def test_a_page_that_is_laid_out_by_a_table_is_shown_by_it():
    found = shown(f"<table><tr><td>Home<br>News<td>{f'<p>{LONG}</p>' * 200}</table>")
    assert len(found) == 399 and found[0] == f"      {LONG.strip()}" and sum("Home" in line for line in found) == 1


WIDE = {
    "a row of many columns": "<table>" + "<tr><td>a" * 5_000 + "<tr>" + "<td>" * 5_000 + "</table>",
    "rows beside a long cell": "<table>" + "<tr><td>a<td>b" * 2_000 + f"<tr><td>{'z' * 10_000}</table>",
    "lines beside a long cell": f"<table><tr><td>{'a<br>' * 20_000}<td>{'b' * 20_000}<td>c</table>",
    "written lines": "<table><tr><td><pre>" + "a\n" * 20_000 + f"</pre><td>{'b' * 20_000}<td>c</table>",
    "many tables": ("<table>" + "<tr><td>a<td>c" * 300 + f"<tr><td>{'b' * 2500}</table>") * 50,
    "tables in tables": "<table><tr><td>" * 100 + "<table>" + "<tr><td>a" * 5_000,
    "tables beside a long cell": f"<table><tr><td>{'<table><tr><td>a</table>' * 9_000}<td>{'b' * 20_000}<td>c</table>",
}


@pytest.mark.parametrize("body", WIDE.values(), ids=WIDE)
def test_columns_of_blanks_are_not_made(body, monkeypatch):
    """Neither written nor held, as blanks at the end of a line would be."""
    made = []
    text = Inscriptis.get_text
    monkeypatch.setattr(Inscriptis, "get_text", lambda self: made.append(text(self)) or made[-1])
    with at_most(20):
        shown(body)
    assert len(made[0]) < 2**22 + 32 * len(body)
