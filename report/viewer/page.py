"""Write the page of a run's or an evaluation's trajectories: ``mem-agent view RUN_OR_RESULTS [--output FILE.html]``.

One file that loads nothing; ``view.html`` in the given folder unless named, where a report links into it. The page
draws what is computed here: it is an index and parts, JSON that is deflated and in base64, each decoded when it is
looked at. A text that comes again in a group, as the memory that the next turn is shown, is a number into its
``strings``::

    index     {"title": "run", "places": [...], "groups": [{"question": ..., "siblings": [...], "part": 0,
               "documents": [1]}]}
    group     {"strings": [["metal", []], ["metal silver", [6, 12]]],        a text, and where accepted answers stand
               "sections": [[[], [12, 18]]],                               the same of each document's sections
               "siblings": [{"turns": [{"kind": "memory", "sections": [0], "events": [""], "memory": 0,
                             "changes": [["added", "metal", []]], "tokens": [[3, 2], [21, 3]], ...}]}]}
    document  ["Ann has it", "Bo sleeps and ..."]                          once for all groups that read it

Places in texts are those of a browser, in units of UTF-16; tokens are lengths and hundredths of -log_prob.

Invariants: texts are data: they stand in the file compressed and in base64, and the page writes them as text nodes
alone; the browser is told to run this one script, by its hash, and to load nothing (Content-Security-Policy).
"""

from __future__ import annotations

import argparse
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup

from ...hooks.traces import trace_files
from ...system.cli import one_line_errors, run_main
from ...system.files import write_atomically
from ..page import render
from .facts import Fact, Span, changes_of, events_of, facts_of, gold_spans
from .groups import Group, Place, Sibling, groups_of, log_probs_of, nothing_kept

FILE = "view.html"
_WEB = Path(__file__).parent / "web"
_SCRIPTS = ("data", "elements", "turns", "questions", "index")
_SHOWN = ("reward", "advantage", "failure", "prediction")
_OF_TRACE = ("task", "agent", "weight_version", "outcome", "failure_message", "reward_parts", "accuracy", "scores",
             "counts")
_OF_TURN = ("kind", "stop", "prompt_tokens", "cached_tokens", "rewards", "advantage")


def write_viewer(folder: Path, output: Path) -> None:
    """Raises TraceError: the folder has no traces, or one cannot be read."""
    parts: list[str] = []
    documents: dict[tuple[str, ...], int] = {}
    lines: list[tuple[Place, dict[str, Any]]] = []
    for file in trace_files(folder):
        for group in groups_of(file):
            lines.append((group.place, _group(group, documents, parts)))
    if not lines:
        raise nothing_kept(folder)
    lines.sort(key=lambda line: line[0])
    places = list(dict.fromkeys(place for place, _ in lines))
    index = {
        "title": folder.resolve().name,
        "places": [{"rollout": place.rollout if place.rollout >= 0 else None, "length": place.length or None,
                    "label": place.label} for place in places],
        "groups": [line | {"place": places.index(place)} for place, line in lines],
    }
    script = "\n".join((_WEB / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}\n}})();'
    style = (_WEB / "viewer.css").read_text(encoding="utf-8")
    page = render(_WEB, "page.html.jinja", title=index["title"], script=Markup(script), style=Markup(style),
                  script_hash=_hash(script), style_hash=_hash(style), index=_packed(index), parts=parts)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, page.encode())


def _packed(content: Any) -> str:
    return b64encode(zlib.compress(orjson.dumps(content))).decode()


def _hash(content: str) -> str:
    return "sha256-" + b64encode(sha256(content.encode()).digest()).decode()


def _group(group: Group, documents: dict[tuple[str, ...], int], parts: list[str]) -> dict[str, Any]:
    """The group's line of the index; its part, and documents that are new, go into ``parts``."""
    facts = facts_of(group.first.golds)
    read = list(dict.fromkeys(s.document.sections for s in group.siblings if s.document))
    for sections in read:
        if sections not in documents:
            documents[sections] = len(parts)
            parts.append(_packed(sections))
    strings: dict[str, int] = {}
    siblings = [_sibling(sibling, facts, strings) for sibling in group.siblings]
    parts.append(_packed({
        "strings": [[text, _places(text, gold_spans(text, facts))] for text in strings],
        "sections": [[_places(text, gold_spans(text, facts)) for text in sections] for sections in read],
        "siblings": siblings,
    }))
    return {
        "name": group.name, "group": group.number, "question": group.first.question, "golds": group.first.golds,
        "facts": [fact.text for fact in facts], "part": len(parts) - 1,
        "documents": [documents[sections] for sections in read],
        "siblings": [
            {name: getattr(s.trace, name) for name in ("sample", *_SHOWN)} | {
                "worth": s.worth, "turns": len(s.trace.turns),
                "document": read.index(s.document.sections) if s.document else None}
            for s in group.siblings],
    }


def _sibling(sibling: Sibling, facts: Sequence[Fact], strings: dict[str, int]) -> dict[str, Any]:
    def number(text: str) -> int:
        return strings.setdefault(text, len(strings))

    turns = []
    for at, turn in enumerate(sibling.trace.turns):
        before, sections = sibling.before(at), sibling.sections(turn)
        texts = {"before": before, "recalled": turn.recalled, "prompt": turn.prompt, "reply": turn.reply,
                 "memory": turn.memory}
        turns.append({name: getattr(turn, name) for name in _OF_TURN} | {
            **{name: number(text) for name, text in texts.items()}, "sections": list(sections),
            "events": events_of(turn, before, list(sections.values()), facts),
            "tokens": [[_length(piece) for piece in turn.pieces], [round(-100 * min(0.0, p)) for p in known]]
            if (known := log_probs_of(turn)) else None,
            "changes": [(piece.change, piece.text, _places(piece.text, found))
                        for piece, found in changes_of(before, turn.memory, facts) if turn.kind != "final"],
        })
    return {name: getattr(sibling.trace, name) for name in _OF_TRACE} | {"turns": turns}


def _places(text: str, spans: Iterable[Span]) -> list[int]:
    """Where each of the spans begins and ends, one behind the other."""
    return [_length(text[:at]) for span in spans for at in span]


def _length(text: str) -> int:
    """In units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


@one_line_errors("no page was written")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent view", description="One page of all trajectories that were kept.")
    parser.add_argument("folder", type=Path, metavar="RUN_OR_RESULTS", help="a folder with trajectories/")
    parser.add_argument("--output", type=Path, metavar="FILE.html", help=f"default: {FILE} in that folder")
    options = parser.parse_args(arguments)
    output = options.output or options.folder / FILE
    write_viewer(options.folder, output)
    print(output)
    return 0


if __name__ == "__main__":
    run_main(main)
