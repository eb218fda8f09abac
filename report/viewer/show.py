"""Print trajectories: ``mem-agent show RUN_OR_RESULTS [--rollout 12 | --length 50] [--question 7] [--sample 0]``.

Without a question the place's questions are listed, with how each sibling stands. A place that is not named is the
newest rollout, or the only length. In a pipe there are no colours: ``[-gone-]``, ``{+new+}`` and ``<<answer>>`` mark
what they mark in a terminal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ...system.command_line_types import whole_number
from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from ...traces.read_traces import trace_files
from ...traces.trace import TraceError
from .groups import Group, Place, groups_of, nothing_kept
from .terminal import listed, printed


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
    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if options.question is None:
        for line in listed(groups):
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
    for text in printed(group, sibling, options.turn, whole=options.whole, coloured=terminal):
        console.print(text)
    return 0


def _groups(folder: Path, rollout: int | None, length: str | None) -> list[Group]:
    """Those of one place, read from the files that may hold it."""
    files = trace_files(folder)
    stem = f"rollout_{rollout:06d}" if rollout is not None else length
    named_files = [file for file in files if file.stem == stem] or files
    if stem is None and all(file.stem.startswith("rollout_") for file in files):
        named_files = [file for file in files if file.stat().st_size][-1:]
    groups = [group for file in named_files for group in groups_of(file)]
    places = sorted({group.place for group in groups})
    fits = [p for p in places if rollout in (None, p.rollout) and length in (None, p.length)]
    if rollout is None and length is None and any(p.rollout >= 0 for p in fits):
        fits = fits[-1:]
    if len(fits) != 1:
        every = sorted({group.place for file in files for group in groups_of(file)})
        if not every:
            raise nothing_kept(folder)
        asked = f"no rollout {rollout}" if rollout is not None else f"no length {length}" if length else "which length"
        raise TraceError(f"{folder}: {asked}? --rollout or --length names one of: {_named(every)}")
    return [group for group in groups if group.place == fits[0]]


def _named(places: Sequence[Place]) -> str:
    labels = [place.label for place in places]
    return ", ".join(labels if len(labels) <= 12 else [*labels[:6], "...", *labels[-5:]])


def _question(groups: Sequence[Group], asked: str) -> Group:
    named = [group for group in groups if group.first.question_id == asked]
    named += [group for group in groups if group.name == asked]  # behind ids: one's number may be another's id
    if named:
        return named[0]
    names = [group.first.question_id or group.name for group in groups]
    more = f" and {len(names) - 12} more" * (len(names) > 12)
    raise TraceError(f"{groups[0].place.label}: no question {asked!r}; there are: {', '.join(names[:12])}{more}")


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
