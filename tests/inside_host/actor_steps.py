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
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mem_agent.rehearsal import cpu_job
from mem_agent.system.server_url import free_ports

Job = dict[str, Any]
_KEPT = ("log_probs", "ref_log_probs", "advantages")


class Host:
    """The host's modules, under names common to slime and vime."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments = self.module("utils.arguments")
        self.actor = self.module("backends.megatron_utils.actor")
        self.saver = self.module("backends.megatron_utils.hf_checkpoint_saver")
        self.manager = self.module("ray.rollout")
        # What Ray would answer.
        self.module("ray.train_actor").get_local_gpu_id = lambda: 0
        self.module("utils.data").ray = SimpleNamespace(get=lambda value: value)
        self.manager.ray = SimpleNamespace(put=lambda value, **options: value)

    def module(self, path: str) -> Any:
        return importlib.import_module(f"{self.name}.{path}")

    def split(self, args: Any, actor: Any, path: str) -> list[Any]:
        """What the rollout manager hands to each data-parallel rank of the rows in a file."""
        cls = self.manager.RolloutManager.__ray_metadata__.modified_class
        manager = cls.__new__(cls)
        manager.args = args
        manager.set_train_parallel_config(actor.train_parallel_config)
        return manager._split_train_data_by_dp(json.loads(Path(path).read_text()))

    def save_hf(self, args: Any, actor: Any, folder: Path) -> None:
        if hasattr(self.saver, "save_hf_model_to_path"):
            self.saver.save_hf_model_to_path(args, folder, actor.model)
        else:
            args.save_hf = str(folder)
            self.saver.save_hf_model_direct(args, 0, actor.model)


def recorded(host: Host) -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    """The rows of each rollout and the numbers of each step, as they pass between the host's own functions."""
    model, rows, steps = host.module("backends.megatron_utils.model"), [], []
    advantages, train_one_step = host.actor.compute_advantages_and_returns, model.train_one_step

    def keep_rows(args: Any, rollout_data: dict[str, Any]) -> None:
        advantages(args, rollout_data)
        rows.append({key: [row.tolist() for row in rollout_data[key]] for key in _KEPT if rollout_data.get(key)})

    def keep_step(*args: Any, **kwargs: Any) -> Any:
        optimizer = next(value for value in args if hasattr(value, "param_groups"))
        rate = float(optimizer.param_groups[0]["lr"])  # the scheduler's step comes after the optimizer's
        losses, grad_norm = train_one_step(*args, **kwargs)
        numbers = {key.replace("kl_loss", "kl"): float(value) for key, value in losses.items()}
        steps.append(numbers | {"grad_norm": float(grad_norm), "lr": rate})
        return losses, grad_norm

    host.actor.compute_advantages_and_returns, model.train_one_step = keep_rows, keep_step
    return rows, steps


def run(host: Host, job: Job, rank: int) -> None:
    from megatron.core import mpu

    out = Path(job["out"])
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(job["ranks"]), LOCAL_RANK="0")
    sys.argv = ["train.py", *job["arguments"]]
    args = host.arguments.parse_args()
    if job["fp32_cross_entropy"]:
        keep_float32_gradients()
    rows, steps = recorded(host)
    actor = host.actor.MegatronTrainRayActor(job["ranks"], rank, "127.0.0.1", job["port"])
    start = actor.init(args, "actor", with_ref=args.kl_coef != 0 or args.use_kl_loss)
    start = start if args.start_rollout_id is None else args.start_rollout_id
    for number, path in enumerate(job["rollouts"], start):
        shares = host.split(args, actor, path)
        actor.train(number, shares)
        place = mpu.get_data_parallel_rank(with_context_parallel=False)
        rows[-1]["partition"] = list(shares[place].inner["partition"])
        host.save_hf(args, actor, out / f"hf_{number}")
        if args.save and number in job["save_after"]:
            actor.save_model(number, force_sync=True)
    (out / f"rank{rank}.json").write_text(json.dumps({"start": start, "rows": rows, "steps": steps}))


def keep_float32_gradients() -> None:
    """Megatron's fused cross entropy rounds the gradient of the logits to bfloat16, whatever the model's dtype."""
    from megatron.core.fusions import fused_cross_entropy as fused

    kernel = fused.VocabParallelCrossEntropy

    def gradients(softmax: Any, slope: Any, target_mask: Any, masked_target: Any) -> Any:
        flat, positions, update, result = kernel.prepare_gradient_calculation_operands(softmax, target_mask)
        return kernel.calculate_gradients(flat, positions, masked_target, update, result, slope)

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
    """Every job in turn, as many at a time as there are cores; how many ranks failed."""
    cores, failed = len(os.sched_getaffinity(0)), 0
    running: dict[int, str] = {}
    for job in [*jobs, None]:
        while running and (job is None or len(running) + job["ranks"] > cores
                           or set(job["after"]) & set(running.values())):
            pid, status = os.wait()
            del running[pid]
            failed += status != 0
        if job:
            (job["port"],) = free_ports(1)
            running |= {start(host, job, rank): job["name"] for rank in range(job["ranks"])}
    return failed


def main(path: str) -> int:
    jobs = json.loads(Path(path).read_text())
    cpu_job.prepare()
    import torch

    torch.set_num_threads(1)
    return run_all(Host(jobs[0]["host"]), jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
