r"""A message that holds document and question in one text: where one ends and the other begins.

    text                                            document         question
    "<any text>\n\nQuestion: Who?\nAnswer:"         <any text>       Who?
    "<long text>\n\nWho has the key?"               <long text>      Who has the key?
    "Question: Who?\n\n<long text>"                 <long text>      Who?
    "Who has the key?"                                               Who has the key?
    "Question: Who?\nAnswer:"                                        Who?

The rule, in this order; a text is long if it has more tokens than a question may have (MEM_MAX_QUESTION):

1. A last line ``Answer:`` belongs to neither.
2. Behind the last line that begins with ``Question:`` stands the question, before it the document.
3. A text that is not long is a question.
4. A long text that begins with ``Question:`` has its question in the first paragraph, the document behind it.
5. Of any other long text the last paragraph is the question (the last line, where there are no paragraphs).

Prompts with solved examples (``Question: ... Answer: ...``, then the question) fall under the second rule: the
examples are read as a document.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_QUESTION = re.compile(r"^[ \t]*question[ \t]*:", re.IGNORECASE | re.MULTILINE)
_ANSWER = re.compile(r"[ \t]*answer[ \t]*:", re.IGNORECASE)
_BREAK = re.compile(r"\n[ \t]*\n")
_END = 2**16
"""Characters of a text's end that may hold the question."""


def split_message(text: str, is_long: Callable[[str], bool]) -> tuple[str, str]:
    """Document and question, stripped."""
    text = text.strip()
    before, _, last_line = text.rpartition("\n")
    if before and _ANSWER.fullmatch(last_line):
        text = before.rstrip()
    front, end = text[:-_END], text[-_END:]
    marks = list(_QUESTION.finditer(end))
    if marks and (question := end[marks[-1].end() :].strip()):
        document = (front + end[: marks[-1].start()]).strip()
        if document or not is_long(text):
            return document, question
    if not is_long(text):
        return "", text
    first = _QUESTION.match(text)
    gap = _BREAK.search(text, 0, _END)
    if first and gap and (question := text[first.end() : gap.start()].strip()):
        return text[gap.end() :].strip(), question
    breaks = [found.span() for found in _BREAK.finditer(end)] or [(max(0, end.rfind("\n")),) * 2]
    return (front + end[: breaks[-1][0]]).strip(), end[breaks[-1][1] :].strip()
