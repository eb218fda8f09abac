"""Train in slime or vime::

    python -m mem_agent.cluster.launch            what `HOST=slime|vime bash run-train.sh` runs
    python -m mem_agent.cluster.launch --dry-run  print the resolved config and every command, start nothing

It runs in the host's own Python. Order: find the host, settle every setting, check, convert the reference model if it
is missing, start or join Ray, run the host's ``train.py`` as a job, wait. What the run was made of stays in
``SAVE_PATH/launch``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..agents import check_agent
from ..config import Config, ConfigError
from ..host.hf_model import local_folder, with_engine_length
from ..host.run_log import start_logging
from ..host.save_lock import save_lock
from ..host.signals import stop_on_signals
from ..one_line_errors import one_line_errors
from . import reference, remote_env
from .arguments import build_arguments
from .checkout import Checkout, check_version, find_checkout, find_megatron
from .layout import Layout, derive
from .machine import find_gpus, has_nvlink, has_sticky_router
from .model_args import ModelSize, model_args, model_size, read_model_config
from .preflight import check_length, longest_turn, problems
from .ray_cluster import cluster, head_command, run_job, submit_command, worker_command

PACK = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Plan:
    """Everything a launch is made of, settled before anything starts."""

    config: Config
    """Paths absolute, host named, engine length and layout filled in."""
    checkout: Checkout
    family: str
    model_arguments: list[str]
    size: ModelSize
    layout: Layout
    python_path: str
    variables: Mapping[str, str]
    arguments: Mapping[str, list[str]]

    @property
    def folder(self) -> Path:
        return Path(self.config.save_path) / "launch"

    @property
    def command(self) -> list[str]:
        driver = self.checkout.driver(self.config.fully_async)
        return [sys.executable, str(driver), *(item for group in self.arguments.values() for item in group)]


def make_plan(config: Config) -> Plan:
    """Settle every setting; reads files, writes none.

    Raises:
        ConfigError: something cannot work; the message says what and the remedy.
    """
    checkout = find_checkout(config, PACK)
    check_version(checkout, config)
    check_agent(config)
    _refuse_what_cannot_work(config)
    model_folder = local_folder(config.hf_ckpt).expanduser().absolute()
    content = read_model_config(model_folder)
    family, model = model_args(checkout.model_scripts, config.model_family, content)
    config = with_engine_length(_absolute(replace(config, hf_ckpt=str(model_folder))), model_folder)
    config = replace(
        config, host=checkout.name, host_root=str(checkout.root), megatron_root=str(find_megatron(config)),
        torch_dist=str(reference.default_folder(config)), model_family=family,
    )
    reference.is_there(Path(config.torch_dist))
    longest = longest_turn(config, model_folder)
    check_length(config, longest)
    size = model_size(content)
    layout = derive(size, find_gpus(config), longest, config)
    config = replace(config, tp=layout.tp, pp=layout.pp, cp=layout.cp, max_tokens_per_gpu=layout.tokens_per_gpu,
                     engine_gpus=layout.engine_gpus, num_gpus=layout.gpus_per_node)
    folder = Path(config.save_path) / "launch"
    entries = [str(folder / "import"), config.megatron_root, config.host_root, *_user_path()]
    python_path = os.pathsep.join(dict.fromkeys(entries))
    variables = remote_env.worker_variables(
        os.environ, python_path=python_path, save_path=config.save_path, master_addr=config.master_addr,
        nvlink=has_nvlink(),
    )
    arguments = build_arguments(config, checkout, model, layout, folder / "mem_agent.yaml", has_sticky_router())
    return Plan(config, checkout, family, model, size, layout, python_path, variables, arguments)


_REFUSED_ARGUMENTS = {
    "--partial-rollout": "a multi-turn trajectory cannot be continued",
    "--group-rm": "rewards are given by trajectory",
    "--apply-chat-template": "the rendered chat would become the question",
    "--log-passrate": "it counts rows, not trajectories",
    "--rollout-top-p": "training needs the log-probs of the whole vocabulary",
    "--wandb-key": "it would be shown on Ray's pages; set WANDB_API_KEY",
    "--tensor-model-parallel-size": "set TP",
    "--pipeline-model-parallel-size": "set PP",
    "--context-parallel-size": "set CP",
    "--max-tokens-per-gpu": "set MAX_TOKENS_PER_GPU",
}


def _refuse_what_cannot_work(config: Config) -> None:
    asynchronous = {
        "the hosts' asynchronous rollout ignores filters; set DYNAMIC_FILTER=none": config.dynamic_filter != "none",
        "it has no over-sampling; unset OVER_SAMPLING_BATCH_SIZE": config.over_sampling_batch_size > 0,
        "its worker holds the engines of which evaluation needs some; set EVAL_INTERVAL=0": config.eval_interval > 0,
    }
    for reason, wanted in asynchronous.items():
        if config.fully_async and wanted:
            raise ConfigError(f"FULLY_ASYNC=1: {reason}")
    try:
        given = shlex.split(config.host_args)
    except ValueError as error:
        raise ConfigError(f"HOST_ARGS={config.host_args!r}: {error}; quote it as in a shell") from None
    for flag, reason in _REFUSED_ARGUMENTS.items():
        if any(item.partition("=")[0] == flag for item in given):
            raise ConfigError(f"HOST_ARGS: {flag} cannot be used: {reason}")


def _absolute(config: Config) -> Config:
    """Workers have other working directories."""
    names = ("train_data", "save_path", "torch_dist", "mem_prompts", "mem_doc_store")
    paths = {name.upper(): getattr(config, name) for name in names}
    absolute = {name: str(Path(path).expanduser().absolute()) for name, path in paths.items() if path}
    absolute["EVAL_DATA"] = shlex.join(str(Path(path).expanduser().absolute()) for path in config.eval_files)
    return Config.from_mapping(config.to_mapping() | absolute)


def _user_path() -> list[str]:
    """PYTHONPATH as the user set it, without the folder through which the scripts show this pack to Python."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in entries if entry and entry != os.environ.get("MEM_AGENT_IMPORT")]


# --- doing it -----------------------------------------------------------------------------------------------------


def launch(plan: Plan) -> None:
    config, job = plan.config, f"mem_agent-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    _write_records(plan)
    if not reference.is_there(Path(config.torch_dist)):
        output = reference.hidden(Path(config.torch_dist))
        command = reference.conversion_command(config, plan.checkout, plan.model_arguments, output)
        reference.make(command, plan.python_path, Path(config.torch_dist), plan.checkout.root)
    with (
        remote_env.written(plan.variables, os.environ, plan.folder) as runtime_env,
        cluster(config, plan.layout.gpus_per_node, plan.folder / "ray_head.log", plan.folder / "tokens"),
    ):
        run_job(config, job, runtime_env, plan.command)


def _write_records(plan: Plan) -> None:
    """The config for every worker, the command as it runs, and the name ``mem_agent`` for this pack."""
    show = plan.folder / "import"
    show.mkdir(parents=True, exist_ok=True)
    link = show / "mem_agent"
    if not (link.is_symlink() and link.resolve() == PACK):
        link.unlink(missing_ok=True)
        link.symlink_to(PACK, target_is_directory=True)
    (plan.folder / "mem_agent.yaml").write_text(plan.config.to_yaml())
    (plan.folder / "command.sh").write_text(_shell(plan.command) + "\n")


def print_plan(plan: Plan) -> None:
    """What would be written and run, in order, as shell and YAML."""
    config = plan.config
    print(f"# {plan.checkout.name} in {plan.checkout.root}, model family {plan.family}")
    print(f"# {plan.layout}")
    print("# --- config of every worker")
    print(config.to_yaml(), end="")
    print("# --- environment of every worker")
    references = remote_env.token_files(os.environ, plan.folder / "tokens")
    for name, value in (*plan.variables.items(), *((variable, path) for path, (variable, _) in references.items())):
        print(f"{name}={shlex.quote(str(value))}")
    print("# --- commands")
    if not reference.is_there(Path(config.torch_dist)):
        output = reference.hidden(Path(config.torch_dist))
        print(_shell(reference.conversion_command(config, plan.checkout, plan.model_arguments, output)))
    if not config.ray_address:
        print(_shell(head_command(config, plan.layout.gpus_per_node)))
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
def main() -> int:
    parser = argparse.ArgumentParser(description="Train a memory agent in slime or vime.")
    parser.add_argument("--dry-run", action="store_true", help="print config and commands, start nothing")
    options = parser.parse_args()
    start_logging()
    stop_on_signals()
    plan = make_plan(Config.from_env())
    found = problems(plan.config, plan.checkout, plan.layout, plan.size, plan.python_path, PACK)
    if options.dry_run:
        print_plan(plan)
    for line in found:
        print(f"error: {line}", file=sys.stderr)
    if found:
        return 1
    if not options.dry_run:
        with save_lock(plan.config.save_path):
            launch(plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
