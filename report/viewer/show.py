"""Print trajectories: ``mem-agent show RUN_OR_RESULTS [--rollout 12 | --length 50] [--question 7] [--sample 0]``.

Without a question the place's questions are listed, with how each sibling stands. A place that is not named is the
newest rollout, or the only length. In a pipe there are no colours: ``[-gone-]``, ``{+new+}`` and ``<<answer>>`` mark
what they mark in a terminal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.text import Text

from ...system.command_line_types import whole_number
from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from ...traces.trace import TraceError, TraceTurn, trace_files
from ...traces.word_diff import Change
from .facts import Fact, Span, changes_of, events_of, facts_of, gold_spans, within
from .groups import Group, Sibling, groups_of, log_probs_of, nothing_kept

_AROUND, _LONG = 160, 600
_BESIDE = " " * 11
_GOLD, _LABEL = "bold black on yellow", "bold"
_CHANGES = {Change.SAME: ("", "", ""), Change.ADDED: ("green underline", "{+", "+}"),
            Change.REMOVED: ("red strike", "[-", "-]")}
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
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if options.question is None:
        for line in _listed(groups):
            console.print(line)
        return 0
    group = _question(groups, options.question)
    sibling = next((s for s in group.siblings if options.sample in (None, s.trace.sample)), None)
    if sibling is None:
        raise TraceError(f"{group.place.label}, question {options.question}: no sample {options.sample}; there are: "
                         f"{', '.join(str(s.trace.sample) for s in group.siblings)}")
    turns = len(sibling.trace.turns)
    if options.turn is not None and not 1 <= options.turn <= turns:
        raise TraceError(f"{sibling.trace.id}: no turn {options.turn}; there are 1 to {turns}")
    for text in _Printer(group, sibling, options.whole, sys.stdout.isatty()).lines(options.turn):
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
    names = [group.name for group in groups]
    more = f" and {len(names) - 12} more" * (len(names) > 12)
    raise TraceError(f"{groups[0].place.label}: no question {asked!r}; there are: {', '.join(names[:12])}{more}")


def _listed(groups: Sequence[Group]) -> Iterator[Text]:
    """A line for every question: its id, how its siblings stand, and what it asks."""
    yield Text(f"{groups[0].place.label}: {len(groups)} questions; --question ID prints one")
    wide = min(40, max(len(group.name) for group in groups))
    for group in groups:
        yield Text(f"{group.name:>{wide}}  {' '.join(map(_standing, group.siblings))}  {group.first.question}")


def _standing(sibling: Sibling) -> str:
    return sibling.trace.failure or ("?" if sibling.worth is None else f"{sibling.worth:.2f}")


def _number(value: float | None) -> str:
    """None stands for what is no number, which JSON cannot say."""
    return "nan" if value is None else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class _Printer:
    """A trajectory as text; without colours everything that a colour says is said by marks."""

    group: Group
    sibling: Sibling
    whole: bool
    coloured: bool

    @property
    def facts(self) -> tuple[Fact, ...]:
        return facts_of(self.group.first.golds)

    def lines(self, only: int | None) -> Iterator[Text]:
        """All turns, or the one of this number, which counts from 1."""
        yield from self._head()
        stories: list[list[str]] = [[] for _ in self.facts]
        for at, turn in enumerate(self.sibling.trace.turns):
            sections = list(self.sibling.sections(turn).values())
            events = events_of(turn, self.sibling.before(at), sections, self.facts)
            told = [(place, _EVENTS[event]) for place, event in enumerate(events) if event in _EVENTS]
            for place, said in told:
                stories[place].append(f"turn {at + 1} {said}")
            if only in (None, at + 1):
                yield Text()
                yield from self._turn(at, turn)
                if turn.kind != "final":
                    yield from (Text(f"{_BESIDE}{self.facts[place].text}: {said}") for place, said in told)
        yield Text()
        for fact, story in zip(self.facts, stories, strict=True):
            nowhere = "stands nowhere in what was read, remembered or answered"
            yield Text(f"{fact.text}: {', '.join(story) or nowhere}")

    def _head(self) -> Iterator[Text]:
        group, trace = self.group, self.sibling.trace
        rewards = [_number(trace.reward)] if trace.reward is not None else []
        rewards += [f"{name} {_number(value)}" for name, value in [*trace.reward_parts.items(), *trace.scores.items()]]
        lines = {
            "question": trace.question, "accepted": " / ".join(trace.golds), "answer": trace.prediction or "(none)",
            "outcome": f"{trace.failure}: {trace.failure_message}" if trace.failure else trace.outcome,
            "reward": ", ".join(rewards),
            "advantage": "" if trace.advantage is None else f"{trace.advantage:+.3g}",
            "siblings": " ".join(f"{s.trace.sample}:{_standing(s)}" for s in group.siblings),
        }
        yield Text(f"{group.place.label}, question {group.name}, sample {trace.sample}", _LABEL)
        for name, value in lines.items():
            if value:
                yield Text.assemble((f"{name:10}", _LABEL), value)

    def _turn(self, at: int, turn: TraceTurn) -> Iterator[Text]:
        yield Text(f"turn {at + 1} of {len(self.sibling.trace.turns)}: {', '.join(_said(turn))}", _LABEL)
        for number, text in self.sibling.sections(turn).items():
            yield _labelled(f"section {number + 1}", self._excerpt(text or "(its text was not kept)"))
        if turn.recalled:
            yield _labelled("recalled", self._marked(turn.recalled))
        if turn.kind == "final":
            yield _labelled("answer", self._marked(turn.reply))
        else:
            changed = Text()
            for piece, gold in changes_of(self.sibling.before(at), turn.memory, self.facts):
                style, opening, closing = _CHANGES[piece.change]
                marked = self._mark(piece.text, gold, style)
                changed.append_text(marked if self.coloured else Text.assemble(opening, marked, closing))
            yield _labelled("memory", changed)
            if turn.reply.strip() != turn.memory.strip():
                yield _labelled("reply", self._marked(turn.reply))
        if turn.prompt and self.whole:
            yield _labelled("prompt", self._marked(turn.prompt))

    def _marked(self, text: str) -> Text:
        """The text with accepted answers marked."""
        return self._mark(text, gold_spans(text, self.facts))

    def _mark(self, text: str, gold: Sequence[Span], style: str = "") -> Text:
        made, at = Text(style=style), 0
        for start, end in gold:
            made.append(text[at:start])
            made.append(text[start:end] if self.coloured else f"<<{text[start:end]}>>", _GOLD)
            at = end
        return made.append(text[at:])

    def _excerpt(self, text: str) -> Text:
        """The beginning, and what stands around each answer."""
        gold = gold_spans(text, self.facts)
        if self.whole or len(text) <= _LONG:
            return self._mark(text, gold)
        made, at = Text(), 0
        ends = (len(text), len(text))
        for start, end in [(0, 2 * _AROUND), *((a - _AROUND, b + _AROUND) for a, b in gold), ends]:
            if start > at:
                made.append(f" ... {start - at:,} characters ... ")
                at = start
            made.append_text(self._mark(text[at:end], within(gold, at, end)))
            at = max(at, end)
        return made


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


def _labelled(label: str, text: Text) -> Text:
    """Its lines stand below each other, beside the label."""
    text.rstrip()
    lines = Text("\n" + _BESIDE).join(text.split("\n")) if text.plain else Text("(empty)")
    return Text.assemble((f"{label:10} ", _LABEL), lines)


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
