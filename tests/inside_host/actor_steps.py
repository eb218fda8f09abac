"""Jobs for the host's own trainer, without Ray and without a GPU: rows in, what each optimizer step did out.

    REHEARSAL_PYTHON -m mem_agent.tests.inside_host.actor_steps JOBS.json

A job is ``helpers.host_actor.Job``. Its ranks are forks of this process: the imports are paid for once, and each job
has the host's singletons, process groups and global arguments to itself. The host's real parser reads the job's
arguments; ``MegatronTrainRayActor`` is constructed and called as its Ray handle would.

In the job's ``out``: ``rank<R>.json`` with log-probs, advantages (by the row's place in the rollout) and the metrics
of every optimizer step, ``hf_<rollout>/*.safetensors`` after each rollout, ``log_<R>.txt``.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mem_agent.rehearsal import cpu_job

Job = dict[str, Any]
_KEPT = ("log_probs", "ref_log_probs", "advantages")


class Host:
    """The host's modules, under names common to slime and vime."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments = self.module("utils.arguments")
        self.actor = self.module("backends.megatron_utils.actor")
        self.model = self.module("backends.megatron_utils.model")
        self.saver = self.module("backends.megatron_utils.hf_checkpoint_saver")
        self.manager = self.module("ray.rollout")
        # What Ray would answer.
        self.module("ray.train_actor").get_local_gpu_id = lambda: 0
        self.module("utils.data").ray = SimpleNamespace(get=lambda value: value)
        self.manager.ray = SimpleNamespace(put=lambda value, **options: value)

    def module(self, path: str) -> Any:
        return importlib.import_module(f"{self.name}.{path}")

    def split(self, args: Any, actor: Any, train_data: dict[str, Any]) -> list[Any]:
        """What the rollout manager hands to each data-parallel rank."""
        cls = self.manager.RolloutManager.__ray_metadata__.modified_class
        manager = cls.__new__(cls)
        manager.args = args
        manager.set_train_parallel_config(actor.train_parallel_config)
        return manager._split_train_data_by_dp(train_data)

    def save_hf(self, args: Any, actor: Any, folder: Path) -> None:
        if hasattr(self.saver, "save_hf_model_to_path"):
            self.saver.save_hf_model_to_path(args, folder, actor.model)
        else:
            args.save_hf = str(folder)
            self.saver.save_hf_model_direct(args, 0, actor.model)


class Recorder:
    """Keeps what passes between the host's own functions; changes nothing of it."""

    def __init__(self, host: Host) -> None:
        self.rows: list[dict[str, Any]] = []
        self.steps: list[dict[str, float]] = []
        self.partition: list[int] = []
        self._around(host.actor, "compute_advantages_and_returns", self._keep_rows)
        self._around(host.model, "train_one_step", self._keep_step)

    def _around(self, module: Any, name: str, keep: Callable[..., Any]) -> None:
        original = getattr(module, name)
        setattr(module, name, lambda *args, **kwargs: keep(original, *args, **kwargs))

    def _keep_rows(self, original: Callable[..., Any], args: Any, rollout_data: dict[str, Any]) -> None:
        original(args, rollout_data)
        found = {key: [row.tolist() for row in rollout_data[key]] for key in _KEPT if rollout_data.get(key)}
        self.rows.append(found | {"partition": self.partition})

    def _keep_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        optimizer = next(value for value in args if hasattr(value, "param_groups"))
        update, used = optimizer.step, []

        def step() -> Any:
            used.append(float(optimizer.param_groups[0]["lr"]))
            return update()

        optimizer.step = step
        losses, grad_norm = original(*args, **kwargs)
        optimizer.step = update
        numbers = {key: float(value) for key, value in losses.items()}
        (rate,) = used
        self.steps.append(numbers | {"grad_norm": float(grad_norm), "lr": rate})
        return losses, grad_norm


def run(host: Host, job: Job, rank: int) -> None:
    out = Path(job["out"])
    world = job["ranks"]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK="0")
    sys.argv = ["train.py", *job["arguments"]]
    args = host.arguments.parse_args()
    if job["fp32_cross_entropy"]:
        keep_float32_gradients()
    recorder = Recorder(host)
    actor = host.actor.MegatronTrainRayActor(world, rank, "127.0.0.1", job["port"])
    start = actor.init(args, "actor", with_ref=args.kl_coef != 0 or args.use_kl_loss)
    start = start if args.start_rollout_id is None else args.start_rollout_id
    for number, path in enumerate(job["rollouts"], start):
        shares = host.split(args, actor, json.loads(Path(path).read_text()))
        recorder.partition = list(shares[actor_rank()].inner["partition"])
        actor.train(number, shares)
        host.save_hf(args, actor, out / f"hf_{number}")
        if args.save and number in job["save_after"]:
            actor.save_model(number, force_sync=True)
    seen = {"start": start, "rows": recorder.rows, "steps": recorder.steps}
    (out / f"rank{rank}.json").write_text(json.dumps(seen))


def actor_rank() -> int:
    from megatron.core import mpu

    return mpu.get_data_parallel_rank(with_context_parallel=False)


def keep_float32_gradients() -> None:
    """Megatron's fused cross entropy rounds the gradient of the logits to bfloat16, whatever the model's dtype."""
    from megatron.core.fusions import fused_cross_entropy as fused

    def gradients(softmax: Any, slope: Any, target_mask: Any, masked_target: Any) -> Any:
        flat, positions, update, result = fused.VocabParallelCrossEntropy.prepare_gradient_calculation_operands(
            softmax, target_mask
        )
        return fused.VocabParallelCrossEntropy.calculate_gradients(
            flat, positions, masked_target, update, result, slope
        )

    fused.calculate_gradients = gradients


# --- one process a rank -------------------------------------------------------------------------------------------


def start(host: Host, job: Job, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        log = os.open(Path(job["out"]) / f"log_{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        run(host, job, rank)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run_all(host: Host, jobs: list[Job]) -> int:
    """Every job, as many at a time as there are cores, the first ones first; how many ranks failed."""
    cores, waiting, running, failed = len(os.sched_getaffinity(0)), list(jobs), set[int](), 0
    done: set[str] = set()
    while waiting or running:
        ready = [job for job in waiting if set(job["after"]) <= done]
        if ready and (not running or len(running) + ready[0]["ranks"] <= cores):
            job = ready[0]
            waiting.remove(job)
            job["port"] = free_port()
            job["pids"] = [start(host, job, rank) for rank in range(job["ranks"])]
            running |= set(job["pids"])
            continue
        pid, status = os.wait()
        running.discard(pid)
        failed += status != 0
        done |= {job["name"] for job in jobs if "pids" in job and not running & set(job["pids"])}
    return failed


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main(path: str) -> int:
    jobs = json.loads(Path(path).read_text())
    cpu_job.prepare()
    import torch

    torch.set_num_threads(1)
    return run_all(Host(jobs[0]["host"]), jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
