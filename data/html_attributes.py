"""Tags of a page with more attributes than anybody writes: what is too many of them is cut.

The parser looks through all attributes of a tag for each that comes, so that 60,000 of them take half a minute. Their
number is bounded, not their length: a picture within a tag has megabytes. Tags are told from other text as the parser
does it, by the HTML standard's rules::

    <p a1 a2 a3 ...>                           a tag
    <p a="x>y">  </p a>                        one as well, up to its last >
    <!-- <p a> -->  <script>if (a <b) ...      none inside

Invariant: nothing is cut of what a page shows, and each character is looked at once, or nearly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MOST = 1_000
_ATTRIBUTE = r"""
    [\t\n\f\r\ /]*+ [^\t\n\f\r\ />] [^\t\n\f\r\ />=]*+
    (?: [\t\n\f\r\ ]*+ = [\t\n\f\r\ ]*+ (?: "[^"]*+"?+ | '[^']*+'?+ | [^\t\n\f\r\ >"'] [^\t\n\f\r\ >]*+ )?+ )?+
"""
_MARK = re.compile(rf"""
    <!-- (?: -?> | [^-]*+ (?: - (?!-!?>) [^-]*+ )*+ )
    | < (?: [!?] | /(?![a-z]) ) [^>]*+
    | <(?P<end>/?) (?P<tag>[a-z][^\t\n\f\r\ />]*+) (?:{_ATTRIBUTE}){{0,{_MOST}}}+ (?P<more>(?:{_ATTRIBUTE})*+)
      (?P<empty>[\t\n\f\r\ ]*+/)?+
""", re.I | re.A | re.X)  # fmt: skip
_AS_WRITTEN = ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
_ENDS = {tag: re.compile(rf"</{tag}(?=[\t\n\f\r />])|\Z", re.I | re.A) for tag in _AS_WRITTEN} | {
    "plaintext": re.compile(r"\Z")}
"""Where tags begin again behind an element that has none."""


def with_few_attributes(page: str) -> str:
    kept, at = [], 0
    for start, end in _surplus(page):
        kept.append(page[at:start])
        at = end
    return "".join(kept) + page[at:] if at else page


def _surplus(page: str) -> Iterator[tuple[int, int]]:
    at = 0
    while mark := _MARK.search(page, at):
        at = mark.end()
        if mark["more"]:
            yield mark.span("more")
        if not (mark["end"] or mark["empty"]) and (ends := _ENDS.get((mark["tag"] or "").lower())):
            at = found.start() if (found := ends.search(page, at)) else len(page)
