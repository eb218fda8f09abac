"""The converter: 2,048 trajectories of 8 turns of 6,000 tokens, time and memory.

Turns are as a rollout leaves them: a prompt of 5,000 tokens whose numbers are its document's, so siblings share them,
a reply of 1,000 tokens whose numbers and log-probs are its own. The process of this benchmark measures itself: the
input is what it grew by while the samples were made, the peak the most it held while they were converted, both as
resident memory.
"""

import random
from types import SimpleNamespace

import psutil

from ..agents.records import Outcome as Ending
from ..agents.records import StopReason, Trajectory, Turn, TurnKind
from ..config import Config
from ..custom_convert import custom_convert
from ..hooks.sample import Record, write_record
from ..hooks.sample import Sample as HostSample
from .outcome import Outcome, seconds, seconds_and_peak

TRAJECTORIES, GROUP, TURNS, PROMPT, REPLY = 2_048, 16, 8, 5_000, 1_000


def measure(quick: bool = False, trajectories: int = TRAJECTORIES) -> list[Outcome]:
    args = SimpleNamespace(mem_agent=Config())
    custom_convert(args, samples(GROUP))  # what the first call imports is no one's input
    before = psutil.Process().memory_info().rss
    given = samples(trajectories)
    held = psutil.Process().memory_info().rss - before
    _, peak = seconds_and_peak(lambda: custom_convert(args, given))
    times = tuple(seconds(lambda: custom_convert(args, given)) for _ in range(1 if quick else 5))
    rows = trajectories * TURNS
    return [
        Outcome("time", times, "s", 10.0, True, f"{rows:,} rows of {rows * (PROMPT + REPLY):,} tokens"),
        Outcome("peak memory against its input", ((peak - before) / held,), "times", 1.5, True,
                f"input {held / 1e6:,.0f} MB"),
    ]


def samples(trajectories: int) -> list[HostSample]:
    """As the generate hook leaves them, rewarded 0 and 1 by turns."""
    draw, made, document = random.Random(0), [], []
    for index in range(trajectories):
        if index % GROUP == 0:
            document = [300 + draw.randrange(150_000) for _ in range(PROMPT * TURNS)]
        turns = []
        for number in range(TURNS):
            reply = [300 + index * REPLY + i for i in range(REPLY)]
            kind = TurnKind.MEMORY if number < TURNS - 1 else TurnKind.FINAL
            turns.append(Turn(kind, document[number * PROMPT : (number + 1) * PROMPT] + reply, PROMPT,
                              [draw.random() for _ in reply], StopReason.STOP))
        trajectory = Trajectory(tuple(turns), Ending.COMPLETED, "\\boxed{x}")
        sample = HostSample(index=index, group_index=index // GROUP, reward=float(index % 2))
        made.append(write_record(sample, Record.of_trajectory(trajectory), trajectory.answer))
    return made
