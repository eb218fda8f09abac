"""Write the page of a run's or an evaluation's trajectories: ``mem-agent view RUN_OR_RESULTS [--output FILE.html]``.

The page is one file without anything from outside; ``view.html`` in the given folder unless named. A report that lies
in that folder links into it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from .page import write_viewer

FILE = "view.html"


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


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
