"""Print trajectories: ``mem-agent show RUN_OR_RESULTS [--rollout 12 | --length 50] [--question 7] [--sample 0]``.

Without a question the place's questions are listed, with how each sibling stands. A place that is not named is the
newest rollout, or the only length. ``[-gone-]``, ``{+new+}`` and ``<<answer>>`` mark what they say, and have colours
in a terminal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.text import Text

from ...asking.word_diff import Piece, marked
from ...hooks.traces import TraceError, TraceTurn, trace_files
from ...system.cli import one_line_errors, run_main, whole_number
from .facts import Fact, Span, changes_of, events_of, facts_of, gold_spans, within
from .groups import Group, Sibling, groups_of, log_probs_of, nothing_kept

_AROUND, _LONG = 160, 600
_BESIDE = " " * 11
_COLOURS = {r"<<.*?>>": "bold black on yellow", r"\{\+.*?\+\}": "green", r"\[-.*?-\]": "red",
            r"^(turn \d+ of|\w+ \d+, question).*": "bold"}
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
        group = _question(groups, options.question)
        sibling = next((s for s in group.siblings if options.sample in (None, s.trace.sample)), None)
        if sibling is None:
            raise TraceError(f"{group.place.label}, question {options.question}: no sample {options.sample}; there "
                             f"are: {', '.join(str(s.trace.sample) for s in group.siblings)}")
        turns = len(sibling.trace.turns)
        if options.turn is not None and not 1 <= options.turn <= turns:
            raise TraceError(f"{sibling.trace.id}: no turn {options.turn}; there are 1 to {turns}")
        lines = chain(_head(group, sibling), _trajectory(group, sibling, options.turn, options.whole))
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for line in lines:
        text = Text(line)
        for form, colour in _COLOURS.items():
            text.highlight_regex(form, colour)
        console.print(text)
    return 0


def _groups(folder: Path, rollout: int | None, length: str | None) -> list[Group]:
    """Those of one place, read from the files that may hold it."""
    files = trace_files(folder)
    stem = f"rollout_{rollout:06d}" if rollout is not None else length
    likely = [file for file in files if file.stem == stem] or files
    if stem is None and all(file.stem.startswith("rollout_") for file in files):
        likely = [file for file in files if file.stat().st_size][-1:]
    groups = [group for file in likely for group in groups_of(file)]
    fits = [place for place in sorted({group.place for group in groups})
            if rollout in (None, place.rollout) and length in (None, place.length)]
    if stem is None and any(place.rollout >= 0 for place in fits):
        fits = fits[-1:]
    if len(fits) != 1:
        every = sorted({group.place for file in files for group in groups_of(file)})
        if not every:
            raise nothing_kept(folder)
        asked = f"no rollout {rollout}" if rollout is not None else f"no length {length}" if length else "which length"
        raise TraceError(f"{folder}: {asked}? --rollout or --length names one of: "
                         f"{', '.join(place.label for place in every)}")
    return [group for group in groups if group.place == fits[0]]


def _question(groups: Sequence[Group], asked: str) -> Group:
    named = [group for group in groups if group.first.question_id == asked]
    named += [group for group in groups if group.number == asked]  # behind ids: one's number may be another's id
    if named:
        return named[0]
    names = ", ".join(group.name for group in groups[:12]) + ", ..." * (len(groups) > 12)
    raise TraceError(f"{groups[0].place.label}: no question {asked!r}; there are: {names}")


def _listed(groups: Sequence[Group]) -> Iterator[str]:
    """A line for every question: its id, how its siblings stand, and what it asks."""
    yield f"{groups[0].place.label}: {len(groups)} questions; --question ID prints one"
    wide = min(40, max(len(group.name) for group in groups))
    for group in groups:
        yield f"{group.name:>{wide}}  {' '.join(map(_standing, group.siblings))}  {group.first.question}"


def _standing(sibling: Sibling) -> str:
    return sibling.trace.failure or ("?" if sibling.worth is None else f"{sibling.worth:.2f}")


def _number(value: float | None) -> str:
    """None stands for what is no number, which JSON cannot say."""
    return "nan" if value is None else f"{value:.3g}"


def _head(group: Group, sibling: Sibling) -> Iterator[str]:
    trace = sibling.trace
    rewards = [_number(trace.reward)] if trace.reward is not None else []
    rewards += [f"{name} {_number(value)}" for name, value in [*trace.reward_parts.items(), *trace.scores.items()]]
    lines = {
        "question": trace.question, "accepted": " / ".join(trace.golds), "answer": trace.prediction or "(none)",
        "outcome": f"{trace.failure}: {trace.failure_message}" if trace.failure else trace.outcome,
        "reward": ", ".join(rewards),
        "advantage": "" if trace.advantage is None else f"{trace.advantage:+.3g}",
        "siblings": " ".join(f"{s.trace.sample}:{_standing(s)}" for s in group.siblings),
    }
    yield f"{group.place.label}, question {group.name}, sample {trace.sample}"
    yield from (f"{name:10}{value}" for name, value in lines.items() if value)


def _trajectory(group: Group, sibling: Sibling, only: int | None, whole: bool) -> Iterator[str]:
    """All turns, or the one of this number, which counts from 1; then what became of each accepted answer."""
    facts = facts_of(group.first.golds)
    stories: list[list[str]] = [[] for _ in facts]
    for at, turn in enumerate(sibling.trace.turns):
        events = events_of(turn, sibling.before(at), list(sibling.sections(turn).values()), facts)
        told = [(place, _EVENTS[event]) for place, event in enumerate(events) if event in _EVENTS]
        for place, said in told:
            stories[place].append(f"turn {at + 1} {said}")
        if only in (None, at + 1):
            yield f"\nturn {at + 1} of {len(sibling.trace.turns)}: {', '.join(_said(turn))}"
            for label, text in _parts(sibling, at, facts, whole):
                yield f"{label:10} {text.rstrip() or '(empty)'}".replace("\n", f"\n{_BESIDE}")
            if turn.kind != "final":
                yield from (f"{_BESIDE}{facts[place].text}: {said}" for place, said in told)
    yield ""
    for fact, story in zip(facts, stories, strict=True):
        yield f"{fact.text}: {', '.join(story) or 'stands nowhere in what was read, remembered or answered'}"


def _said(turn: TraceTurn) -> Iterator[str]:
    yield turn.kind
    for name, value in turn.rewards.items():
        yield f"earned {name} {_number(value)}"
    if turn.advantage is not None:
        yield f"advantage {turn.advantage:+.3g}"
    if turn.stop != "stop":
        yield f"ended by {turn.stop}"
    yield f"prompt {turn.prompt_tokens} tokens"
    if known := log_probs_of(turn):
        yield f"reply {len(known)}, log-prob mean {fmean(known):z.2f}, lowest {min(known):z.2f}"


def _parts(sibling: Sibling, at: int, facts: Sequence[Fact], whole: bool) -> Iterator[tuple[str, str]]:
    """What was read, recalled, remembered and replied, each with its label and with accepted answers marked."""
    turn = sibling.trace.turns[at]
    for number, text in sibling.sections(turn).items():
        yield f"section {number + 1}", _excerpt(text or "(its text was not kept)", facts, whole)
    if turn.recalled:
        yield "recalled", _mark(turn.recalled, gold_spans(turn.recalled, facts))
    reply = _mark(turn.reply, gold_spans(turn.reply, facts))
    if turn.kind == "final":
        yield "answer", reply
    else:
        changes = changes_of(sibling.before(at), turn.memory, facts)
        yield "memory", marked([Piece(piece.change, _mark(piece.text, gold)) for piece, gold in changes])
        if turn.reply.strip() != turn.memory.strip():
            yield "reply", reply
    if turn.prompt and whole:
        yield "prompt", _mark(turn.prompt, gold_spans(turn.prompt, facts))


def _mark(text: str, gold: Sequence[Span]) -> str:
    for start, end in reversed(gold):
        text = f"{text[:start]}<<{text[start:end]}>>{text[end:]}"
    return text


def _excerpt(text: str, facts: Sequence[Fact], whole: bool) -> str:
    """The beginning, and what stands around each answer."""
    gold = gold_spans(text, facts)
    if whole or len(text) <= _LONG:
        return _mark(text, gold)
    made, at = "", 0
    for start, end in [(0, 2 * _AROUND), *((a - _AROUND, b + _AROUND) for a, b in gold), (len(text), len(text))]:
        if start > at:
            made += f" ... {start - at:,} characters ... "
            at = start
        made += _mark(text[at:end], within(gold, at, end))
        at = max(at, end)
    return made


if __name__ == "__main__":
    run_main(main)
