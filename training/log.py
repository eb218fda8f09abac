"""The log of a run: ``metrics.jsonl``, a line for each rollout, TRACKER, and a bar in a terminal.

::

    13:02:11 rollout 12/40 | reward 0.531 | mixed groups 62% | turns 4.0 | memory 1.9 tokens | loss +0.00100 | ...
    pocket-1:  30%|███████               | 12/40 [03:10<07:24, 15.9s/rollout]

Metrics are written to disk before they are sent anywhere. A resumed run removes the lines of rollouts that it repeats,
and continues its run in the tracker (wandb finds it by ``SAVE_PATH/tracker.json``). A tracker that cannot begin ends
the run before its first rollout; what it raises later is a warning.
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


@contextmanager
def run_log(config: Config, first: int) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """What a finished rollout is given to, by its number and metrics, for as long as the run lasts.

    Args:
        first: the rollout that is done next.

    Raises:
        MemAgentError: TRACKER cannot begin.
    """
    path = Path(config.save_path) / "metrics.jsonl"
    kept = [line for line in read_metrics(config.save_path) if line["rollout"] < first]
    write_atomically(path, b"".join(orjson.dumps(line) + b"\n" for line in kept))
    with ExitStack() as exits:
        try:
            send = TRACKERS[config.tracker](config, first, exits)
        except Exception as error:
            raise MemAgentError(f"TRACKER={config.tracker} cannot begin: {reason_of(error)}; put that right, or set "
                                "TRACKER=none") from error
        name = Path(config.save_path).absolute().name
        exits.enter_context(logging_redirect_tqdm())
        bar = exits.enter_context(
            tqdm(total=config.num_rollout, initial=first, desc=name, unit="rollout", disable=None))

        def finish(number: int, metrics: Mapping[str, float]) -> None:
            with path.open("ab", buffering=0) as file:
                append_whole(file, orjson.dumps({"rollout": number, **metrics}) + b"\n")
            try:
                send(number, {name: value for name, value in metrics.items() if value is not None})
            except Exception as error:
                logger.warning("TRACKER=%s: %s; the run goes on, metrics.jsonl has everything", config.tracker,
                               reason_of(error))
            logger.info(progress_line(number, config.num_rollout, metrics))
            bar.update(number + 1 - bar.n)

        yield finish


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


def _tensorboard(config: Config, first: int, exits: ExitStack) -> Send:
    from torch.utils.tensorboard import SummaryWriter

    # purge_step: what a killed run has written beyond its checkpoint is written again.
    writer = exits.enter_context(SummaryWriter(str(Path(config.save_path) / "tensorboard"), purge_step=first))

    def send(number: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, number)
        writer.flush()

    return send


def _wandb(config: Config, first: int, exits: ExitStack) -> Send:
    import wandb

    folder = Path(config.save_path)
    key_file = folder / "tracker.json"
    if not key_file.is_file():
        write_atomically(key_file, orjson.dumps({"run": uuid.uuid4().hex[:12]}))
    run: Any = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or "mem_agent", name=folder.absolute().name,
        id=orjson.loads(key_file.read_bytes())["run"], resume="allow", config=config.to_mapping(), dir=str(folder),
        settings=wandb.Settings(console="off"),  # the terminal is ours
    )
    exits.callback(run.finish)
    run.define_metric("rollout")  # wandb's own steps only rise, and a resumed run goes back
    run.define_metric("*", step_metric="rollout")
    return lambda number, metrics: run.log({"rollout": number, **metrics})


TRACKERS: dict[str, Callable[[Config, int, ExitStack], Send]] = {
    "none": lambda config, first, exits: lambda number, metrics: None, "tensorboard": _tensorboard, "wandb": _wandb}
