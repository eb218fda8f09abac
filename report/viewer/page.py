"""Write the page of a run's or an evaluation's trajectories: ``mem-agent view RUN_OR_RESULTS [--output FILE.html]``.

One file that loads nothing; ``view.html`` in the given folder unless named, where a report links into it. The page
draws what is computed here: an index and a part for each group, JSON that is deflated and in base64, each decoded when
it is looked at. A text of a group, as the memory that the next turn is shown or the section that all siblings read, is
a number into its ``strings``::

    index     {"title": "run", "places": [...], "groups": [{"question": ..., "siblings": [...]}]}
    group     {"strings": [["metal", []], ["metal silver", [6, 12]]],        a text, and where accepted answers stand
               "siblings": [{"turns": [{"kind": "memory", "sections": [[0, 3]], "events": [""], "memory": 0,
                             "changes": [["added", "metal", []]], "tokens": [[3, 2], [21, 3]], ...}]}]}

Places in texts are those of a browser, in units of UTF-16; tokens are lengths and hundredths of -log_prob.

Invariants: texts are data: they stand in the file compressed and in base64, and the page writes them as text nodes
alone; the browser is told to load nothing (Content-Security-Policy).
"""

from __future__ import annotations

import argparse
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from ...system.cli import one_line_errors
from ...system.files import write_atomically
from ..tables import render
from .groups import Fact, Group, Sibling, facts_of, files_of, gold_spans, groups_of, log_probs_of

FILE = "view.html"
_SHOWN = ("sample", "reward", "advantage", "failure", "prediction")
"""Of a trace, in the index."""
_TEXTS = ("before", "recalled", "prompt", "reply", "memory")


def write_viewer(folder: Path, output: Path) -> None:
    """Raises TraceError: the folder has no traces, or one cannot be read."""
    found = [(group.place, _line(group), _packed(_part(group)))
             for file in files_of(folder) for group in groups_of(file)]
    found.sort(key=lambda each: each[0].order)
    places = list(dict.fromkeys(place for place, _, _ in found))
    title = folder.resolve().name
    index = {
        "title": title,
        "places": [{"rollout": place.rollout if place.rollout >= 0 else None, "length": place.length or None,
                    "label": place.label} for place in places],
        "groups": [line | {"place": places.index(place)} for place, line, _ in found],
    }
    page = render(Path(__file__).parent / "web", "page.html.jinja", title=title, index=_packed(index),
                  parts=[part for _, _, part in found])
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, page.encode())


def _packed(content: Any) -> str:
    return b64encode(zlib.compress(orjson.dumps(content))).decode()


def _line(group: Group) -> dict[str, Any]:
    """What the index has of a group."""
    return {
        "name": group.name, "group": group.number, "question": group.first.question, "golds": group.first.golds,
        "facts": [fact.text for fact in facts_of(group.first.golds)],
        "siblings": [{name: getattr(one.trace, name) for name in _SHOWN}
                     | {"worth": one.worth, "turns": len(one.trace.turns)} for one in group.siblings],
    }


def _part(group: Group) -> dict[str, Any]:
    facts = facts_of(group.first.golds)
    strings: dict[str, int] = {}
    siblings = [asdict(one.trace) | {"turns": [_turn(one, at, facts, strings) for at in range(len(one.trace.turns))]}
                for one in group.siblings]
    return {"strings": [[text, _places(text, gold_spans(text, facts))] for text in strings], "siblings": siblings}


def _turn(sibling: Sibling, at: int, facts: Sequence[Fact], strings: dict[str, int]) -> dict[str, Any]:
    turn, before = sibling.trace.turns[at], sibling.before(at)
    sections, known = sibling.sections(turn), log_probs_of(turn)
    fields = asdict(turn) | {"before": before, "pieces": (), "log_probs": (), "shown_memory": ""}
    return fields | {name: strings.setdefault(fields[name], len(strings)) for name in _TEXTS} | {
        "sections": [(section, strings.setdefault(text, len(strings))) for section, text in sections.items()],
        "events": sibling.events(at, facts),
        "tokens": [[_length(piece) for piece in turn.pieces], [round(-100 * min(0.0, p)) for p in known]]
        if known else None,
        "changes": [(piece.change, piece.text, _places(piece.text, found))
                    for piece, found in sibling.changes(at, facts) if turn.kind != "final"],
    }


def _places(text: str, spans: Iterable[tuple[int, int]]) -> list[int]:
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
