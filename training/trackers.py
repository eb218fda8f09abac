"""The trackers that TRACKER names, each behind the same two calls; what runs them is in ``tracking.py``.

A run keeps its identity over resumes: it is found again by the number that ``SAVE_PATH/tracker.json`` holds. Where
things go is the library's own business (WANDB_MODE, MLFLOW_TRACKING_URI, SWANLAB_MODE, TRACKIO_DIR ...), but for what
would land in whatever folder a run is started from: that is put below SAVE_PATH.

A library is imported by the tracker that needs it, and nowhere else, in the thread that makes all its calls. So none
of them takes Ctrl-C from the run: handlers of signals are for the main thread alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """What a tracker is told of a run."""

    project: str
    name: str
    key: str
    """Its own for the life of the run, resumes included; letters and digits, - and _."""
    folder: Path
    first: int
    """The rollout that is done next, from 0."""
    settings: Settings


class Tracker(Protocol):
    """Made, told and closed by ``tracking.Tracking`` alone: any of it may raise anything, or hang."""

    def log(self, rollout: int, metrics: Mapping[str, float]) -> None:
        """``rollout`` from 0. A resumed run may say again what it has said, in the same numbers."""

    def close(self) -> None: ...


class TensorBoard:
    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # purge_step: what a killed run has written beyond its checkpoint is written again.
        self._writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.first)
        if run.first == 0:
            self._writer.add_text("settings", "\n".join(f"    {name}={value}" for name, value in run.settings.items()))

    def log(self, rollout: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, rollout)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Wandb:
    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._run = wandb.init(
            project=run.project, name=run.name, id=run.key, resume="allow", config=dict(run.settings),
            dir=str(run.folder), settings=wandb.Settings(console="off"),  # the terminal is this run's own
        )
        self._run.define_metric("rollout")  # wandb's own steps only rise, and a resumed run goes back
        self._run.define_metric("*", step_metric="rollout")

    def log(self, rollout: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"rollout": rollout, **metrics})

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """By the client alone: ``mlflow.log_metric`` speaks of the calling thread's active run."""

    def __init__(self, run: TrackedRun) -> None:
        import mlflow
        from mlflow.entities import Param

        if not mlflow.is_tracking_uri_set():
            mlflow.set_tracking_uri(f"sqlite:///{(run.folder / 'mlflow.db').absolute()}")
        self._client = mlflow.MlflowClient()
        known = self._client.get_experiment_by_name(run.project)
        experiment = known.experiment_id if known else self._client.create_experiment(run.project)
        ours = f"tags.mem_agent_run = '{run.key}'"
        found = self._client.search_runs([experiment], filter_string=ours, max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            made = self._client.create_run(experiment, run_name=run.name, tags={"mem_agent_run": run.key})
            self._id = made.info.run_id
            params = [Param(name, str(value)[:500]) for name, value in run.settings.items()]
            for start in range(0, len(params), 100):  # more in one call are refused
                self._client.log_batch(self._id, params=params[start : start + 100])

    def log(self, rollout: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        values = [Metric(re.sub(r"[^\w\-. /]", "_", name), value, now, rollout) for name, value in metrics.items()]
        for start in range(0, len(values), 1000):
            self._client.log_batch(self._id, metrics=values[start : start + 1000])

    def close(self) -> None:
        self._client.set_terminated(self._id)


class Trackio:
    def __init__(self, run: TrackedRun) -> None:
        import trackio

        # It knows runs by their names alone.
        name = f"{run.name}-{run.key}"
        self._run = trackio.init(run.project, name=name, config=dict(run.settings), resume="allow")

    def log(self, rollout: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=rollout)

    def close(self) -> None:
        self._run.finish()


class SwanLab:
    def __init__(self, run: TrackedRun) -> None:
        import swanlab

        self._library = swanlab
        swanlab.init(
            project=run.project, name=run.name, id=run.key, resume="allow", config=dict(run.settings),
            log_dir=str(run.folder / "swanlog"),
        )

    def log(self, rollout: int, metrics: Mapping[str, float]) -> None:
        self._library.log(dict(metrics), step=rollout)

    def close(self) -> None:
        self._library.finish()


TRACKERS: Mapping[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow, "trackio": Trackio, "swanlab": SwanLab,
}
