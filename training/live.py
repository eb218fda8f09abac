"""The lines at the foot of a terminal while a run trains; what is logged scrolls above them.

::

    pocket-1  rollout 12 of 40  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━  7 min left
    sampling 41 of 64 trajectories, 212 turns | 1,532 tokens/s | cache hits 62% | 12 s
    last: reward 0.531 ± 0.081 ▁▂▂▃▅▅▆▇█ | turns 4.0 | 1,410 tokens/s | cache hits 58%

Nothing here is for a file or a pipe: those get the lines of the log alone (``run_log.progress_line``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .progress import Phase, Progress, View

_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 24
"""Rollouts of the little curve."""
_LARGEST = 1e30
"""The difference of two such is a number."""
LOOKS_PER_S = 2


def for_a_terminal() -> bool:
    """Whether standard error is a terminal that can show this."""
    console = Console(stderr=True)
    return sys.stderr.isatty() and not console.is_dumb_terminal and console.encoding.startswith("utf")


@contextmanager
def shown(progress: Progress) -> Iterator[None]:
    """``progress`` at the foot of the terminal, and whatever is logged or printed meanwhile above it."""
    terminal = sys.stderr
    live = Live(
        console=Console(stderr=True), get_renderable=lambda: drawn(progress.view()), refresh_per_second=LOOKS_PER_S,
        transient=True, redirect_stdout=sys.stdout.isatty(),
    )
    with live:
        handlers = [h for h in logging.getLogger().handlers if getattr(h, "stream", None) is terminal]
        for handler in handlers:
            handler.setStream(sys.stderr)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for handler in handlers:
                handler.setStream(terminal)  # type: ignore[attr-defined]


def drawn(view: View) -> Group:
    top = Table.grid(expand=True, padding=(0, 2))
    top.add_column(no_wrap=True)
    top.add_column(ratio=1)
    top.add_column(no_wrap=True, justify="right")
    where = f"rollout {view.rollout} of {view.rollouts}" if view.rollout else view.phase.value
    title = Text.assemble((view.name, "bold"), "  ", where)
    top.add_row(title, ProgressBar(total=view.rollouts, completed=view.done), left_text(view.left_s))
    lines = [now_text(view)] if view.rollout else []
    lines += [last_text(view)] if view.last else []
    return Group(top, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


def now_text(view: View) -> str:
    sampled = view.sampled
    if view.phase is not Phase.SAMPLING:
        return f"{view.phase} | {duration(view.seconds)}"
    speed = sampled.sampled_tokens / view.seconds if view.seconds else 0.0
    parts = [f"{view.phase} {sampled.trajectories} of {view.expected} trajectories, {sampled.turns} turns"]
    parts += [f"{speed:,.0f} tokens/s"] if sampled.turns else []
    parts += [f"cache hits {sampled.cached_tokens / sampled.prompt_tokens:.0%}"] if sampled.prompt_tokens else []
    return " | ".join([*parts, duration(view.seconds)])


def last_text(view: View) -> str:
    """The last rollout, and the way of the rewards so far."""
    m, parts = view.last, []
    if m.get("reward") is not None:  # a journal's null
        around = f" ± {m['reward_interval']:.3f}" if m.get("reward_interval") is not None else ""
        parts.append(f"reward {m['reward']:.3f}{around} {curve(view.rewards[-_CURVE:])}")
    parts += [text.format(m[name]) for name, text in _LAST if m.get(name) is not None]
    return "last: " + " | ".join(parts)


_LAST = (
    ("turns", "turns {:.1f}"),
    ("tokens_per_second", "{:,.0f} tokens/s"),
    ("prefix_cache_hit_rate", "cache hits {:.0%}"),
    ("loss", "loss {:+.4f}"),
)


def curve(values: Sequence[float]) -> str:
    """One bar for each value, from the lowest to the highest of them; none for what is no number, or no reward's."""
    values = [value for value in values if abs(value) <= _LARGEST]
    low, high, highest = min(values, default=0.0), max(values, default=0.0), len(_BARS) - 1
    step = (high - low) / highest  # of the smallest numbers it is rounded
    return "".join(_BARS[min(round((value - low) / step), highest) if step else len(_BARS) // 2] for value in values)


def left_text(seconds: float | None) -> str:
    return "" if seconds is None else f"{duration(seconds)} left"


def duration(seconds: float) -> str:
    """In two units at most: ``8 s``, ``7 min``, ``3 h 05 min``."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
