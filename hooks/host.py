"""The host on one page: all that is read of its ``args`` and of its modules, in slime, vime and the embedded host.

``HostArgs(args)`` is the only place that looks at a host's namespace. Its ``getattr`` defaults are the hosts'
contract: each host offers only its own names, and their plugin tests call hooks with an attribute-less ``args``.

``keep_policy`` is the hook in a host's trainer processes: a continued run sends its engines the policy first, not the
reference::

    --custom-megatron-init-path mem_agent.rollout.keep_policy

slime and vime load the reference into the model after the policy, and bring the policy back only where trainer and
engines share GPUs. Elsewhere the first weight update of a continued run would send the reference, and a whole rollout
would be sampled from it. The hosts call this hook in each trainer process before they load anything.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..config import Config, ConfigError
from ..data.training_file import without_slice
from ..rollout_client import Dialect, Endpoint

_ROLLOUTS = ("slime.rollout.sglang_rollout", "vime.rollout.vllm_rollout")
"""The hosts' own rollout modules."""
_TRAINERS = ("slime.backends.megatron_utils.actor", "vime.backends.megatron_utils.actor")
_LOADS = "load_other_checkpoint"
"""What the hosts' actor calls to load another model's weights into the place of the policy's."""
_ROUTERS = {Dialect.VLLM: "vllm_max_model_len", Dialect.SGLANG: "sglang_context_length"}
"""For each router, the argument that holds its engines' context length."""


class HostArgs:
    """What the hooks use of a host's ``args``, and who uses it."""

    def __init__(self, args: Any) -> None:
        """Raises ConfigError where no trajectory can be generated under these arguments."""
        if getattr(args, "partial_rollout", None):
            raise ConfigError("--partial-rollout: a multi-turn trajectory cannot be continued; leave it off")
        if getattr(args, "apply_chat_template", None):
            raise ConfigError("--apply-chat-template would make the rendered chat the question; leave it off")
        self._args = args
        self.config = config = config_of(args)
        """``mem_agent``, put there by ``--custom-config-path``; the environment where it is absent. All hooks."""
        self.hf_checkpoint: str = getattr(args, "hf_checkpoint", "")
        """Folder of the tokenizer. ``generate``."""
        template = getattr(args, "apply_chat_template_kwargs", None) or {}
        self.chat_template_kwargs = json.dumps(template, sort_keys=True)
        """``apply_chat_template_kwargs`` as JSON. ``generate``."""
        self.prompt_data: str = getattr(args, "prompt_data", None) or config.train_data
        """The training file, beside which documents by id may lie. ``generate``."""
        self.save: str = getattr(args, "save", None) or config.save_path
        """The run's folder, where the state of rewards is kept. ``log_rollout``, the converter."""
        self.reward_key: str = getattr(args, "reward_key", None) or ""
        """Where rewards are dicts, the entry that trains; empty where they are numbers. All hooks."""
        self.eval_reward_key: str = getattr(args, "eval_reward_key", None) or self.reward_key
        """The entry that evaluation reports. ``log_eval``."""
        self.step_trajectories: int = getattr(args, "global_batch_size", None) or 0
        """``global_batch_size``; 0: all of a rollout. The converter."""
        self.row_multiple = _row_multiple(args)
        """Rows of an optimizer step must be a multiple of this for the host's scheduler. The converter."""
        self.rollout_groups: int = getattr(args, "rollout_batch_size", None) or config.rollout_batch_size
        """``nonzero_std``."""
        self.group_size: int = getattr(args, "n_samples_per_prompt", None) or config.group_size
        """``generate``."""

    @property
    def router(self) -> Endpoint:
        """``mem_agent_endpoint``, else ``vllm_router_ip`` and ``vllm_router_port``, else SGLang's. Its length is the
        engine's, else ``rollout_max_context_len``. ``generate``. Raises ConfigError where the host names none.
        """
        return getattr(self._args, "mem_agent_endpoint", None) or _endpoint(self._args, self.config)


def config_of(args: Any) -> Config:
    """The config that the host carries, else that of the environment."""
    carried = getattr(args, "mem_agent", None)
    if isinstance(carried, Config):
        return carried
    return Config.from_env(os.environ) if carried is None else Config.from_mapping(carried)


def embedded_args(config: Config, endpoint: Endpoint | None) -> SimpleNamespace:
    """The namespace that hooks see in the embedded host and in evaluation, under the hosts' names."""
    return SimpleNamespace(
        hf_checkpoint=config.hf_ckpt, prompt_data=config.train_data, save=config.save_path,
        global_batch_size=config.step_trajectories, mem_agent=config, mem_agent_endpoint=endpoint)


def _endpoint(args: Any, config: Config) -> Endpoint:
    for dialect, length in _ROUTERS.items():
        ip, port = (getattr(args, f"{dialect}_router_{part}", None) for part in ("ip", "port"))
        if ip and port:
            # vime sizes its engines by ``rollout_max_context_len`` where the engine's own flag is not set.
            offered = getattr(args, length, None) or getattr(args, "rollout_max_context_len", None)
            host = f"[{ip}]" if ":" in ip and not ip.startswith("[") else ip
            # vime updates weights while requests wait in the engine; vLLM then refuses to drop its prefix cache, with
            # a status that vime takes for success. A group's number is new with each draw of its document, so with a
            # salt of its own it meets no block older than itself. slime ends all requests first, and flushes until it
            # succeeds.
            salted = dialect is Dialect.VLLM and config.fully_async
            return Endpoint(dialect, f"http://{host}:{port}", int(offered or 0), salted=salted)
    raise ConfigError("no router: args has neither vllm_router_ip/port nor sglang_router_ip/port")


def _row_multiple(args: Any) -> int:
    ranks = getattr(args, "data_parallel_size", None) or 1
    if (getattr(args, "virtual_pipeline_model_parallel_size", None) or 1) > 1:
        # Megatron's rule where the group is not given: one micro-batch for each pipeline stage.
        stages = getattr(args, "pipeline_model_parallel_size", None) or 1
        ranks *= getattr(args, "microbatch_group_size_per_vp_stage", None) or stages
    if not getattr(args, "use_dynamic_batch_size", True):
        ranks *= getattr(args, "micro_batch_size", None) or 1
    return ranks


def evaluation_sampling(config: Config, seed: int | None) -> dict[str, Any]:
    """Sampling parameters of an evaluation's request, for ``sampling_of``."""
    return {"temperature": config.eval_temperature, "top_p": config.eval_top_p, "top_k": -1, "seed": seed}


def sampling_of(params: Mapping[str, Any], eos_ids: Sequence[int]) -> dict[str, Any]:
    """A host's sampling parameters as ``rollout_client`` reads them: the model's ends of a turn among the stop tokens,
    one name for the seed (SGLang hosts call it ``sampling_seed``), no ``top_k`` of 0 (some hosts switch it off so)."""
    stops = dict.fromkeys([*(params.get("stop_token_ids") or []), *eos_ids])
    seed = params["seed"] if params.get("seed") is not None else params.get("sampling_seed")
    return {**params, "stop_token_ids": list(stops), "seed": seed, "top_k": params.get("top_k") or None}


# --- the host's modules -------------------------------------------------------------------------------------------


def is_aborting(args: Any) -> bool:
    """Whether the host has asked its rollouts to end.

    slime and vime keep this in ``GenerateState(args).aborted``. The class is looked up through its module at each
    call because the hosts' own tests replace it, and only where the host itself has already loaded that module.
    """
    for name in _ROLLOUTS:
        if name in sys.modules:
            return bool(sys.modules[name].GenerateState(args).aborted)
    return False


def evaluate(args: Any, rollout_id: int, data_source: Any, evaluation: bool = True) -> Any:
    """One evaluation by the host's own rollout function, through the same ``generate`` hook as training.

    Hosts give their evaluation log hook the ``metrics`` of the evaluation function, which is None in theirs: whatever
    the hook adds is lost. With an empty dict in its place the numbers of ``rollout.log_eval`` reach the tracker.
    """
    return _with_metrics(_host_module("").generate_rollout(args, rollout_id, data_source, evaluation=True))


def rollout_fully_async(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """One rollout by the host's fully asynchronous function, whose worker samples on while the trainer trains.

    It returns bare groups, after which hosts give their log hook None: no number of ``rollout.log_rollout`` would
    reach the tracker.
    """
    function = _host_module("fully_async_rollout").generate_rollout_fully_async
    call = _host_module("base_types").call_rollout_fn
    return _with_metrics(call(function, args, rollout_id, data_source, evaluation=evaluation))


def as_output(groups: list[list[Any]]) -> Any:
    """What a training rollout function returns, with room for metrics of ours."""
    return _host_module("base_types").RolloutFnTrainOutput(samples=groups, metrics={})


def _with_metrics(output: Any) -> Any:
    output.metrics = {} if output.metrics is None else output.metrics
    return output


def _host_module(name: str) -> Any:
    """A module beside the rollout of the host that runs this process, or that rollout module itself: of the host that
    is loaded, else of one that is installed."""
    there = [module for module in _ROLLOUTS if module in sys.modules] or [
        module for module in _ROLLOUTS if importlib.util.find_spec(module.partition(".")[0])]
    if not there:
        raise ModuleNotFoundError(f"none of {', '.join(_ROLLOUTS)} can be imported; this hook needs slime or vime")
    return importlib.import_module(f"{there[0].rpartition('.')[0]}.{name}" if name else there[0])


def keep_policy(args: Any) -> None:
    """Make this process's actor switch back to the policy's weights whenever it has loaded others."""
    for module in _TRAINERS:
        if module in sys.modules:
            actor = sys.modules[module].MegatronTrainRayActor
            for made in (actor, *actor.__subclasses__()):
                if _LOADS in vars(made):
                    _return_after_loading(made)


@functools.cache
def _return_after_loading(actor: type) -> None:
    """Wrap the method that this very class has: Ray makes a subclass of an actor with a wrapper for each method."""
    load = vars(actor)[_LOADS]

    @functools.wraps(load)
    def load_and_return(self: Any, *args: Any, **options: Any) -> Any:
        result = load(self, *args, **options)
        self._switch_model("actor")
        return result

    setattr(actor, _LOADS, load_and_return)


# --- settings that a host cannot follow -----------------------------------------------------------------------------

OF_HOSTS = ("host_root", "num_nodes", "num_gpus", "fully_async", "host_args")
"""Fields that slime and vime alone read."""
EMBEDDED = ("train_procs", "train_dtype", "lora_rank", "num_engines", "engine_args")
"""Fields that the embedded host alone reads; HOST_ARGS takes the flags of the others."""


def refuse_ignored(config: Config, host: str) -> None:
    """Raises ConfigError where a setting that ``host`` (local, slime or vime) does not read is not the default, lest
    anybody think it had an effect.

    ``refuse_ignored(Config(fully_async=True), "local")``: "FULLY_ASYNC=True does nothing with HOST=local ...".
    ``MASTER_ADDR``, ``RAY_ADDRESS`` and ``MEGATRON_ROOT`` are in neither table: torchrun, Ray and Megatron's own users
    export them, and where a host reads none of them they mean nothing.
    """
    default = Config()
    for name in OF_HOSTS if host == "local" else EMBEDDED:
        if (value := getattr(config, name)) != getattr(default, name):
            instead = "" if host == "local" else ", or give the host's own flags in HOST_ARGS"
            raise ConfigError(f"{name.upper()}={value} does nothing with HOST={host}; leave it out{instead}")


def check_tracker(config: Config) -> None:
    """Raises ConfigError where the library of TRACKER is not installed. Nothing is imported."""
    if config.tracker != "none" and importlib.util.find_spec(config.tracker) is None:
        raise ConfigError(f"TRACKER={config.tracker}: pip install {config.tracker}, or set TRACKER=none")


def check_save_path(config: Config) -> None:
    """Raises ConfigError where it cannot be written."""
    folder = Path(config.save_path).absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError(f"SAVE_PATH={config.save_path!r}: {there} cannot be written; set another")


def check_evaluations(config: Config) -> None:
    """Raises ConfigError where what EVAL_INTERVAL asks for is not there, and where EVAL_DATA is never used.

    DATA_ROOT's questions are asked by the embedded host alone.
    """
    embedded = config.host in ("auto", "local")
    if config.eval_interval and not config.eval_files and not (embedded and config.data_root):
        more = ", or DATA_ROOT, a folder of eval_<length>.json" if embedded else ""
        raise ConfigError(f"EVAL_INTERVAL={config.eval_interval} needs EVAL_DATA, files of prepare_data.py{more}")
    if config.eval_files and not config.eval_interval:
        raise ConfigError(f"EVAL_DATA={config.eval_data!r} is never used with EVAL_INTERVAL=0; set both or neither")
    for file in config.eval_files:
        if not without_slice(file).is_file():
            raise ConfigError(f"EVAL_DATA: {file}: no such file; make it with prepare_data.py")
