"""The page of trajectories: the time to write it, its size, and how long a browser takes until one can be read.

1,024 made-up trajectories of 8 turns: 128 questions of 8 siblings, 16 rollouts. A document is eight sections of 900
words, a memory 250 words, and every token has its log-probability. The command runs as a user runs it. The browser
is asked when it had drawn the first trajectory, counted from when it began to open the file; each opening is a new
window.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from ..system.python_command import python_module
from .made_trajectories import Shape, write_run
from .outcome import BenchmarkError, Outcome, print_alone

NAME = "viewer"
SECONDS, MEGABYTES = 2.0, 20.0
SHAPE, ROLLOUTS = Shape(groups=8, siblings=8, sections=8, section_words=900, memory_words=250), 16
OPENINGS = 5
_DRAWN = "performance.getEntriesByName('first trajectory')[0].startTime"


def measure(quick: bool = False, shape: Shape = SHAPE, rollouts: int = ROLLOUTS) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        run, page = write_run(Path(folder) / "run", shape, rollouts), Path(folder) / "view.html"
        kept = sum(file.stat().st_size for file in run.rglob("*.jsonl")) / 1e6
        began = time.perf_counter()
        subprocess.run(python_module("mem_agent", "view", str(run), "--output", str(page)), check=True,
                       stdout=subprocess.DEVNULL)
        wrote = time.perf_counter() - began
        size = page.stat().st_size / 1e6
        trajectories = f"{shape.groups * shape.siblings * rollouts:,} trajectories"
        return [
            Outcome(NAME, f"{trajectories}: the page", (size,), unit="MB", target=MEGABYTES, at_most=True,
                    note=f"{kept:,.0f} MB of traces"),
            Outcome(NAME, f"{trajectories}: writing it", (wrote,), unit="s", note="the whole command"),
            _opened(page, trajectories, 1 if quick else OPENINGS),
        ]


def _opened(page: Path, trajectories: str, times: int) -> Outcome:
    what = f"{trajectories}: open until the first can be read"
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None or find_spec("playwright") is None:
        missing = "no chromium, or playwright is not installed"
        return Outcome(NAME, what, unit="s", target=SECONDS, at_most=True, note=missing)
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(times):
            window = browser.new_page()
            window.goto(page.as_uri())
            window.wait_for_selector("body[data-drawn]")
            taken.append(window.evaluate(_DRAWN) / 1000)
            if not window.locator(".turn h3").count():
                raise BenchmarkError("the page was opened and shows no turn")
            window.close()
        version = browser.version
        browser.close()
    return Outcome(NAME, what, tuple(taken), unit="s", target=SECONDS, at_most=True, note=f"Chromium {version}")


if __name__ == "__main__":
    print_alone(measure)
