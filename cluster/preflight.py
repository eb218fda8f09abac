"""Everything that can be known to go wrong before anything is started, each as one line with its remedy."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..agents import build_agent
from ..agents.chunking import Chunks
from ..agents.interface import Reading
from ..agents.records import Generation, StopReason
from ..agents.vocabulary import Vocabulary
from ..config import Config, ConfigError
from ..data.document_store import without_slice
from ..errors import MemAgentError
from ..host.data_source import DataSource
from .arguments import evaluation_sets
from .checkout import Checkout
from .layout import Layout
from .machine import check_port
from .model_args import ModelSize

HOOK_MODULES = ("rollout", "custom_convert", "rollout_filter", "rollout_log", "rollout_eval")
_BYTES_PER_PARAMETER_ON_DISK = 14
"""bf16 weights, fp32 master weights and two Adam moments."""


def problems(
    config: Config, checkout: Checkout, layout: Layout, model: ModelSize, python_path: str, pack: Path
) -> list[str]:
    """One line for each thing that would stop or spoil the run."""
    checks: list[Callable[[], None]] = [
        lambda: _training_file(config),
        lambda: _evaluation_files(config),
        lambda: _save_path(config, model),
        lambda: _ports(config),
        lambda: _batches(config, layout),
        _ray_can_run,
        lambda: _hooks_import(checkout, python_path, pack),
    ]
    found = []
    for check in checks:
        try:
            check()
        except MemAgentError as error:
            found.append(str(error))
    return found


def longest_turn(config: Config, folder: Path) -> int:
    """Tokens of the longest prompt with its reply, from the agent itself with this model's tokenizer and template.

    Raises:
        ConfigError: the tokenizer or its chat template cannot be used.
    """
    from transformers import AutoTokenizer

    try:
        vocabulary = Vocabulary(AutoTokenizer.from_pretrained(folder, trust_remote_code=True))
    except (OSError, ValueError) as error:
        raise ConfigError(f"HF_CKPT={str(folder)!r}: no usable tokenizer: {' '.join(str(error).split())}") from None
    agent = build_agent(config, vocabulary, {})
    letter = vocabulary.encode_text("a")[0]
    chunk = [letter] * config.mem_chunk_tokens
    state = agent.start(Reading([letter] * config.mem_max_question, Chunks((chunk, chunk), dropped=0)))
    longest = 0
    while requests := agent.requests(state):
        longest = max(longest, *(len(r.prompt_ids) + r.max_new_tokens for r in requests))
        replies = [[letter] * r.max_new_tokens for r in requests]
        state = agent.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.LENGTH) for ids in replies])
    # An agent that keeps tagged parts only has kept nothing of these replies.
    return longest + max(0, config.shown_memory - len(agent.memory(state)))


def check_length(config: Config, longest: int) -> None:
    if longest > config.engine_max_len:
        raise ConfigError(
            f"the longest turn has {longest} tokens (MEM_MAX_QUESTION={config.mem_max_question}, MEM_CHUNK_TOKENS="
            f"{config.mem_chunk_tokens}, memories and reply of MEM_MAX_MEMORY={config.mem_max_memory}, template), the "
            f"engine holds {config.engine_max_len}; lower one of them or raise ENGINE_MAX_LEN"
        )


def _training_file(config: Config) -> None:
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    rows = len(DataSource(without_slice(config.train_data), config.seed, config.n_samples_per_prompt))
    if rows < config.rollout_batch_size:
        raise ConfigError(
            f"{config.train_data}: {rows} rows, a rollout takes ROLLOUT_BATCH_SIZE={config.rollout_batch_size}"
        )


def _evaluation_files(config: Config) -> None:
    if not config.eval_interval:
        return
    sets = evaluation_sets(config)
    if not sets:
        raise ConfigError(f"EVAL_INTERVAL={config.eval_interval} needs EVAL_DATA, files of prepare_data.py")
    names = [name for name, _ in sets]
    if len(set(names)) < len(names):
        raise ConfigError(f"EVAL_DATA={config.eval_data!r}: two files have the same name; metrics go by it")
    for _, path in sets:
        if not without_slice(path).is_file():
            raise ConfigError(f"EVAL_DATA: {path}: no such file; make it with prepare_data.py")


def _save_path(config: Config, model: ModelSize) -> None:
    """Room for all checkpoints of the run: hosts delete none."""
    folder = Path(config.save_path)
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"SAVE_PATH={config.save_path!r}: {folder} is no writable folder; choose another SAVE_PATH")
    there = len(list(Path(config.save_path).glob("iter_*")))
    count = max(1, -(-config.num_rollout // config.save_interval) - there)
    needed = count * _BYTES_PER_PARAMETER_ON_DISK * model.parameters
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"SAVE_PATH={config.save_path!r}: {free / 1e9:.0f} GB free, {count} checkpoints take "
            f"{needed / 1e9:.0f} GB (the host deletes none); raise SAVE_INTERVAL or choose another SAVE_PATH"
        )


def _ports(config: Config) -> None:
    if config.ray_address:
        return
    check_port("RAY_PORT", config.ray_port)
    check_port("RAY_DASHBOARD_PORT", config.ray_dashboard_port)
    check_port("RAY_DASHBOARD_PORT + 1, the agent's,", config.ray_dashboard_port + 1)
    if config.num_nodes > 1 and config.master_addr in ("127.0.0.1", "localhost"):
        raise ConfigError(f"NUM_NODES={config.num_nodes}: set MASTER_ADDR to this machine's address for the others")


def _batches(config: Config, layout: Layout) -> None:
    if config.step_trajectories < layout.data_parallel:
        raise ConfigError(
            f"GLOBAL_BATCH_SIZE={config.step_trajectories} trajectories per step are fewer than the "
            f"{layout.data_parallel} data-parallel ranks; raise it, or TP or CP"
        )


def _ray_can_run() -> None:
    if " " in sys.executable:
        raise ConfigError(f"PYTHON={sys.executable!r}: Ray cannot run from a path with a blank; set PYTHON to another")
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"{sys.executable} has no module ray; set PYTHON to the Python of the host's environment")


def _hooks_import(checkout: Checkout, python_path: str, pack: Path) -> None:
    """Workers must import this pack's hooks, and not a module of the same name.

    The first entry of their PYTHONPATH, a folder with a link to this pack, is not written yet: one like it stands in.
    """
    code = f"import mem_agent, {', '.join(f'mem_agent.{m}' for m in HOOK_MODULES)}; print(mem_agent.__path__[0])"
    with tempfile.TemporaryDirectory() as show:
        (Path(show) / "mem_agent").symlink_to(pack, target_is_directory=True)
        rest = python_path.split(os.pathsep)[1:]
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=checkout.root, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([show, *rest])},
        )
        found = Path((done.stdout.strip().splitlines() or ["."])[-1]).resolve()
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(
            f"{sys.executable} cannot import the hooks: {reason}; install into that Python what is missing of the "
            "dependencies in pyproject.toml, or move what stands in the way"
        )
    if found != pack.resolve():
        raise ConfigError(f"the name mem_agent leads to {found}, not to {pack}; rename or remove that folder")
