"""One step of a curriculum: a command that is run once, however often it takes until it has ended well.

A step that ended leaves ``ROUND/steps/NAME.json``. It is skipped while that and all that it wrote are there. What it
runs continues where it was killed, so a step that was interrupted is simply run again. The command is told to stop
when this process is, and when this process is gone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from ...system.errors import MemAgentError
from ...system.files import write_atomically


class StepFailed(MemAgentError):
    """A step's command ended badly; the lines above say why."""


@dataclass(frozen=True, slots=True)
class Step:
    round: int
    name: str
    command: Sequence[str]
    outputs: Sequence[Path]
    """Files and folders that are there once it has ended."""
    env: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    """Variables that are the user's, and of another step."""
    accepted: frozenset[int] = frozenset({0})
    """Exit codes of an end that counts."""
    check: Callable[[], object] = bool
    """Raises MemAgentError where what was written is not worth keeping as done."""

    def shown(self) -> str:
        """As a line of shell."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join([*settings, shlex.join(self.command)])


def run_step(step: Step, folder: Path) -> bool:
    """Run it unless it has ended before; whether it was run. Raises StepFailed."""
    note = folder / "steps" / f"{step.name}.json"
    if note.is_file() and not (absent := _absent(step)):
        print(f"round {step.round}: {step.name} is done", flush=True)
        return False
    print(f"round {step.round}: {step.name}", flush=True)
    begun = time.monotonic()
    code = run_command(step)
    if code not in step.accepted:
        raise StepFailed(f"round {step.round}: {step.name} ended with code {code}; once the lines above are seen to, "
                         "the same command goes on there")
    if absent := _absent(step):
        raise StepFailed(f"round {step.round}: {step.name} has not written {absent[0]}")
    step.check()
    note.parent.mkdir(parents=True, exist_ok=True)
    about = {"outputs": [str(path) for path in step.outputs], "seconds": round(time.monotonic() - begun, 1)}
    write_atomically(note, orjson.dumps(about, option=orjson.OPT_INDENT_2))
    return True


def _absent(step: Step) -> list[Path]:
    return [path for path in step.outputs if not path.exists()]


def run_command(step: Step) -> int:
    """Its exit code; told to stop when this process is."""
    own = {name: value for name, value in os.environ.items() if name not in step.unset}
    bound = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    with subprocess.Popen([*bound, *step.command], env=own | dict(step.env)) as child:
        try:
            return child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise
