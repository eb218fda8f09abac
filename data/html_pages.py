"""What a browser shows of an HTML page, as text under the page's title.

Invariant: text is in proportion to the page: neither hidden parts, nor lists in lists, nor columns of tables
(``html_tables``) take the square of its length.
"""

from __future__ import annotations

import re
from typing import Any

from .html_attributes import with_few_attributes
from .html_tables import BREAKS, TABLES, undo_wide_tables

_XML_HEADS = re.compile(r"(\s*+<\?xml[^>]*+>)*+")
_FIELDS = ("button", "input", "label", "select", "textarea")
"""What a browser shows within a line, and apart from the words around it."""
_UNSEEN = ("script", "style", "template", "noscript", "iframe", "object", "svg", "textarea", "select")
_LISTS = {"ul", "ol"}
_DEEPEST = 16
"""Lists in each other that are shown as such: each indents all of its lines by four blanks."""
_LONGEST_LINE = 2**20
"""Characters that are shown without a break: the library copies a line for each word that it adds."""
_LONGEST_NUMBER = 9
"""Digits of an entry's own number."""


def page_text(page: str) -> str:
    """Raises lxml.etree.LxmlError, and RecursionError for a page that is nested too deeply."""
    from inscriptis.html_engine import Inscriptis
    from inscriptis.model.config import ParserConfig
    from lxml import html

    # The parser's own limit of 256 levels drops what lies deeper without a word.
    parser = html.HTMLParser(huge_tree=True, remove_comments=True, remove_pis=True)
    tree = html.document_fromstring(with_few_attributes(page[_heads_end(page) :]), parser=parser)
    title = " ".join((tree.findtext(".//title") or "").split())
    for element in tree.iter(*_FIELDS):
        element.text, element.tail = f" {element.text or ''}", f" {element.tail or ''}"
    _empty_unseen(tree)
    _flatten_deep_lists(tree)
    undo_wide_tables(tree, len(page))
    _break_long_lines(tree)
    shown = Inscriptis(tree, ParserConfig(css=_shown())).get_text()
    lines = "\n".join(line.rstrip() for line in shown.splitlines()).strip("\n")
    text = re.sub(r"\n{3,}", "\n\n", lines)
    return text if text.lstrip().startswith(title) else f"{title}\n\n{text}"


def _shown() -> dict[str, Any]:
    """Of the elements, the library's own; it knows neither definitions nor forms."""
    from inscriptis.css_profiles import STRICT_CSS_PROFILE
    from inscriptis.html_properties import Display
    from inscriptis.model.html_element import HtmlElement

    return {tag: HtmlElement(display=Display.block) for tag in BREAKS - {"br"}} | STRICT_CSS_PROFILE


def _heads_end(page: str) -> int:
    found = _XML_HEADS.match(page)
    return found.end() if found else 0


def _empty_unseen(tree: Any) -> None:
    """And not remove, which would join the texts around each anew. All styles but this one go: an indent of ten
    thousand characters takes a few to write."""
    unseen = list(tree.iter(*_UNSEEN))
    for element in tree.xpath("//*[@hidden or @style]"):
        style = "".join(element.attrib.pop("style", "").lower().split())
        if "hidden" in element.attrib or "display:none" in style:
            unseen.append(element)
    for element in unseen:
        element.clear(keep_tail=True)
        element.tag = _UNSEEN[0]


def _flatten_deep_lists(tree: Any) -> None:
    from lxml import etree

    depth = 0
    for event, element in etree.iterwalk(tree, ("start", "end"), tag=_LISTS):
        depth += 1 if event == "start" else -1
        if event == "end" and depth >= _DEEPEST:
            element.tag = "div"
    for entry in tree.iter("li"):
        number = entry.get("value", "")
        if len(number) > _LONGEST_NUMBER or not (number.isascii() and number.isdecimal()):
            entry.attrib.pop("value", None)


def _break_long_lines(tree: Any) -> None:
    """At an element that is within the line."""
    from lxml import etree

    line, ends = 0, BREAKS | TABLES
    for event, element in etree.iterwalk(tree, ("start", "end")):
        if event == "start" and line > _LONGEST_LINE and element.tag not in ends:
            element.tag = "div"
        text = element.text if event == "start" else element.tail
        line = len(text or "") + (0 if element.tag in ends else line)
