"""The server that a question is asked of: the one that is named, or engines that live as long as the question.

Engines are quiet: what they and the router print goes into a folder of their own, which stays only where they failed,
since the error names a file in it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..checkpoints.hf_model import load_vocabulary, with_engine_length
from ..config import Config
from ..evaluation.connect import KEYS, connect
from ..serving.fleet import Fleet
from ..system.processes import FleetError
from ..system.server_url import checked_url
from .reader import AskingReader


@dataclass(frozen=True, slots=True)
class Served:
    """A model that can be asked, and where its engines log if they are ours."""

    reader: AskingReader
    logs: Path | None = None


@asynccontextmanager
async def reader_at(url: str, model: Path, config: Config) -> AsyncIterator[Served]:
    """A reader on the server at ``url``, or on engines that are started for it where that is empty.

    Raises:
        ConfigError: the model cannot hold what the settings ask for, or ``url`` is no address.
        EvalError: nothing answers at ``url``, or nothing that can be used.
        FleetError: the engines do not start. Raised inside the context, it keeps their logs as well.
    """
    if url:
        # Who asks one question waits for no server to come back.
        asked = replace(config, base_url=checked_url("--url", url, " or ".join(KEYS)), eval_server_wait=0.0)
        yield Served(AskingReader(config, model, await connect("", model, asked)))
        return
    config = with_engine_length(config, model, load_vocabulary(model))
    logs, failed = Path(tempfile.mkdtemp(prefix="mem-agent-ask-")), False
    try:
        async with Fleet(config, model, run_folder=logs) as fleet:
            yield Served(AskingReader(config, model, fleet.url), fleet.logs)
    except FleetError:
        failed = True
        raise
    finally:
        if not failed:
            shutil.rmtree(logs)
