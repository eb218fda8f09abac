"""``view.html``: every trajectory of a run or of results in one file that loads nothing.

The page is an index and parts in base64, each decoded when it is looked at; so it opens at once, however much it
holds.

Invariants:
- texts are data: they stand in the file compressed and in base64, and the page writes them as text nodes alone;
- the browser is told to run this one script, by its hash, and to load nothing (Content-Security-Policy).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ...system.files import write_atomically
from .groups import Place, nothing_kept, read_groups
from .pack import PackedGroup, deflated, pack

SCRIPTS = ("decode", "facts", "difference", "elements", "address", "lazily", "head", "questions", "strip", "turns",
           "siblings", "search", "keys", "main")
"""The page's script is these files of ``web/``, one after another."""


def write_viewer(folder: Path, output: Path) -> Path:
    """Write the page of a run's or an evaluation's trajectories; returns its path.

    Raises:
        TraceError: the folder has no traces, or one cannot be read.
    """
    documents: dict[str, bytes] = {}
    groups = sorted((pack(group, documents) for group in read_groups(folder)), key=lambda group: group.place)
    if not groups:
        raise nothing_kept(folder)
    title = folder.resolve().name
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, _render(title, *_laid_out(title, groups, documents)))
    return output


def _laid_out(title: str, groups: Sequence[PackedGroup], documents: Mapping[str, bytes]) -> tuple[bytes, list[bytes]]:
    """The index, whose numbers are places in the list of parts."""
    at_document = {key: number for number, key in enumerate(documents)}
    parts = list(documents.values())
    places: dict[Place, int] = {}
    lines: list[dict[str, Any]] = []
    for group in groups:
        line = dict(group.group) | {
            "place": places.setdefault(group.place, len(places)), "texts": len(parts),
            "documents": [at_document[key] for key in group.documents],
        }
        parts.append(group.texts)
        if group.tokens is not None:
            line["tokens"] = len(parts)
            parts.append(group.tokens)
        lines.append(line)
    return _index(title, list(places), lines), parts


def _index(title: str, places: Sequence[Place], groups: Sequence[dict[str, Any]]) -> bytes:
    named = [
        {"rollout": p.rollout if p.rollout >= 0 else None, "length": p.length or None, "label": p.label}
        for p in places
    ]
    return deflated({"title": title, "places": named, "groups": list(groups)})


def _render(title: str, index: bytes, parts: Sequence[bytes]) -> bytes:
    web = resources.files(__package__).joinpath("web")
    script = "\n".join(web.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    style = web.joinpath("viewer.css").read_text(encoding="utf-8")
    assert "</script" not in script.lower() and "</style" not in style.lower()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(web.joinpath("page.html.jinja").read_text(encoding="utf-8"))
    script = f'"use strict";\n(() => {{\n{script}\n}})();'
    return template.render(
        title=title, script=Markup(script), style=Markup(style), script_hash=_hash(script),
        style_hash=_hash(style), index=b64encode(index).decode(), parts=[b64encode(part).decode() for part in parts],
    ).encode()


def _hash(content: str) -> str:
    return "sha256-" + b64encode(sha256(content.encode()).digest()).decode()
