"""Evaluations on the engines of a run: of the starting weights before its first rollout, of the last ones after it,
and between rollouts (``between_rollouts.py``).

An evaluation is ``mem-agent eval`` as a process of its own, which asks the run's router; its rows are those that
``run-eval.sh`` writes with engines of its own. The engines are kept alive, as by ``mem-agent serve-engines``::

    engines start | eval before, while the trainer is built | sync, rollout .. sync | convert, sync that | eval after

Nothing of it reaches training: every request has a seed of its own, and a sync empties the prefix caches.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from ..config import Config
from ..system.errors import MemAgentError
from ..system.processes import LOG_GONE, ChildProcess, ProcessError
from ..system.python_command import python_module
from ..system.text import one_line

logger = logging.getLogger("mem_agent")

CHECK_EVERY_S = 10.0
_SOME_FAILED = 3
"""The client's exit code where every question has a row and some failed: they count as wrong, and the run goes on."""

_CHECKED = re.compile("([0-9]{1,18}) ([0-9]{1,18})")


class Served(Protocol):
    """What an evaluation needs of a fleet."""

    config: Config

    @property
    def url(self) -> str: ...

    async def ensure_alive(self, hung_after_s: float) -> int: ...


class EvaluationFailed(ProcessError):
    """The client ended early: one line with its log and what it said last."""


@asynccontextmanager
async def kept_alive(fleet: Served) -> AsyncIterator[asyncio.Task[None]]:
    """The fleet's engines, for as long as the block lasts; the task ends before it only where that cannot be done.

    An engine that is being replaced when the block ends is waited for: it would have to be started once more.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def look() -> None:
        while not (await asyncio.wait({over}, timeout=CHECK_EVERY_S))[0]:
            await fleet.ensure_alive(fleet.config.mem_request_timeout)

    task = asyncio.ensure_future(look())
    try:
        yield task
        over.set_result(None)
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Evaluation:
    """Of the model in the folder ``model``, into ``SAVE_PATH/eval/<name>``."""

    def __init__(self, config: Config, name: str, model: str | Path) -> None:
        self.settings: dict[str, str] = {}
        """Of the client, beside those of this process's environment."""
        self.name = name
        self.log_path = Path(config.save_path) / "logs" / f"evaluate-{name}.log"
        self.output = Path(config.save_path) / "eval" / name
        self.command_without_output = python_module("mem_agent", "eval", "--model", str(model))
        self.command = [*self.command_without_output, "--output", str(self.output)]

    def start_check(self) -> Check:
        return Check(self.command)

    async def run(self, fleet: Served) -> None:
        """Get the answers that are missing, from ``fleet``. Raises ProcessError where that ends early."""
        began = time.monotonic()
        self.log_path.unlink(missing_ok=True)
        environment = _environment() | self.settings
        child = ChildProcess("eval", [*self.command, "--url", fleet.url], environment, self.log_path)
        try:
            async with kept_alive(fleet) as looking:
                while child.exit_code is None and not looking.done():
                    await asyncio.sleep(0.1)
            if child.exit_code not in (0, _SOME_FAILED):
                raise EvaluationFailed(f"evaluation of {self.name}: {child.describe()}")
        finally:
            child.stop()
        logger.info("evaluation of %s took %.1f s", self.name, time.monotonic() - began)

    def said(self) -> str:
        """What the client wrote: its table, and what failed."""
        try:
            return self.log_path.read_text(errors="replace").strip()
        except FileNotFoundError:
            return LOG_GONE


class Check:
    """``mem-agent eval --check`` beside this process, which has other things to do until it asks for the result."""

    def __init__(self, command: list[str], settings: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [*command, "--check"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env=_environment() | dict(settings or {}),
        )

    def result(self) -> tuple[int, int]:
        """(the context that the engines need, answers that are missing). Raises MemAgentError where it is refused."""
        try:
            out, err = self._process.communicate()
        except BaseException:
            self._process.kill()
            raise
        if self._process.returncode != 0:
            last = (err.strip().splitlines() or [f"eval --check exited with code {self._process.returncode}"])[-1]
            raise MemAgentError(last.removeprefix("error: "))
        said = out.strip().rpartition("\n")[2]  # before it stands whatever a library has printed
        numbers = _CHECKED.fullmatch(said)
        if numbers is None:
            raise MemAgentError(f"eval --check: {one_line(said, 200)!r} is the last line of its standard output, in "
                                "place of its two numbers; see what prints there")
        return int(numbers[1]), int(numbers[2])


def _environment() -> dict[str, str]:
    """That of this process; a server of somebody else's is not what is evaluated here."""
    return {name: value for name, value in os.environ.items() if name != "BASE_URL"}
