"""The converter's benchmark measures what it says: rows of the stated size, whose prompts siblings share."""

import subprocess
import sys
from types import SimpleNamespace

from mem_agent.benchmarks import converter
from mem_agent.config import Config
from mem_agent.custom_convert import custom_convert


def test_trajectories_have_the_stated_turns():
    given = converter.samples(17)
    data = custom_convert(SimpleNamespace(mem_agent=Config()), given)
    assert len(data["tokens"]) == 17 * 8 and {len(tokens) for tokens in data["tokens"]} == {6_000}
    first, second = (given[i].train_metadata["turns"][0]["tokens"] for i in (0, 1))
    assert all(a is b for a, b in zip(first[:5_000], second[:5_000], strict=True))
    assert first[5_000:] != second[5_000:] and data["rollout_mask_sums"][0] == 8_000


def test_small_ones_can_be_measured():
    """In a process of its own: one that has run other tests holds memory that a small input would not add to."""
    program = ("from mem_agent.benchmarks import converter\n"
               "lines = converter.measure(quick=True, trajectories=64)\n"
               "assert lines[0].what == 'time' and all(line.values for line in lines), lines\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
