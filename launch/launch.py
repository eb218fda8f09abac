"""Train in slime or vime::

    mem-agent launch            what `HOST=slime|vime bash run-train.sh` runs
    mem-agent launch --dry-run  print the resolved config and every command, start nothing

It runs in the host's own Python. Order: find the host, settle every setting, check, convert the reference model if it
is missing, start or join Ray, run the host's ``train.py`` as a job, wait. What the run was made of stays in
``SAVE_PATH/launch``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..config import Config, write_settings
from ..system.files import folder_lock, write_atomically
from ..system.logging_setup import start_logging
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from . import reference
from .answer_engine import MODELS_FILE
from .one_file import join_shards
from .plan import PACK, Plan, make_plan
from .preflight import find_problems
from .ray_job import cluster, head_command, head_variables, run_job, submit_command, worker_command
from .worker_env import without_proxy


def print_log(lines: str) -> None:
    print(lines, end="", flush=True)


def launch(plan: Plan, show: Callable[[str], None] = print_log) -> None:
    """Run the plan to its end; ``show`` gets the job's log as it comes."""
    config = plan.config
    write_records(plan)
    join_shards(config)
    folder = Path(config.torch_dist)
    if not reference.has_checkpoint(folder):
        log = plan.folder / "conversion.log"
        reference.convert_reference(plan.conversion, plan.python_path, folder, plan.checkout.root, log)
    os.environ |= without_proxy(os.environ)
    with cluster(config, plan.layout.gpus_per_node, plan.cpus, plan.folder / "ray_head.log"):
        run_job(config, plan.variables, plan.command, plan.folder / "job.log", show)


def write_records(plan: Plan) -> None:
    """Write the config for every worker, the command as it runs, and a link that names this pack ``mem_agent``."""
    link = plan.folder / "import" / "mem_agent"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(PACK, target_is_directory=True)
    settings = plan.config.to_yaml() + yaml_of(plan.host_settings)
    write_atomically(plan.folder / "mem_agent.yaml", settings.encode())
    if plan.models:
        write_atomically(plan.folder / MODELS_FILE, plan.models.encode())
    write_settings(plan.config)
    write_atomically(plan.folder / "runtime_env.yaml", yaml_of({"env_vars": dict(plan.variables)}).encode())
    write_atomically(plan.folder / "command.sh", f"{_shell(plan.command)}\n".encode())


def yaml_of(settings: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(settings)) if settings else ""


def print_plan(plan: Plan) -> None:
    """Print what would be written and run, in order, as shell and YAML."""
    config = plan.config
    print(f"# {plan.checkout.name} in {plan.checkout.root}, model family {plan.family}")
    print(f"# {plan.layout}")
    print("# --- config of every worker, except settings that are their defaults")
    changed = {name: value for name, value in config.to_mapping().items() if value != getattr(Config, name.lower())}
    print(yaml.safe_dump({"mem_agent": changed}, sort_keys=False), end="")
    if plan.models:
        print(f"# --- {MODELS_FILE}\n{plan.models}", end="")
    print("# --- environment of every worker")
    for name, value in plan.variables.items():
        print(f"{name}={shlex.quote(value)}")
    print("# --- commands")
    if not reference.has_checkpoint(Path(config.torch_dist)):
        print(_shell(plan.conversion(Path(config.torch_dist))))
    if not config.ray_address:
        variables = [f"{name}={value}" for name, value in head_variables(config).items()]
        print(*variables, _shell(head_command(config, plan.layout.gpus_per_node, plan.cpus)))
    if config.num_nodes > 1 and not config.ray_address:
        print(f"# on each other machine: {_shell(worker_command(config, plan.layout.gpus_per_node))}")
    print(_shell(submit_command(config, "mem_agent-TIME", plan.folder / "runtime_env.yaml", plan.command)))


def _shell(command: list[str]) -> str:
    """One flag with its values per line."""
    lines: list[str] = []
    for item in command:
        quoted = shlex.quote(item)
        if item.startswith("--") or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n    ".join(lines)


@one_line_errors("the same command continues from the newest checkpoint")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent launch", description="Train a memory agent in slime or vime.")
    parser.add_argument("--dry-run", action="store_true", help="print config and commands, start nothing")
    options = parser.parse_args(argv)
    start_logging()
    stop_on_signals()
    problems: list[str] = []
    try:
        plan = make_plan(Config.from_env(), weights=not options.dry_run, problems=problems)
        if options.dry_run:
            print_plan(plan)
        problems += find_problems(plan)
    finally:
        sys.stdout.flush()
        for line in dict.fromkeys(problems):
            print(f"error: {line}", file=sys.stderr)
    if problems:
        return 1
    if not options.dry_run:
        with folder_lock(Path(plan.config.save_path), busy="is in use by another run; set another SAVE_PATH"):
            launch(plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
