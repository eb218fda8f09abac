"""Engines with a model, NUM_ENGINES of them, and no more: ``mem-agent serve-engines --model DIR [--port P]``.

Prints one line ``READY http://127.0.0.1:PORT`` on standard output once every engine is healthy, keeps engines and
router alive, and on SIGTERM or SIGINT stops all of them and exits with 0. Progress goes to standard error. Exit code 2
is a bad argument or setting, 1 a fleet that cannot start or stay up; both with one line that says why.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Sequence
from typing import NoReturn

from ..checkpoints.hf_model import model_to_ask
from ..config import ConfigError
from ..system.cli import log_to_terminal, one_line_errors, run_stoppable, whole_number
from .fleet import Fleet
from .servers import REQUEST_TIMEOUT_S

CHECK_EVERY_S = 10.0


@one_line_errors("nothing is left running", codes={ConfigError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent serve-engines", description="Serve a model for rollouts.")
    parser.add_argument("--model", required=True, help="Hugging Face folder of the model")
    parser.add_argument("--port", type=whole_number, default=0, help="the router's; 0: a free one (default)")
    options = parser.parse_args(argv)
    log_to_terminal(logging.INFO)
    model, config = model_to_ask(options.model, "--model", base_url="")
    try:
        run_stoppable(_serve(Fleet(config, model, port=options.port)))
    except KeyboardInterrupt:
        return 0  # it serves until it is told to stop


async def _serve(fleet: Fleet) -> NoReturn:
    """Run until cancelled."""
    async with fleet:
        print(f"READY {fleet.url}", flush=True)
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await fleet.ensure_alive(REQUEST_TIMEOUT_S)

