"""Which chunks of a document prompts show, found again by their ids: agents need not say it.

Chunks that are equal are told apart by the order of reading: the search begins behind what was read last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from .chunking import Chunks
from .prompts import SECTION
from .records import Section, TurnRequest


def sections_in(requests: Sequence[TurnRequest], document: Chunks, read: int) -> list[Section | None]:
    """The chunk in each prompt of a round; None where it shows no whole one. ``read``: the first one not read yet."""
    found: list[Section | None] = []
    for request in requests:
        start, end = (request.slots or {}).get(SECTION, (0, 0))
        number = _number(request.prompt_ids[start:end], document, read) if end > start else None
        found.append(None if number is None else Section(number, start, end))
        read = read if number is None else number + 1
    return found


def is_told(request: TurnRequest, section: Section | None) -> bool:
    """Whether the slots of the prompt are known, and ``section`` is what stands in that for the document."""
    return request.slots is not None and (SECTION not in request.slots or section is not None)


def _number(ids: list[int], document: Chunks, read: int) -> int | None:
    chunks = document.chunks
    for number in chain(range(read, len(chunks)), range(min(read, len(chunks)))):
        if len(chunks[number]) == len(ids) and list(chunks[number]) == ids:
            return number
    return None
