r"""What stands between two marks on one line, as two regular expressions find it, in linear time.

    shortest  BEGIN(.*?)END     "<u>a</u><u>b</u>"    a, b
    longest   BEGIN(.+)END      "<u>a</u><u>b</u>"    a</u><u>b        from the first mark to the last of the line

Regular expressions look for an end behind every beginning, so a line of beginnings alone takes its length squared.
"""

from __future__ import annotations

from collections.abc import Iterator


def shortest(text: str, begin: str, end: str) -> Iterator[str]:
    for line in text.split("\n"):
        at = 0
        while (start := line.find(begin, at)) >= 0 and (stop := line.find(end, start + len(begin))) >= 0:
            yield line[start + len(begin) : stop]
            at = stop + len(end)


def longest(text: str, begin: str, end: str) -> Iterator[str]:
    for line in text.split("\n"):
        start, stop = line.find(begin), line.rfind(end)
        if 0 <= start < stop - len(begin):
            yield line[start + len(begin) : stop]
