"""The command line of the host's ``train.py``, group by group.

Both hosts take Megatron's flags, their own, and their engine's with its name in front; most of their own are the same.
They ignore flags they do not know, so ``tests/hooks/test_hosts.py`` has both hosts' real parsers read what is made
here.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from shlex import quote

from ..config import Config, ConfigError
from ..data.training_file import is_curriculum, is_sharded, row_slice, without_slice
from ..system.plugins import shell_words
from .layout import ENGINE_MEMORY, Layout

_BUSY_ENGINE = 32
"""Trajectories that keep one engine busy."""


def build_arguments(config: Config, model: list[str], layout: Layout, settings: Path) -> dict[str, list[str]]:
    """Flags by group, in order.

    Args:
        config: with absolute paths, HOST and ``engine_max_len`` settled.
        settings: the YAML that carries ``config`` to every worker.
    """
    run, longest_reply = quote(config.save_path), max(config.mem_max_memory, config.mem_max_final)
    sampling = f"--rollout-num-gpus {layout.rollout_gpus} --rollout-num-gpus-per-engine {layout.engine_gpus}"
    sets = shlex.join(word for path in config.eval_files for word in (Path(path).stem, path))
    texts = {
        # Without a checkpoint in the run's own folder hosts start from --ref-load.
        "checkpoint": f"""
            --hf-checkpoint {quote(config.hf_ckpt)} --ref-load {quote(config.torch_dist)}
            --load {run} --save {run} --save-interval {config.save_interval}""",
        "hooks": _hooks(config, layout, settings),
        "rollout": _rollout(config, longest_reply),
        "loss": _SFT if config.supervised else _grpo(config),
        # Megatron refuses a checkpoint of another schedule, and hosts size theirs by the rollouts: without the
        # override no run could be continued with another NUM_ROLLOUT, LR or batch.
        "optimizer": f"""
            --optimizer adam --lr {config.lr:g} --lr-decay-style constant
            --lr-warmup-iters {config.lr_warmup_steps} --override-opt-param-scheduler --clip-grad {config.clip_grad:g}
            --weight-decay {config.weight_decay:g} --adam-beta1 0.9 --adam-beta2 {config.adam_beta2:g}""",
        # Rows of one trajectory differ in number and length, which only dynamic batches can divide.
        "performance": f"""
            --tensor-model-parallel-size {layout.tp} --pipeline-model-parallel-size {layout.pp}
            --context-parallel-size {layout.cp} --expert-model-parallel-size 1 --expert-tensor-parallel-size 1
            --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
            --use-dynamic-batch-size --max-tokens-per-gpu {layout.tokens_per_gpu} --balance-data
            --attention-dropout 0.0 --hidden-dropout 0.0
            --accumulate-allreduce-grads-in-fp32 --attention-softmax-in-fp32 --attention-backend flash
            {"--sequence-parallel" if layout.tp > 1 else ""}""",
        "gpus": f"""
            --actor-num-nodes {layout.train_nodes} --actor-num-gpus-per-node {layout.train_per_node}
            {sampling if layout.rollout_gpus else ""}
            --num-gpus-per-node {layout.gpus_per_node} {"--colocate" if layout.colocate else ""}""",
        "engine": "" if config.supervised else _engine(config),
        "asynchronous": _asynchronous(config, layout) if config.fully_async and layout.rollout_gpus else "",
        # Each file of EVAL_DATA is a set by its own name.
        "evaluation": f"""
            --eval-interval {config.eval_interval} --eval-prompt-data {sets}
            --n-samples-per-eval-prompt {config.eval_samples}
            --eval-temperature {config.eval_temperature:g} --eval-top-p {config.eval_top_p:g}
            --eval-max-response-len {longest_reply}""" if config.eval_interval else "",
        "tracker": _tracker(config),
    }
    groups = {"model": model} | {name: shlex.split(text) for name, text in texts.items()}
    groups["host_args"] = shell_words("HOST_ARGS", config.host_args)  # the last one wins
    return {name: group for name, group in groups.items() if group}


def _hooks(config: Config, layout: Layout, settings: Path) -> str:
    text = f"""
        --custom-generate-function-path mem_agent.rollout.generate
        --custom-rm-path mem_agent.rollout.reward_func
        --custom-convert-samples-to-train-data-path mem_agent.custom_convert.custom_convert
        --eval-function-path mem_agent.rollout.evaluate
        --custom-rollout-log-function-path mem_agent.rollout.log_rollout
        --custom-eval-rollout-log-function-path mem_agent.rollout.log_eval
        --custom-config-path {quote(str(settings))}
    """
    if config.supervised:
        text += " --rollout-function-path mem_agent.rollout.rollout_of_given_replies"
    elif config.dynamic_filter == "nonzero_std":
        text += " --dynamic-sampling-filter-path mem_agent.rollout.nonzero_std"
    if config.fully_async:
        text += " --rollout-function-path mem_agent.rollout.rollout_fully_async"
    if config.compares_with_reference and not layout.colocate:  # see hooks.host
        text += " --custom-megatron-init-path mem_agent.rollout.keep_policy"
    return text


def _rollout(config: Config, longest_reply: int) -> str:
    """Hosts hand on a row's ``prompt`` as it is, a list of messages too, as long as they are not told to render it."""
    over_sampling = config.over_sampling_batch_size
    in_file_order = is_curriculum(config.train_data) if config.rollout_shuffle is None else not config.rollout_shuffle
    return f"""
        --prompt-data {quote(prompt_file(config))} --input-key prompt --label-key label --metadata-key metadata
        {"" if in_file_order else "--rollout-shuffle"} --rollout-seed {config.seed} --seed {config.seed}
        --num-rollout {config.num_rollout} --rollout-batch-size {config.rollout_batch_size}
        --n-samples-per-prompt {config.group_size} --global-batch-size {config.step_trajectories}
        --num-steps-per-rollout {config.trajectories_per_rollout // config.step_trajectories}
        --rollout-max-response-len {longest_reply}
        --rollout-temperature {config.temperature:g} --rollout-top-p 1.0
        {f"--over-sampling-batch-size {over_sampling}" if over_sampling else ""}
    """


def prompt_file(config: Config) -> str:
    """The one file that the host reads: TRAIN_DATA, or the copy that ``launch.join_shards`` makes of shards.

    Raises:
        ConfigError: it is a slice of shards.
    """
    if not is_sharded(without_slice(config.train_data)):
        return config.train_data
    if row_slice(config.train_data) != slice(None):
        raise ConfigError(f"TRAIN_DATA={config.train_data!r}: a slice is of one file; name a file, or all shards")
    return str(Path(config.save_path) / "launch" / "train.parquet")


_SFT = "--loss-type sft_loss --calculate-per-token-loss --disable-compute-advantages-and-returns --debug-train-only"
"""The hosts' cross entropy, mean over tokens, without engines, log-probs and advantages. Their mean counts a fully
masked row as one token.
"""


def _grpo(config: Config) -> str:
    kl = f"--use-kl-loss --kl-loss-coef {config.kl_coef:g} --kl-loss-type low_var_kl" if config.kl_coef > 0 else ""
    return f"""
        --advantage-estimator grpo --entropy-coef 0.0
        --eps-clip {config.eps_clip:g} --eps-clip-high {config.eps_clip_high:g}
        {f"--eps-clip-c {config.eps_clip_c:g}" if config.eps_clip_c else ""}
        {kl}
        {"--calculate-per-token-loss" if config.loss_agg == "token" else ""}
        {"--use-tis" if config.fully_async else ""}
    """


def _engine(config: Config) -> str:
    """Engines, and a router that keeps siblings at one engine, where they share the prefix cache.

    slime: ``manual`` keeps them by their ``X-SMG-Routing-Key``; ``min_load`` chooses that engine, by the requests in
    flight. Measured with four workers and 32 groups of 8: the default policy spreads each group over 3.8 engines, this
    over 1.

    vime: by their ``x-session-id``. It offers no policy that keeps a key and looks at load: ``--vllm-router-policy``
    has none, and overwrites what ``--router-policy`` says. With a key for each chunk an uneven split lasts a chunk and
    not a rollout.
    """
    if config.host == "slime":
        return (f"--sglang-mem-fraction-static {ENGINE_MEMORY:g} --sglang-context-length {config.engine_max_len} "
                "--router-policy manual --router-assignment-mode min_load")
    return (f"--vllm-gpu-memory-utilization {ENGINE_MEMORY:g} --vllm-max-model-len {config.engine_max_len} "
            "--vllm-router-policy consistent_hash")


def _asynchronous(config: Config, layout: Layout) -> str:
    """Bound how old samples get, by what a rollout consumes or what keeps the engines busy.

    The host's one number for each engine limits the trajectories being sampled, and the groups its worker has drawn.
    slime's worker stops as well when that many finished groups wait: with twice the batch at most two rollouts do. The
    hosts' own 512 could be dozens. vime's has no such stop, and rollouts drop what they do not take; so there
    it is a batch and a quarter.
    """
    batch, engines = config.rollout_batch_size, layout.rollout_gpus // layout.engine_gpus
    groups = 2 * batch if config.host == "slime" else batch + -(-batch // 4)
    engine = "sglang" if config.host == "slime" else "vllm"
    return f"--{engine}-server-concurrency {max(-(-groups // engines), _BUSY_ENGINE)}"


def _tracker(config: Config) -> str:
    name = quote(Path(config.save_path).name)
    if config.tracker == "wandb":
        project = quote(os.environ.get("WANDB_PROJECT", "mem_agent"))
        return f"--use-wandb --wandb-project {project} --wandb-group {name}"
    if config.tracker == "tensorboard":
        return f"--use-tensorboard --tb-project-name mem_agent --tb-experiment-name {name}"
    return ""
