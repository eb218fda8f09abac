"""The part of a Word document's archive that has its text.

Which one that is the archive says itself, in a part that has the same name in all of them::

    _rels/.rels    <Relationship Type=".../officeDocument" Target="word/document.xml"/>
                                                                  word/document2.xml    by Word in a browser
                                                                  xl/workbook.xml       a table, and no Word document

Invariant: nothing else is unpacked, and no more than the archive says that it is, whatever there is.
"""

from __future__ import annotations

import io
import re
import zipfile

from .word_paragraphs import parsed

_RELATIONS, _RELATIONS_BYTES = "_rels/.rels", 2**16
"""Some five parts, in 150 bytes each."""
_BODY = re.compile(r"word/[^/]+\.xml")
_USUAL_BODY = "word/document.xml"


class TooLarge(Exception):
    """To be parsed."""


def body_xml(content: bytes, most: int) -> bytes | None:
    """None where it is no Word document. Raises TooLarge for more than ``most`` bytes, and of a damaged archive
    anything."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = set(archive.namelist())
        told = ""
        if _RELATIONS in names and archive.getinfo(_RELATIONS).file_size <= _RELATIONS_BYTES:
            told = _told(_unpacked(archive, _RELATIONS))
        body = next((name for name in (told, _USUAL_BODY) if name in names and _BODY.fullmatch(name)), None)
        if body is None:
            return None
        if archive.getinfo(body).file_size > most:
            raise TooLarge
        return _unpacked(archive, body)


def _told(relations: bytes) -> str:
    for part in parsed(relations):
        if str(part.get("Type", "")).endswith("/relationships/officeDocument"):
            return str(part.get("Target", "")).removeprefix("/")
    return ""


def _unpacked(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as part:
        return part.read(archive.getinfo(name).file_size)
