"""The converter: 2,048 trajectories of 8 turns of 6,000 tokens, time and memory.

Turns are as a rollout leaves them: a prompt of 5,000 tokens whose numbers are its document's, so siblings share them,
a reply of 1,000 tokens whose numbers and log-probs are its own. The process of this benchmark measures itself: the
input is what it grew by while the samples were made, the peak the most it held while they were converted, both as
resident memory. Time is compared with that of one copy of all token lists, measured in turns with it.
"""

from __future__ import annotations

import gc
import random
from pathlib import Path
from types import SimpleNamespace

from ..agents.records import Outcome as Ending
from ..agents.records import StopReason, Trajectory, Turn, TurnKind
from ..config import Config
from ..custom_convert import custom_convert
from ..hooks.sample import Record, write_record
from ..hooks.sample import Sample as HostSample
from .outcome import Outcome, interleaved, ratio, timed

NAME = "converter"
TRAJECTORIES, GROUP, TURNS, PROMPT, REPLY = 2_048, 16, 8, 5_000, 1_000
SECONDS, TIMES_INPUT = 10.0, 1.5


def measure(quick: bool = False, trajectories: int = TRAJECTORIES) -> list[Outcome]:
    args = SimpleNamespace(mem_agent=Config())
    custom_convert(args, samples(GROUP))  # what the first call imports is no one's input
    before = resident("VmRSS")
    given = samples(trajectories)
    held = resident("VmRSS") - before
    forget_peak()
    data = custom_convert(args, given)
    peak = resident("VmHWM") - before
    rows, tokens = len(data["tokens"]), sum(map(len, data["tokens"]))
    del data
    gc.collect()
    turns = [turn["tokens"] for sample in given for turn in sample.train_metadata["turns"]]
    taken = interleaved(
        {"copy": lambda: timed(lambda: [list(one) for one in turns]),
         "convert": lambda: timed(lambda: custom_convert(args, given))}, 1 if quick else 5,
    )
    return [
        Outcome(NAME, "time", tuple(s.wall for s in taken["convert"]), unit="s", target=SECONDS, at_most=True,
                note=f"{rows:,} rows of {tokens:,} tokens", samples=taken),
        ratio(NAME, "speed against one copy of the token lists", taken["copy"], taken["convert"]),
        Outcome(NAME, "peak memory against its input", (peak / held,), target=TIMES_INPUT, at_most=True,
                note=f"input {held:,.0f} MB, peak {peak:,.0f} MB"),
    ]


def samples(trajectories: int) -> list[HostSample]:
    """As the generate hook leaves them, rewarded 0 and 1 by turns."""
    draw = random.Random(0)
    made = []
    for group in range(0, trajectories, GROUP):
        document = [300 + draw.randrange(150_000) for _ in range(PROMPT * TURNS)]
        for index in range(group, min(group + GROUP, trajectories)):
            made.append(_sample(index, document, draw))
    return made


def _sample(index: int, document: list[int], draw: random.Random) -> HostSample:
    turns = tuple(
        Turn(TurnKind.MEMORY if number < TURNS - 1 else TurnKind.FINAL,
             document[number * PROMPT : (number + 1) * PROMPT],
             [300 + index * REPLY + i for i in range(REPLY)], [draw.random() for _ in range(REPLY)], StopReason.STOP)
        for number in range(TURNS)
    )
    trajectory = Trajectory(turns, Ending.COMPLETED, "\\boxed{x}")
    sample = HostSample(index=index, group_index=index // GROUP, reward=float(index % 2))
    return write_record(sample, Record.of_trajectory(trajectory), trajectory.answer, ())


# --- this process's memory, in MB ---------------------------------------------------------------------------------


def resident(field: str) -> float:
    """``VmRSS``: now; ``VmHWM``: the most since the process began, or ``forget_peak``."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Reset VmHWM, so that it counts from here (Linux, proc(5): write 5 to clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")

