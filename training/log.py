"""The log of a run: ``metrics.jsonl``, a line for each rollout, TRACKER, and a bar in a terminal.

::

    13:02:11 rollout 12/40 | reward 0.531 | mixed groups 62% | turns 4.0 | memory 1.9 tokens | loss +0.00100 | ...
    pocket-1:  30%|███████               | 12/40 [03:10<07:24, 15.9s/rollout, sampling]

Metrics are written to disk before they are sent anywhere. A resumed run removes the lines of rollouts that it repeats,
and continues its run in the tracker (wandb finds it by ``SAVE_PATH/tracker.json``). A tracker that cannot begin ends
the run before its first rollout; once it has begun, whatever it raises is a warning.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..config import Config
from ..hooks.metrics import shown
from ..system.errors import MemAgentError, reason_of
from ..system.files import append_whole, write_atomically

logger = logging.getLogger("mem_agent")

Send = Callable[[int, Mapping[str, float]], None]
"""Takes a rollout's number, from 0, and its metrics; a resumed run may send a rollout again."""


class RunLog:
    """Of rank 0; on the other ranks it is silent."""

    def __init__(self, config: Config, first: int, *, silent: bool = False) -> None:
        """``first``: the rollout that is done next. Raises MemAgentError where TRACKER cannot begin."""
        self._config, self._silent = config, silent
        self._path = Path(config.save_path) / "metrics.jsonl"
        self._exits = ExitStack()
        self._send: Send | None = None
        if not silent:
            self._send = start_tracker(config, first, self._exits)
            self._exits.enter_context(logging_redirect_tqdm())
        name = Path(config.save_path).absolute().name
        # None: only in a terminal.
        self._bar = self._exits.enter_context(
            tqdm(total=config.num_rollout, initial=first, desc=name, unit="rollout", disable=silent or None)
        )

    def begin(self, first: int) -> None:
        """The run goes on with rollout ``first``: later lines of ``metrics.jsonl`` are removed."""
        if self._silent:
            return
        kept = [line for line in read_metrics(self._config.save_path) if line["rollout"] < first]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, b"".join(orjson.dumps(line) + b"\n" for line in kept))

    def enter(self, phase: str) -> None:
        """What the run does now, for the bar."""
        self._bar.set_postfix_str(phase)

    def finish(self, number: int, metrics: Mapping[str, float]) -> None:
        if self._silent:
            return
        with self._path.open("ab", buffering=0) as file:
            append_whole(file, orjson.dumps({"rollout": number, **metrics}) + b"\n")
        if self._send is not None:
            with self._warning():
                self._send(number, {name: value for name, value in metrics.items() if value is not None})
        logger.info(progress_line(number, self._config.num_rollout, metrics))
        self._bar.update(number + 1 - self._bar.n)

    def close(self) -> None:
        with self._warning():
            self._exits.close()

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Whatever the tracker's library raises becomes a warning."""
        try:
            yield
        except Exception as error:
            logger.warning("TRACKER=%s: %s; the run goes on, metrics.jsonl has everything", self._config.tracker,
                           reason_of(error))


def progress_line(number: int, rollouts: int, metrics: Mapping[str, float]) -> str:
    """One line for people; what is absent, or was no number (a journal's null), is left out."""
    took = [f"{name.removeprefix('seconds/').replace('_', '-')} {value:.1f}" for name, value in metrics.items()
            if name.startswith("seconds/")]
    parts = [f"rollout {number + 1}/{rollouts}", *shown(metrics), f"{metrics['seconds']:.1f} s ({', '.join(took)})"]
    if metrics.get("failed"):
        parts.append(f"FAILED {metrics['failed']:.0f} of {metrics['trajectories']:.0f}")
    return " | ".join(parts)


def read_metrics(save_path: str | Path) -> list[dict[str, float]]:
    """The lines of a run's ``metrics.jsonl``, in order, without half a line that a killed run left."""
    path = Path(save_path) / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [orjson.loads(line) for line in lines if line.endswith(b"\n")]


# --- trackers -------------------------------------------------------------------------------------------------------


def start_tracker(config: Config, first: int, exits: ExitStack) -> Send | None:
    """TRACKER's, which ``exits`` ends; None without one. Raises MemAgentError where it cannot begin."""
    if config.tracker == "none":
        return None
    try:
        return _wandb(config, exits) if config.tracker == "wandb" else _tensorboard(config, first, exits)
    except Exception as error:
        raise MemAgentError(f"TRACKER={config.tracker} cannot begin: {reason_of(error)}; put that right, or set "
                            "TRACKER=none") from error


def _tensorboard(config: Config, first: int, exits: ExitStack) -> Send:
    from torch.utils.tensorboard import SummaryWriter

    # purge_step: what a killed run has written beyond its checkpoint is written again.
    writer = exits.enter_context(SummaryWriter(str(Path(config.save_path) / "tensorboard"), purge_step=first))
    if first == 0:
        writer.add_text("settings", "\n".join(f"    {name}={value}" for name, value in config.to_mapping().items()))

    def send(number: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, number)
        writer.flush()

    return send


def _wandb(config: Config, exits: ExitStack) -> Send:
    import wandb

    folder = Path(config.save_path)
    key_file = folder / "tracker.json"
    if not key_file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(key_file, orjson.dumps({"run": uuid.uuid4().hex[:12]}))
    key = str(orjson.loads(key_file.read_bytes())["run"])
    run: Any = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or "mem_agent", name=folder.absolute().name, id=key, resume="allow",
        config=config.to_mapping(), dir=str(folder), settings=wandb.Settings(console="off"),  # the terminal is ours
    )
    exits.callback(run.finish)
    run.define_metric("rollout")  # wandb's own steps only rise, and a resumed run goes back
    run.define_metric("*", step_metric="rollout")
    return lambda number, metrics: run.log({"rollout": number, **metrics})
