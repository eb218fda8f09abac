"""Engines for a stage whose model is at no BASE_URL: started for it, gone after it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...system.processes import ChildProcess, FleetError
from ...system.python_command import python_module
from ...system.signals import stop_if_asked

_POLL_S = 0.2
_GRACE_S = 60.0


@contextmanager
def own_engines(model: Path, length: int, folder: Path) -> Iterator[str]:
    """The address of ``mem-agent serve-engines`` with a context of ``length`` tokens; logs are in ``folder``/logs.

    Raises FleetError where it does not start.
    """
    # The stage bounds prompts and replies by itself: the agent's own lengths must not refuse the context.
    own = {"SAVE_PATH": str(folder), "ENGINE_MAX_LEN": str(length), "AGENT": "chat", "EVAL_MODE": "recurrent",
           "MEM_MAX_QUESTION": "1", "MEM_MAX_FINAL": "1", "AGENT_ARGS": "", "RECIPE": os.devnull}
    log = folder / "logs" / "serve-engines.log"
    print(f"serving {model} with a context of {length} tokens; logs in {log.parent}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        url = Path(scratch, "url")
        command = python_module("mem_agent", "serve-engines", "--model", str(model), "--url-file", str(url))
        server = ChildProcess("serve-engines", command, os.environ | own, log)
        try:
            while not url.exists():
                if server.exit_code is not None:
                    raise FleetError(server.describe())
                stop_if_asked()
                time.sleep(_POLL_S)
            yield url.read_text().strip()
        finally:
            server.stop(_GRACE_S)
