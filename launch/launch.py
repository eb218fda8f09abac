"""Train in slime or vime::

    mem-agent launch --convert  what `HOST=slime|vime bash run-train.sh` runs
    mem-agent launch --dry-run  print the resolved config and every command, start nothing

It runs in the host's own Python. Order: find the host, settle every setting, check, convert the reference model if it
is missing, start or join Ray, run the host's ``train.py`` as a job, wait, convert the newest checkpoint. What the run
was made of stays in ``SAVE_PATH/launch``.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import yaml

from ..checkpoints.model_card import add_push_arguments
from ..config import Config, ConfigError, write_settings
from ..data.document_store import store_folder
from ..data.training_file import is_sharded, training_files
from ..system.cli import one_line_errors, python_module, start_logging
from ..system.errors import MemAgentError
from ..system.files import folder_lock, replacing
from . import ray_job
from .arguments import prompt_file
from .plan import PACK, Plan, make_plan
from .preflight import find_problems

logger = logging.getLogger("mem_agent")
print_log = partial(print, end="", flush=True)


def launch(plan: Plan, show: Callable[[str], None] = print_log) -> None:
    """Run the plan to its end; ``show`` gets the job's log as it comes."""
    config, gpus = plan.config, plan.layout.gpus_per_node
    write_records(plan)
    join_shards(config)
    if plan.conversion:
        logger.info("converting the reference model into %s", config.torch_dist)
        if convert(plan, plan.conversion):
            raise MemAgentError(f"HF_CKPT={config.hf_ckpt!r} was not converted, the line above says why")
    os.environ |= ray_job.without_proxy(os.environ)
    with ray_job.cluster(config, plan.ports, gpus, plan.cpus, plan.folder / "ray_head.log"):
        address = ray_job.job_address(config, plan.ports)
        ray_job.run_job(config, address, plan.variables, plan.command, plan.folder / "job.log", show)


def convert(plan: Plan, command: Sequence[str]) -> int:
    """The exit code of a conversion, in a process that can import the host's Megatron-LM."""
    quiet = {"PYTHONPATH": plan.variables["PYTHONPATH"], "PYTHONWARNINGS": "ignore"}
    return subprocess.call(command, env=os.environ | quiet)


def join_shards(config: Config) -> None:
    """Write ``prompt_file`` from shards, batch by batch: rows and their order are those of the shards.

    Documents stay where they are; a link beside the copy leads to them. Raises ConfigError, ShardError.
    """
    target = Path(prompt_file(config))
    if not is_sharded(config.train_data):
        return
    import pyarrow.parquet as pq
    from pyarrow.dataset import dataset

    files = training_files(config.train_data)
    schema = pq.read_schema(files[0])
    if other := [path for path in files if pq.read_schema(path) != schema]:
        raise ConfigError(f"TRAIN_DATA: {other[0]} has other columns than {files[0].name}; a host reads both as one "
                          "file, so prepare them together")
    target.parent.mkdir(parents=True, exist_ok=True)
    documents = store_folder(target)
    documents.unlink(missing_ok=True)
    documents.symlink_to(store_folder(config.train_data).absolute())
    with replacing(target) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for batch in dataset(files).to_batches():
            writer.write_batch(batch)


def write_records(plan: Plan) -> None:
    """Write the config and the environment of every worker, and a link that names this pack ``mem_agent``."""
    link = plan.folder / "import" / "mem_agent"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(PACK, target_is_directory=True)
    write_settings(plan.config)
    host_settings = yaml.safe_dump(dict(plan.host_settings)) if plan.host_settings else ""
    (plan.folder / "mem_agent.yaml").write_text(plan.config.to_yaml() + host_settings)
    (plan.folder / "runtime_env.yaml").write_text(yaml.safe_dump({"env_vars": dict(plan.variables)}))


def print_plan(plan: Plan, conversion: Sequence[str] = ()) -> None:
    """Print what would be written and run, in order, as shell and YAML; ``conversion`` is the last command."""
    config, gpus = plan.config, plan.layout.gpus_per_node
    print(f"# {config.host} in {config.host_root}\n# {plan.layout}")
    print("# --- config of every worker, except settings that are their defaults")
    print(yaml.safe_dump({"mem_agent": config.changed()}, sort_keys=False), end="")
    print("# --- environment of every worker")
    print(*(f"{name}={shlex.quote(value)}" for name, value in plan.variables.items()), sep="\n")
    print("# --- commands")
    if plan.conversion:
        print(_shell(plan.conversion))
    if not config.ray_address:
        print(_shell(ray_job.head_command(config, plan.ports, gpus, plan.cpus)))
        if config.num_nodes > 1:
            print(f"# on each other machine: {ray_job.worker_command(config, gpus)}")
    place = ["--address", ray_job.job_address(config, plan.ports), "--submission-id", "mem_agent-TIME"]
    environment = ["--runtime-env", str(plan.folder / "runtime_env.yaml")]
    submit = [*ray_job.RAY, "job", "submit", *place, *environment, "--", *plan.command]
    for command in filter(None, (submit, conversion)):
        print(_shell(command), flush=True)


def _shell(command: Sequence[str]) -> str:
    """One flag with its values per line."""
    words = [f"\\\n    {shlex.quote(word)}" if word.startswith("--") else shlex.quote(word) for word in command]
    return " ".join(words)


def _told(problems: Sequence[str]) -> int:
    for line in dict.fromkeys(problems):
        print(f"error: {line}", file=sys.stderr)
    return 1 if problems else 0


@one_line_errors("the same command continues from the newest checkpoint")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent launch", description="Train a memory agent in slime or vime.")
    parser.add_argument("--dry-run", action="store_true", help="print config and commands, start nothing")
    parser.add_argument("--convert", action="store_true", help="convert the newest checkpoint at the end")
    add_push_arguments(parser)
    options = parser.parse_args(argv)
    start_logging()
    config = Config.from_env()
    try:
        plan = make_plan(config, weights=not options.dry_run)
    except MemAgentError as error:
        if not options.dry_run:
            raise
        return _told([str(error), *find_problems(config)])
    conversion: list[str] = []
    if options.convert:
        pushed = ["--push-to-hub", options.push_to_hub] if options.push_to_hub else []
        private = ["--private"] if options.private else []
        model = ["--input", plan.config.save_path, "--hf", plan.config.hf_ckpt]
        conversion = python_module("mem_agent", "convert", *model, *pushed, *private)
    if options.dry_run:
        print_plan(plan, conversion)
    if (code := _told(find_problems(plan.config))) or options.dry_run:
        return code
    with folder_lock(Path(plan.config.save_path), busy="is in use by another run; set another SAVE_PATH"):
        launch(plan)
    return convert(plan, conversion) if conversion else 0
