"""``view.html``: every trajectory of a run or of results in one file that loads nothing.

The page is an index and parts in base64, each decoded when it is looked at; so it opens at once, however much it
holds.

Invariants:
- texts are data: they stand in the file compressed and in base64, and the page writes them as text nodes alone;
- the browser is told to run this one script, by its hash, and to load nothing (Content-Security-Policy);
- the file stays under ``MOST_BYTES``; what had to be left out is said in it;
- it has the fingerprint of the files that it was made of.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import unescape
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ...system.atomic_file import write_atomically
from ...system.errors import MemAgentError
from ...system.links import real_path
from ...system.printable import encodable
from ...traces.read_traces import fingerprint
from .budget import Choice, choose, notes, written
from .groups import Place, nothing_kept, read_groups
from .pack import PackedGroup, pack
from .packed_documents import PackedDocument, PackedDocuments, deflated

MOST_BYTES = 20_000_000
SCRIPTS = ("decode", "facts", "difference", "elements", "address", "lazily", "head", "questions", "strip", "turns",
           "siblings", "search", "keys", "main")
"""The page's script is these files of ``web/``, one after another."""
_PART = re.compile('<script type="text/plain" id="(?:index|part[0-9]+)">([A-Za-z0-9+/=]*)</script>')


def write_viewer(folder: Path, output: Path, most: int = MOST_BYTES) -> Path:
    """Write the page of a run's or an evaluation's trajectories; returns its path.

    Raises:
        TraceError: the folder has no traces, or one cannot be read.
        MemAgentError: a single question does not fit.
    """
    documents, made_of = PackedDocuments(), fingerprint(folder)
    groups = sorted((pack(group, documents) for group in read_groups(folder)), key=lambda group: group.place)
    if not groups:
        raise nothing_kept(folder)
    title = encodable(real_path(folder).name)
    page = _fitting(title, made_of, groups, documents.by_key, most)
    if page is None:
        raise MemAgentError(f"{folder}: no question fits into {most / 1e6:g} MB; mem-agent show {folder} prints one")
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, page)
    return output


def _fitting(
    title: str, made_of: str, groups: Sequence[PackedGroup], documents: Mapping[str, PackedDocument], most: int
) -> bytes | None:
    """The page with as much as fits; None where nothing does.

    How long an index becomes is not known before it is made: what one is too long by is taken from the room of the
    next.
    """
    empty = _render(title, made_of, _index(title, [], [], ()), ())
    room = most - len(empty) - written(deflated([dict(group.group) for group in groups])) - 100 * len(groups)
    while (choice := choose(groups, documents, room)).groups:
        index, parts = _laid_out(title, groups, documents, choice, notes(groups, choice, most))
        page = _render(title, made_of, index, parts)
        if len(page) <= most:
            return page
        room -= len(page) - most
    return None


def is_viewer_of(folder: Path, path: Path) -> bool:
    """Whether the file is a page that this version has written of the folder's trajectories as they are now.

    Its title and its parts are data; all else is the same text to the letter, so a stranger's runs nothing of its own
    and leads nowhere. The policy in its head alone would not keep it from leading to another page, which has none.
    """
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return False
    content = path.read_bytes()
    try:
        page = content.decode()
        index, *parts = map(b64decode, _PART.findall(page))
    except ValueError:
        return False
    title = unescape(page.partition("<title>")[2].partition(": trajectories</title>")[0])
    return _render(title, fingerprint(folder), index, parts) == content


def _laid_out(
    title: str, groups: Sequence[PackedGroup], documents: Mapping[str, PackedDocument], choice: Choice, said: list[str]
) -> tuple[bytes, list[bytes]]:
    """The index, whose numbers are places in the list of parts."""
    parts: list[bytes] = []
    at_document: dict[str, int] = {}
    lines: list[dict[str, Any]] = []
    for at in sorted(choice.groups):
        group = groups[at]
        shown = [documents[key].content if key in choice.whole else key for key in group.documents]
        for key, part in zip(group.documents, shown, strict=True):
            if part not in at_document:
                at_document[part] = len(parts)
                parts.append(documents[key].whole if key in choice.whole else documents[key].cut)
        line = dict(group.group) | {"place": group.place, "texts": len(parts)}
        line["documents"] = [at_document[part] for part in shown]
        parts.append(group.texts)
        if group.tokens is not None and at in choice.tokens:
            line["tokens"] = len(parts)
            parts.append(group.tokens)
        lines.append(line)
    places: dict[Place, int] = {}
    numbered = [line | {"place": places.setdefault(line["place"], len(places))} for line in lines]
    return _index(title, list(places), numbered, said), parts


def _index(title: str, places: Sequence[Place], groups: Sequence[dict[str, Any]], said: Sequence[str]) -> bytes:
    named = [
        {"rollout": p.rollout if p.rollout >= 0 else None, "length": p.length or None, "label": p.label}
        for p in places
    ]
    return deflated({"title": title, "notes": list(said), "places": named, "groups": list(groups)})


def _render(title: str, made_of: str, index: bytes, parts: Sequence[bytes]) -> bytes:
    web = resources.files(__package__).joinpath("web")
    script = "\n".join(web.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    style = web.joinpath("viewer.css").read_text(encoding="utf-8")
    assert "</script" not in script.lower() and "</style" not in style.lower()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(web.joinpath("page.html.jinja").read_text(encoding="utf-8"))
    script = f'"use strict";\n(() => {{\n{script}\n}})();'
    return template.render(
        title=title, made_of=made_of, script=Markup(script), style=Markup(style), script_hash=_hash(script),
        style_hash=_hash(style), index=b64encode(index).decode(), parts=[b64encode(part).decode() for part in parts],
    ).encode()


def _hash(content: str) -> str:
    return "sha256-" + b64encode(sha256(content.encode()).digest()).decode()
