r"""A message that holds document and question in one text: where one ends and the other begins.

    text                                            document         question
    "<any text>\n\nQuestion: Who?\nAnswer:"         <any text>       Who?
    "<long text>\n\nWho has the key?"               <long text>      Who has the key?
    "Question: Who?\n\n<long text>"                 <long text>      Who?
    "Who has the key?"                                               Who has the key?

The rule, in this order; a text is long if it has more tokens than a question may have (MEM_MAX_QUESTION):

1. Behind the last line that begins with ``Question:`` stands the question, before it the document.
2. A text that is not long is a question.
3. A long text that begins with ``Question:`` has its question in the first paragraph, the document behind it.
4. Of any other long text the last paragraph is the question (the last line, where there are no paragraphs).

A line ``Answer:`` at the very end belongs to neither. Prompts with solved examples (``Question: ... Answer: ...``,
then the question) are of the first kind: the examples are read as a document.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_QUESTION = re.compile(r"^[ \t]*question[ \t]*:", re.IGNORECASE | re.MULTILINE)
_ANSWER = re.compile(r"\s*answer[ \t]*:", re.IGNORECASE)
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_END = 2**16
"""Characters of a text's end that may hold the question: a search of megabytes would stop everything else."""


def split_message(text: str, is_long: Callable[[str], bool]) -> tuple[str, str]:
    """Document and question, stripped."""
    text = text.strip()
    front, end = text[:-_END], text[-_END:]
    before, _, last = end.rpartition("\n")  # no search through all blanks of 64 KiB for each of them
    end = before.rstrip() if before and _ANSWER.fullmatch(last) else end
    marks = list(_QUESTION.finditer(end))
    if marks and end[marks[-1].end() :].strip():
        before = front + end[: marks[-1].start()]
        if before.strip():
            return before.strip(), end[marks[-1].end() :].strip()
    if not is_long(text):
        return "", text
    if first := _QUESTION.match(text):
        paragraph, _, rest = _paragraphs(text[:_END], first=True)
        if rest:
            return (rest + text[_END:]).strip(), paragraph[first.end() :].strip()
    document, question = _last(end)
    return (front + document).strip(), question


def _last(end: str) -> tuple[str, str]:
    document, _, question = _paragraphs(end, first=False)
    if not document:
        document, _, question = end.rpartition("\n")
    return document, question.strip()


def _paragraphs(text: str, *, first: bool) -> tuple[str, str, str]:
    """``text`` around its first or its last blank line; where it has none, all of it on the question's side."""
    breaks = list(_PARAGRAPH.finditer(text))
    if not breaks:
        return (text, "", "") if first else ("", "", text)
    at = breaks[0] if first else breaks[-1]
    return text[: at.start()], at[0], text[at.end() :]
