"""The server that questions are asked of: the one that is named, or engines that live as long as the context.

Engines are quiet: what they and the router print goes into the folder that is named, else into one of their own, which
stays only where they failed, since the error names a file in it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from ..checkpoints.hf_model import load_vocabulary, with_engine_length
from ..config import Config
from ..evaluation.endpoint import KEY, connect
from ..rollout_client import NO_ANSWER
from ..system.processes import FleetError
from ..system.server_url import checked_url, uses_proxy
from .reader import AskingReader


@dataclass(frozen=True, slots=True)
class Served:
    """A model that can be asked, and the engines that were started for it, if any."""

    reader: AskingReader
    fleet: Any = None

    async def healthy(self) -> bool:
        """Whether what is behind it answers."""
        if self.fleet:
            return not self.fleet.out_of_service
        url = self.reader.endpoint.base_url
        async with aiohttp.ClientSession(trust_env=uses_proxy(url), timeout=aiohttp.ClientTimeout(2)) as session:
            try:
                async with session.get(f"{url}/health") as reply:
                    return reply.status < 500
            except NO_ANSWER:
                return False


@asynccontextmanager
async def reader_at(
    url: str, model: Path, config: Config, logs: Path | None = None, *, served_model: str = ""
) -> AsyncIterator[Served]:
    """A reader on the server at ``url``, where the model is called ``served_model``, or on engines that are started
    for it where there is no ``url``.

    Raises:
        ConfigError: the model cannot hold what the settings ask for, or ``url`` is no address.
        EvalError: nothing answers at ``url``, or nothing that can be used.
        FleetError: the engines do not start. Raised inside the context, it keeps their logs as well.
    """
    if url:
        asked = config.replace(base_url=checked_url("--url", url, KEY))
        yield Served(AskingReader(asked, model, await connect("", model, asked, served_model)))
        return
    from ..serving.fleet import Fleet  # which imports torch

    config = with_engine_length(config, model, load_vocabulary(model, config.trust_remote_code))
    folder = logs or Path(tempfile.mkdtemp(prefix="mem-agent-ask-"))
    try:
        async with Fleet(config, model, run_folder=folder) as fleet:
            yield Served(AskingReader(config, model, fleet.url), fleet)
    except FleetError:
        logs = folder
        raise
    finally:
        if not logs:
            shutil.rmtree(folder)
