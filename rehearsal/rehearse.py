"""Rehearse a cluster job on this machine: ``REHEARSE=1 HOST=slime|vime ... bash run-train.sh``.

    mem-agent rehearse [--rollouts 2] [--ranks 2]     in the hosts' CPU environment, which the script makes

In order: settle the cluster's job and its small likeness; start what the host expects to find (slime: an engine); run
the host's own ``train.py`` through the launcher, some rollouts with a checkpoint and an evaluation after
each; run it again for one more, so that it resumes; convert the newest checkpoint; print what was seen and what not.
Everything lies under ``SAVE_PATH/rehearsals/<time>``, the page as ``rehearsal.md``. What a CPU cannot show is in
docs/hosts.md.

The page is read off the metrics that slime and vime write into their job's log, one line each::

    [...] rollout_metrics.py:268 - perf 0: {'rollout/memory/reward': 0.156, ...}
    [...] model.py:918 - step 0: {'train/loss': 0.13, 'train/grad_norm': 1.92}
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import shlex
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from ..agents import longest_turn
from ..checkpoints.convert import convert
from ..checkpoints.hf_model import load_vocabulary, local_folder, parameter_count
from ..config import Config, ConfigError
from ..data.training_file import is_sharded, row_slice, training_files, without_slice
from ..launch.launch import launch, print_plan
from ..launch.layout import divide
from ..launch.model_args import describe, flag_values, read_model_config
from ..launch.plan import PACK, Plan, make_plan, nvidia_smi
from ..launch.preflight import find_problems
from ..launch.ray_job import cluster, job_address
from ..serving.control import Server
from ..system.cli import one_line_errors, start_logging
from ..system.processes import wait_until_healthy
from ..system.server_url import free_ports
from ..system.text import markdown_table
from ..training.train import pocket_profile
from .cpu_job import SETTINGS, cpu_arguments, cpu_variables
from .shrink import SMALL_MODEL, shrink, shrink_layout, write_tiny_model
from .slime_shim import start_sglang
from .vime_shim import PYTHON, engine_variables

logger = logging.getLogger("mem_agent")

TRAIN_ROWS, EVAL_ROWS = 512, 8
_LOGICAL_CPUS = 16
"""What Ray may hand out; the hosts ask for one a GPU and parts of one for each helper."""
_GPU_ONLY = {"--colocate", "--offload", "--offload-train", "--offload-rollout"}
"""Flags of HOST_ARGS that are left out: trainer and engine share no GPU here."""
WITHOUT_SPARE_WORKERS = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
"""Workers that nobody asked for would import torch on cores that are needed."""
GAP = "train/train_rollout_logprob_abs_diff"
"""Mean difference of the log-probs that trainer and engine give to the same tokens."""
_LARGEST_GAP = 1e-4
"""Both compute in float32."""
_LOGGED = re.compile(r"\b(step|rollout|perf|eval) (\d+): (\{.*\})\s*$", re.MULTILINE)
_NUMBER = re.compile(r"'([^']+)': (-?(?:\d[\d.e+-]*|inf|nan))[,}]")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_PROGRESS = re.compile(r"\b(rollout|eval) \d+\b[^{\n]*: \d+ trajectories \| .*|\bstep \d+: \{.*"
                       r"|^(\(\w+ pid=\d+\) )*(ERROR [\d-]+ \S+ \S+ )?[\w.]*(Error|Exception): .*", re.MULTILINE)
"""This pack's summaries, optimizer steps, and errors."""
_PLACES = {"HF_CKPT", "TORCH_DIST", "SAVE_PATH", "REWARD_ARGS", "--hf-checkpoint", "--ref-load", "--load", "--save",
           "--custom-config-path", "--vllm-port"}
"""What differs on every machine."""

Metrics = dict[int, dict[str, float]]

# --- the plan --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rehearsal:
    cluster: Plan
    here: Plan
    engine_port: int
    """Where slime's engine is started for it; vime starts its own."""
    random_model: bool


def plan_rehearsal(config: Config, rollouts: int, ranks: int) -> Rehearsal:
    """Settle the cluster's job, then shrink it: both are plans of the launcher, one for the GPUs that the user has or
    will rent (NUM_GPUS, 8 unless said, of 80 GiB), one for this machine. So the list of what differs is the difference
    of two command lines.

    Writes the random model, where one is needed, into the rehearsal's folder.

    Args:
        rollouts: how many are run before the resume.
        ranks: trainer ranks at most.

    Raises:
        ConfigError: something that it needs is not there, or the cluster's job could not work either.
    """
    if config.supervised:
        raise ConfigError("LOSS=sft: REHEARSE=1 rehearses rollouts; train a few rows with HOST=local instead")
    config = config.replace(engine_args="")  # a recipe of this machine may be rehearsed, not its engines
    if not config.num_gpus and not nvidia_smi("-L"):
        config = config.replace(num_gpus=8)
    original = make_plan(config, weights=False)
    given, description, shrunk = Path(original.config.hf_ckpt), original.arguments["model"], original.config
    folder = Path(original.config.save_path) / "rehearsals" / time.strftime("%Y%m%d-%H%M%S")
    content = read_model_config(given)
    random_model = parameter_count(content) > SMALL_MODEL
    if random_model:
        shrunk, model = shrink(shrunk), folder / "model"
        description = describe(write_tiny_model(content, given, model))
    else:
        model = local_folder(config.hf_ckpt).expanduser().absolute()
    longest = longest_turn(shrunk, load_vocabulary(given, config.trust_remote_code))
    layout = shrink_layout(original.layout, ranks, longest, shrunk.step_trajectories)
    _, other_flags = divide(original.config)
    here = shrunk.replace(
        hf_ckpt=str(model), torch_dist=str(folder / "reference"), save_path=str(folder), lr_warmup_steps=0,
        num_rollout=rollouts, save_interval=1, num_nodes=1, master_addr="127.0.0.1", ray_address="", tp=layout.tp,
        num_gpus=layout.gpus_per_node, tracker="none",
        host_args=shlex.join(flag for flag in other_flags if flag not in _GPU_ONLY), **_data(original.config),
    )
    ray_port, dashboard_port, _, engine_port = free_ports(4)
    plan = replace(make_plan(here, model=description, layout=layout), ports=(ray_port, dashboard_port))
    return Rehearsal(original, _for_this_machine(plan, engine_port), engine_port, random_model)


def _data(config: Config) -> dict[str, Any]:
    """Rows of the training file, and an evaluation at every rollout, never in FULLY_ASYNC: of the user's files, else
    of the training file. Of shards the first has rows enough.
    """
    training = str(training_files(config.train_data)[0]) if is_sharded(config.train_data) else config.train_data
    evaluated = [] if config.fully_async else config.eval_files or [training]
    return {
        "train_data": first_rows(training, TRAIN_ROWS), "eval_interval": int(bool(evaluated)),
        "eval_data": shlex.join(first_rows(file, EVAL_ROWS) for file in evaluated),
    }


def first_rows(data: str, count: int) -> str:
    """The first rows of a file or of the user's slice of it, in the slice notation that the hosts share."""
    rows = row_slice(data)
    if not data or min(rows.start or 0, rows.stop or 0) < 0:  # counted from the end
        return data
    kept = range(sys.maxsize)[rows][:count]
    return f"{without_slice(data)}@[{kept.start}:{kept.stop}]"


def _for_this_machine(plan: Plan, engine_port: int) -> Plan:
    """The plan with what a CPU needs beside it."""
    own = PACK / "rehearsal"
    first, *others = plan.variables["PYTHONPATH"].split(os.pathsep)
    python_path = os.pathsep.join([first, str(own / "site"), str(own / "stubs"), *others])
    # The pack's own environment, over which this one lies, has a vLLM for this machine.
    engines = engine_variables(plan.config, os.environ.get(PYTHON) or sys.executable)
    variables = {**plan.variables, "PYTHONPATH": python_path, **cpu_variables(os.environ), **engines}
    arguments = {**plan.arguments, "cpu": cpu_arguments(plan.config.host, engine_port)}
    return replace(plan, arguments=arguments, variables=variables, host_settings=SETTINGS, cpus=_LOGICAL_CPUS)


# --- the run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What the runs of one rehearsal left behind."""

    metrics: Mapping[str, Metrics]
    resumed_at: int
    """The first rollout after the resume; -1: none was logged."""
    converted: Path
    seconds: Mapping[str, float]

    def series(self, kind: str, name: str) -> str:
        return ", ".join(f"{of[name]:.3g}" for of in self.metrics[kind].values() if name in of) or "not logged"


def rehearse(rehearsal: Rehearsal) -> Seen:
    """Run all of it; what it left behind."""
    plan, config = rehearsal.here, rehearsal.here.config
    plan = replace(plan, config=config.replace(ray_address=job_address(config, plan.ports)))
    more = ["--num-rollout", str(config.num_rollout + 1)]  # behind the launcher's own
    runs = {"train": plan, "resume": replace(plan, arguments={**plan.arguments, "resume": more})}
    seconds: dict[str, float] = {}
    log, resumed_from = plan.folder / "job.log", 0
    with cluster(config, plan.ports, plan.layout.gpus_per_node, plan.cpus, plan.folder / "ray_head.log"):
        for phase, run in runs.items():
            began, resumed_from = time.monotonic(), log.stat().st_size if log.is_file() else 0
            with _engine(rehearsal, phase):
                launch(run, show_progress)
            seconds[phase] = time.monotonic() - began
    newest = Path(config.save_path) / f"iter_{config.num_rollout:07d}"
    output = newest.parent / "hf" / newest.name
    convert(newest, config.hf_ckpt, output)
    return Seen(read_log(log), min(read_log(log, resumed_from)["rollout"], default=-1), output, seconds)


def show_progress(lines: str) -> None:
    """Of a host's thousand lines those that say how it goes; ``launch/job.log`` has them all."""
    for progress in _PROGRESS.finditer(_COLOUR.sub("", lines)):
        logger.info("%s", progress[0].rstrip())


@contextlib.contextmanager
def _engine(rehearsal: Rehearsal, phase: str) -> Iterator[None]:
    """slime's engine for as long as the block lasts, as on a cluster a new one for each run; vime starts its own."""
    config, port, folder = rehearsal.here.config, rehearsal.engine_port, rehearsal.here.folder / phase
    if config.host != "slime":
        yield
        return
    engine = start_sglang(
        os.environ["SGLANG_PYTHON"], Path(config.hf_ckpt), port, config.engine_max_len, folder, config.seed)

    async def wait() -> None:
        async with aiohttp.ClientSession() as session:
            server = Server(f"http://127.0.0.1:{port}", session)
            await wait_until_healthy(engine, lambda: server.answers("/health"), 600.0)

    try:
        asyncio.run(wait())
        yield
    finally:
        engine.stop(20.0)


# --- what it left behind ---------------------------------------------------------------------------------------------


def read_log(path: Path, start: int = 0) -> dict[str, Metrics]:
    """``{"rollout" | "step" | "eval": {number: metrics}}`` in the file from byte ``start`` on, none where there is no
    file; what was logged last of a number stands.
    """
    text = path.read_bytes()[start:].decode(errors="replace") if path.is_file() else ""
    found: dict[str, Metrics] = {kind: defaultdict(dict) for kind in ("rollout", "step", "eval")}
    for kind, number, values in _LOGGED.findall(_COLOUR.sub("", text)):
        numbers = {name: float(value) for name, value in _NUMBER.findall(values)}
        found["rollout" if kind == "perf" else kind][int(number)].update(numbers)
    return found


def report(rehearsal: Rehearsal, seen: Seen, wrong: Sequence[str]) -> str:
    """The page; ``wrong`` is what ``faults`` found."""
    plan, layout, driver = rehearsal.here, rehearsal.here.layout, Path(rehearsal.here.command[1])
    sets = dict.fromkeys(name for of in seen.metrics["eval"].values() for name in of if name.count("/") == 1)
    rows = [
        ("the host's unedited driver, as a Ray job by the launcher's command", driver),
        ("model", "two layers with random weights: rewards and losses mean nothing" if rehearsal.random_model
         else plan.config.hf_ckpt),
        ("rollouts through router and engine", f"{len(seen.metrics['rollout'])}, {seen.seconds['train']:.0f} s"),
        ("reward", seen.series("rollout", "rollout/memory/reward")),
        ("trajectories that failed, a rollout", seen.series("rollout", "rollout/memory/failed")),
        ("log-probs of trainer and engine, mean difference", seen.series("step", GAP)),
        ("optimizer steps: gradient norm", seen.series("step", "train/grad_norm")),
        ("KL to the reference", seen.series("step", "train/kl_loss")),
        ("trainer ranks",
         f"{layout.train_gpus}: tensor {layout.tp}, pipeline {layout.pp}, data parallel {layout.data_parallel}"),
        ("evaluation while training", "; ".join(f"{name} {seen.series('eval', name)}" for name in sets) or "none"),
        ("save, end, resume", f"continued with rollout {seen.resumed_at}, {seen.seconds['resume']:.0f} s"),
        ("conversion to Hugging Face", seen.converted),
    ]
    verdict = ["**Faults:**", "", *(f"- {line}" for line in wrong)] if wrong else ["No faults were found."]
    return "\n".join([
        f"# Rehearsed on {time.strftime('%Y-%m-%d')}: {driver.name} of {plan.config.host}", "", *verdict,
        "", "## Exercised", "", markdown_table(("what", "seen"), rows, ("what", "seen")), "", deviations(rehearsal),
    ])


def deviations(rehearsal: Rehearsal) -> str:
    """Every setting or flag that differs here from the cluster's and is no place; a dash where it is not given."""
    one, other = (
        {name: str(value) for name, value in plan.config.to_mapping().items()}
        | {flag: value or "given" for flag, value in flag_values(plan.command).items()}
        for plan in (rehearsal.cluster, rehearsal.here)
    )
    names = [name for name in {**one, **other} if name not in _PLACES and one.get(name) != other.get(name)]
    header = ("setting or flag", "cluster", "here")
    table = markdown_table(header, [(name, one.get(name, "-"), other.get(name, "-")) for name in names], header)
    return f"## Every deviation of settings\n\n{table}\n"


def faults(rehearsal: Rehearsal, seen: Seen) -> list[str]:
    """What a rehearsal must not show, a line each; a page with one is no pass."""
    config, log, found = rehearsal.here.config, rehearsal.here.folder / "job.log", []
    for kind, wanted in (("rollout", config.num_rollout + 1), ("step", 1), ("eval", config.eval_interval)):
        if (logged := len(seen.metrics[kind])) < wanted:
            found.append(f"{kind}: {logged} logged, {wanted} wanted; {log} says why")
    if seen.resumed_at != config.num_rollout:
        found.append(f"the resumed run began with rollout {seen.resumed_at}, not with {config.num_rollout}")
    for number, metrics in seen.metrics["rollout"].items():
        if failed := metrics.get("rollout/memory/failed"):
            found.append(f"rollout {number}: {failed:g} trajectories failed; {log} says why")
    for number, metrics in seen.metrics["step"].items():
        gap = metrics.get(GAP, 0.0)
        # In FULLY_ASYNC samples are older than the weights they are trained on, by design.
        if not config.fully_async and not gap <= _LARGEST_GAP:
            found.append(f"step {number}: trainer and engine are {gap:.2g} apart in their log-probs: the engine has "
                         "other weights, or rows other tokens, than the trainer")
    return found


@one_line_errors("the same command starts a new rehearsal")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent rehearse", description="Rehearse a cluster job on this machine.")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, start nothing")
    parser.add_argument("--rollouts", type=int, default=2, help="rollouts before it is ended and resumed for one more")
    parser.add_argument("--ranks", type=int, default=2, choices=range(1, 5), help="trainer ranks at most")
    options = parser.parse_args(argv)
    start_logging()
    os.environ.update(WITHOUT_SPARE_WORKERS)
    pocket_profile()
    rehearsal = plan_rehearsal(Config.from_env(), options.rollouts, options.ranks)
    folder = Path(rehearsal.here.config.save_path)
    wrong = [f"on the cluster: {line}" for line in find_problems(rehearsal.cluster.config, of_machine=False)]
    wrong += find_problems(rehearsal.here.config)
    if options.dry_run:
        print_plan(rehearsal.here)
        print(deviations(rehearsal))
    if wrong or options.dry_run:
        shutil.rmtree(folder, ignore_errors=True)  # nothing in it except the random model
    else:
        seen = rehearse(rehearsal)
        wrong = faults(rehearsal, seen)
        page = report(rehearsal, seen, wrong)
        (folder / "rehearsal.md").write_text(page)
        print(page)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0
