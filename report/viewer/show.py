"""Print trajectories: ``mem-agent show RUN_OR_RESULTS [--rollout 12 | --length 50] [--question 7] [--sample 0]``.

Without a question the place's questions are listed, with how each sibling stands. A place that is not named is the
newest rollout, or the only length. ``[-gone-]``, ``{+new+}`` and ``<<answer>>`` mark what they say.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from ...asking.word_diff import Piece, marked
from ...hooks.traces import TraceError, TraceTurn
from ...system.cli import one_line_errors, whole_number
from .groups import Fact, Group, Sibling, facts_of, files_of, gold_spans, groups_of, log_probs_of

T = TypeVar("T")
_AROUND = 160
"""Characters of a section that are shown around each answer."""
_BESIDE = " " * 11
_EVENTS = {"entered": "enters the memory", "lost": "is lost from the memory", "passed": "read, and not kept",
           "answered": "is in the answer"}


@one_line_errors("nothing was changed")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent show", description="Print the trajectories that were kept.")
    parser.add_argument("folder", type=Path, metavar="RUN_OR_RESULTS", help="a folder with trajectories/")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--rollout", type=whole_number, help="a training rollout, from 0 (default: the newest)")
    place.add_argument("--length", help="an evaluated length")
    parser.add_argument("--question", help="the question's id (default: list the questions)")
    parser.add_argument("--sample", type=whole_number, help="which sibling (default: the first that was kept)")
    parser.add_argument("--turn", type=whole_number, help="only this turn, from 1")
    parser.add_argument("--whole", action="store_true", help="sections from end to end")
    options = parser.parse_args(arguments)
    groups = _groups(options.folder, options.rollout, options.length)
    if options.question is None:
        lines = _listed(groups)
    else:
        group = _pick("question", options.question, {group.name: group for group in groups})
        samples = {sibling.trace.sample: sibling for sibling in group.siblings}
        sibling = _pick("sample", next(iter(samples)) if options.sample is None else options.sample, samples)
        turns = dict(enumerate(sibling.trace.turns, start=1))
        if options.turn is not None:
            _pick("turn", options.turn, turns)
        lines = _trajectory(group, sibling, [options.turn] if options.turn else list(turns), options.whole)
    print("\n".join(lines))
    return 0


def _groups(folder: Path, rollout: int | None, length: str | None) -> list[Group]:
    """Those of one place, read from the files that may hold it."""
    files = files_of(folder)
    named = length if rollout is None else f"rollout_{rollout:06d}"
    likely = [file for file in files if file.stem == named or (named is None and file.stem.startswith("rollout_"))]
    if named is None:
        likely = likely[-1:]
    groups = [group for file in likely or files for group in groups_of(file)]  # hosts name any file by the rollout
    groups = [group for group in groups
              if length in (None, group.place.length) and rollout in (None, group.place.rollout)]
    if not groups or (length is None and len({group.place for group in groups}) > 1):
        raise TraceError(f"{folder}: --rollout or --length names one of: {', '.join(file.stem for file in files)}")
    return [group for group in groups if group.place == groups[-1].place]


def _pick(what: str, asked: Any, there: Mapping[Any, T]) -> T:
    if asked not in there:
        raise TraceError(f"no {what} {asked}; there are: {', '.join(map(str, there))}")
    return there[asked]


def _listed(groups: Sequence[Group]) -> Iterator[str]:
    """A line for every question: its id, how its siblings stand, and what it asks."""
    yield f"{groups[0].place.label}: {len(groups)} questions; --question ID prints one"
    wide = min(40, max(len(group.name) for group in groups))
    for group in groups:
        yield f"{group.name:>{wide}}  {' '.join(map(_standing, group.siblings))}  {group.first.question}"


def _standing(sibling: Sibling) -> str:
    return sibling.trace.failure or ("?" if sibling.worth is None else f"{sibling.worth:.2f}")


def _trajectory(group: Group, sibling: Sibling, shown: Sequence[int], whole: bool) -> Iterator[str]:
    """What was asked and earned; the turns that are ``shown``, from 1; then what became of each accepted answer."""
    trace = sibling.trace
    rewards = {"": trace.reward, **trace.reward_parts, **trace.scores}
    lines = {
        "question": trace.question, "accepted": " / ".join(trace.golds), "answer": trace.prediction or "(none)",
        "outcome": f"{trace.failure}: {trace.failure_message}" if trace.failure else trace.outcome,
        "reward": ", ".join(f"{name} {value:.3g}".strip() for name, value in rewards.items() if value is not None),
        "advantage": "" if trace.advantage is None else f"{trace.advantage:+.3g}",
        "siblings": " ".join(f"{one.trace.sample}:{_standing(one)}" for one in group.siblings),
    }
    yield f"{group.place.label}, question {group.name}, sample {trace.sample}"
    yield from (f"{name:10}{value}" for name, value in lines.items() if value)
    facts = facts_of(group.first.golds)
    stories: dict[str, list[str]] = {fact.text: [] for fact in facts}
    for at, turn in enumerate(trace.turns):
        events = sibling.events(at, facts)
        told = {fact.text: _EVENTS[event] for fact, event in zip(facts, events, strict=True) if event in _EVENTS}
        for fact, said in told.items():
            stories[fact].append(f"turn {at + 1} {said}")
        if at + 1 in shown:
            yield f"\nturn {at + 1} of {len(trace.turns)}: {', '.join(_said(turn))}"
            for label, text in (*_parts(sibling, at, facts, whole), *((fact, said) for fact, said in told.items())):
                yield f"{label:10} {text.rstrip() or '(empty)'}".replace("\n", f"\n{_BESIDE}")
    yield ""
    for fact, story in stories.items():
        yield f"{fact}: {', '.join(story) or 'stands nowhere in what was read, remembered or answered'}"


def _said(turn: TraceTurn) -> Iterator[str]:
    known = log_probs_of(turn)
    yield turn.kind
    yield from (f"earned {name} {value:.3g}" for name, value in turn.rewards.items() if value is not None)
    if turn.advantage is not None:
        yield f"advantage {turn.advantage:+.3g}"
    if turn.stop != "stop":
        yield f"ended by {turn.stop}"
    yield f"prompt {turn.prompt_tokens} tokens"
    if known:
        yield f"reply {len(known)}, log-prob mean {fmean(known):z.2f}, lowest {min(known):z.2f}"


def _parts(sibling: Sibling, at: int, facts: Sequence[Fact], whole: bool) -> Iterator[tuple[str, str]]:
    """What was read, recalled, remembered and replied, each with its label and with accepted answers marked."""
    turn = sibling.trace.turns[at]
    for number, text in sibling.sections(turn).items():
        pieces = re.split("(<<.*?>>)", _mark(text, gold_spans(text, facts)), flags=re.DOTALL)
        shown = "".join(pieces if whole else map(_shortened, pieces))
        yield f"section {number + 1}", shown or "(its text was not kept)"
    if turn.kind != "final":
        changes = sibling.changes(at, facts)
        yield "memory", marked([Piece(piece.change, _mark(piece.text, gold)) for piece, gold in changes])
    texts = {"recalled": turn.recalled, "answer" if turn.kind == "final" else "reply": turn.reply,
             "prompt": turn.prompt if whole else ""}
    for label, text in texts.items():
        if label == "answer" or (text and text.strip() != turn.memory.strip()):
            yield label, _mark(text, gold_spans(text, facts))


def _mark(text: str, gold: Sequence[tuple[int, int]]) -> str:
    for start, end in reversed(gold):
        text = f"{text[:start]}<<{text[start:end]}>>{text[end:]}"
    return text


def _shortened(piece: str) -> str:
    """The ends of what stands between two answers."""
    left_out = len(piece) - 2 * _AROUND
    return f"{piece[:_AROUND]} ... {left_out:,} characters ... {piece[-_AROUND:]}" if left_out > _AROUND else piece
