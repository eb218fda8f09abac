"""The host on one page: all that is read of its ``args`` and of its modules, in slime, vime and the embedded host.

``HostArgs.of(args)`` is the only place that looks at a host's namespace. Its ``getattr`` defaults are the hosts'
contract: each host offers only its own names, and their plugin tests call hooks with an attribute-less ``args``.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

from ..client.engine_api import Dialect, Endpoint
from ..config import Config, ConfigError

_ROLLOUTS = ("slime.rollout.sglang_rollout", "vime.rollout.vllm_rollout")
"""The hosts' own rollout modules."""
_TRAINERS = ("slime.backends.megatron_utils.actor", "vime.backends.megatron_utils.actor")
_ROUTERS = ((Dialect.VLLM, "vllm_max_model_len"), (Dialect.SGLANG, "sglang_context_length"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostArgs:
    """What the hooks use of a host's ``args``, and who uses it."""

    config: Config
    """``mem_agent``, put there by ``--custom-config-path``; the environment where it is absent. All hooks."""
    hf_checkpoint: str
    """Folder of the tokenizer. ``generate``."""
    chat_template_kwargs: str
    """``apply_chat_template_kwargs`` as JSON. ``generate``."""
    prompt_data: str
    """The training file, beside which documents by id may lie. ``generate``."""
    endpoint: Endpoint | None
    """The router: ``mem_agent_endpoint``, else ``vllm_router_ip`` and ``vllm_router_port``, else SGLang's. Its length
    is MEM_MAX_PROMPT_TOKENS, else the engine's, else ``rollout_max_context_len``. ``generate``."""
    answer_url: str
    """Address of the frozen chat model that the host serves beside the policy: ``mem_agent_answer_url``, or that of
    the model ``answer`` in ``sglang_model_routers`` or ``vllm_model_routers``; empty if it serves none.
    ``reward_func``."""
    save: str
    """The run's folder, where the state of rewards is kept. ``log_rollout``, the converter."""
    reward_key: str
    """Where rewards are dicts, the entry that trains; empty where they are numbers. All hooks."""
    eval_reward_key: str
    """The entry that evaluation reports. ``log_eval``."""
    step_trajectories: int
    """``global_batch_size``; 0: all of a rollout. The converter."""
    row_multiple: int
    """Rows of an optimizer step must be a multiple of this for the host's scheduler. The converter."""
    rollout_groups: int
    """``rollout_batch_size``. Open groups."""
    generated_groups: int
    """``over_sampling_batch_size``, what a host draws at once; the dynamic filter's cap counts in these."""
    group_size: int
    """``n_samples_per_prompt``. Open groups."""
    eval_samples: int
    """``n_samples_per_eval_prompt``. ``log_eval``."""
    samples_ahead: bool
    """More groups are sampled than the next batch is sure to take. ``generate``."""
    drops_groups: bool
    """A rollout throws away what has finished beyond its size. Open groups."""
    refused: str
    """Why no trajectory can be generated under these arguments; empty if they are fine. ``generate``."""

    @classmethod
    def of(cls, args: Any) -> Self:
        config = config_of(args)
        reward_key = getattr(args, "reward_key", None) or ""
        return cls(
            config=config,
            hf_checkpoint=getattr(args, "hf_checkpoint", ""),
            chat_template_kwargs=json.dumps(getattr(args, "apply_chat_template_kwargs", None) or {}, sort_keys=True),
            prompt_data=getattr(args, "prompt_data", None) or config.train_data,
            endpoint=_endpoint(args, config),
            answer_url=_answer_url(args),
            save=getattr(args, "save", None) or config.save_path,
            reward_key=reward_key,
            eval_reward_key=getattr(args, "eval_reward_key", None) or reward_key,
            step_trajectories=getattr(args, "global_batch_size", None) or 0,
            row_multiple=_row_multiple(args),
            rollout_groups=getattr(args, "rollout_batch_size", None) or config.rollout_batch_size,
            generated_groups=getattr(args, "over_sampling_batch_size", None) or config.groups_in_flight,
            group_size=getattr(args, "n_samples_per_prompt", None) or config.group_size,
            eval_samples=getattr(args, "n_samples_per_eval_prompt", None) or 1,
            samples_ahead=config.fully_async or config.groups_in_flight > config.rollout_batch_size,
            drops_groups=config.fully_async and getattr(args, "vllm_router_ip", None) is not None,
            refused=_refused(args),
        )

    @property
    def router(self) -> Endpoint:
        """Raises ConfigError where the host names none."""
        if self.endpoint is None:
            raise ConfigError("no router: args has neither vllm_router_ip/port nor sglang_router_ip/port")
        return self.endpoint


def config_of(args: Any) -> Config:
    """The config that the host carries, else that of the environment."""
    carried = getattr(args, "mem_agent", None)
    if isinstance(carried, Config):
        return carried
    return Config.cached(os.environ if carried is None else carried)


def embedded_args(config: Config, endpoint: Endpoint | None, answer_url: str = "") -> SimpleNamespace:
    """The namespace that hooks see in the embedded host and in evaluation, under the hosts' names."""
    return SimpleNamespace(
        hf_checkpoint=config.hf_ckpt,
        prompt_data=config.train_data,
        global_batch_size=config.step_trajectories,
        save=config.save_path,
        mem_agent=config,
        mem_agent_endpoint=endpoint,
        mem_agent_answer_url=answer_url,
    )


def _endpoint(args: Any, config: Config) -> Endpoint | None:
    ready = getattr(args, "mem_agent_endpoint", None)
    if ready is not None:
        return ready
    for dialect, length in _ROUTERS:
        ip = getattr(args, f"{dialect}_router_ip", None)
        port = getattr(args, f"{dialect}_router_port", None)
        if ip and port:
            # vime sizes its engines by ``rollout_max_context_len`` where the engine's own flag is not set.
            offered = getattr(args, length, None) or getattr(args, "rollout_max_context_len", None)
            length_limit = int(config.mem_max_prompt_tokens or offered or 0)
            return Endpoint(dialect, _http(ip, port), length_limit, salted=_salted(dialect, config))
    return None


ANSWERING = "answer"
"""The name of the frozen chat model among those that a host serves."""


def _answer_url(args: Any) -> str:
    """Hosts' own ``get_model_url`` gives the policy's address for a model that is not there; this gives none."""
    if given := getattr(args, "mem_agent_answer_url", ""):
        return given
    for dialect, _ in _ROUTERS:
        if address := (getattr(args, f"{dialect}_model_routers", None) or {}).get(ANSWERING):
            return _http(*address)
    return ""


def _http(ip: str, port: int) -> str:
    host = f"[{ip}]" if ":" in ip and not ip.startswith("[") else ip
    return f"http://{host}:{port}"


def _salted(dialect: Dialect, config: Config) -> bool:
    """Whether blocks of old weights could serve new groups.

    vime updates weights while requests wait in the engine; vLLM then refuses to drop its prefix cache, with a status
    that vime takes for success. A group's number is new with each draw of its document, so with a salt of its own it
    meets no block older than itself. slime ends all requests first, and repeats the flush until it succeeds.
    """
    return dialect is Dialect.VLLM and config.fully_async


def _refused(args: Any) -> str:
    if getattr(args, "partial_rollout", False):
        return "--partial-rollout: a multi-turn trajectory cannot be continued; leave it off"
    if getattr(args, "apply_chat_template", False):
        return "--apply-chat-template would make the rendered chat the question; leave it off"
    if getattr(args, "multimodal_keys", None):
        return "--multimodal-keys: agents show text alone; leave it off"
    return ""


def _row_multiple(args: Any) -> int:
    ranks = getattr(args, "data_parallel_size", None) or 1
    if (getattr(args, "virtual_pipeline_model_parallel_size", None) or 1) > 1:
        # Megatron's rule where the group is not given: one micro-batch for each pipeline stage.
        stages = getattr(args, "pipeline_model_parallel_size", None) or 1
        ranks *= getattr(args, "microbatch_group_size_per_vp_stage", None) or stages
    if not getattr(args, "use_dynamic_batch_size", True):
        ranks *= getattr(args, "micro_batch_size", None) or 1
    return ranks


# --- the host's modules -------------------------------------------------------------------------------------------


def is_aborting(args: Any) -> bool:
    """Whether the host has asked its rollouts to end.

    slime and vime keep this in ``GenerateState(args).aborted``. The class is looked up through its module at each
    call because the hosts' own tests replace it, and only where the host itself has already loaded that module.
    """
    for name in _ROLLOUTS:
        module = sys.modules.get(name)
        if module is not None:
            return bool(module.GenerateState(args).aborted)
    return False


def trainer_actors() -> list[type]:
    """The class of the trainer that this process runs; none where no host is loaded."""
    return [sys.modules[name].MegatronTrainRayActor for name in _TRAINERS if name in sys.modules]


def evaluate_in_host(args: Any, rollout_id: int, data_source: Any) -> Any:
    """One evaluation by the host's own rollout function, with room for metrics of ours.

    Hosts give their evaluation log hook the ``metrics`` of the evaluation function, which is None in theirs: whatever
    the hook adds is lost. With an empty dict in its place the numbers of ``rollout.log_eval`` reach the tracker.
    """
    return _with_metrics(_host_rollout().generate_rollout(args, rollout_id, data_source, evaluation=True))


def sample_asynchronously(args: Any, rollout_id: int, data_source: Any, evaluation: bool) -> Any:
    """One rollout by the host's own fully asynchronous function, with room for metrics of ours.

    It returns bare groups, after which hosts give their log hook None: no number of ``rollout.log_rollout``, dropped
    groups among them, would reach the tracker.
    """
    package = _host_rollout().__name__.partition(".")[0]
    function = importlib.import_module(f"{package}.rollout.fully_async_rollout").generate_rollout_fully_async
    call = importlib.import_module(f"{package}.rollout.base_types").call_rollout_fn
    return _with_metrics(call(function, args, rollout_id, data_source, evaluation=evaluation))


def as_output(groups: list[list[Any]]) -> Any:
    """What a training rollout function returns, with room for metrics of ours."""
    package = next(name.partition(".")[0] for name in _ROLLOUTS if importlib.util.find_spec(name.partition(".")[0]))
    return importlib.import_module(f"{package}.rollout.base_types").RolloutFnTrainOutput(samples=groups, metrics={})


def _with_metrics(output: Any) -> Any:
    if output.metrics is None:
        output.metrics = {}
    return output


def _host_rollout() -> Any:
    """The rollout module of the host that runs this process: the one it has loaded, else one that is installed."""
    for name in _ROLLOUTS:
        if name in sys.modules:
            return sys.modules[name]
    for name in _ROLLOUTS:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return importlib.import_module(name)
    raise ModuleNotFoundError(f"none of {', '.join(_ROLLOUTS)} can be imported; this hook needs slime or vime")
