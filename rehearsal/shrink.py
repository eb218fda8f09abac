"""How a cluster's settings become a laptop's. The rule, in full:

1. No size grows. A model of at most 20 million weights, its budgets and its batch stay as they are.
2. A larger one becomes one of the same family with random weights: 2 layers, hidden 128, 4 heads, the user's own
   vocabulary. As such a model earns nothing, a coin is added to the reward (so groups are mixed and gradients are not
   zero), and LR is 1e-3 (so that weights move).
3. With it a chunk and a question have at most 128 tokens, memory and answer 32, a training document 3 chunks. An agent
   that reads no document has 512 tokens for the question and 128 for its reply.
4. With it a rollout is at most 2 documents of 4 trajectories each, in at most 2 steps.
5. There is no warm-up: its first step moves nothing, and of two rollouts each should sample from other weights.
6. Of TP, PP and data parallelism the first that the cluster has above 1 is 2, on two trainer ranks; data parallelism
   is 4 where --ranks allows it and a step divides. A micro-batch has the tokens of the longest row.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..agents import agent_class
from ..checkpoints.hf_folder import copy_model_files
from ..config import Config
from ..hooks.rewards import load_reward
from ..launch.layout import Layout
from ..rewards.reward import Added, Answered, Parts, Reward

SMALL_MODEL = 20e6
"""Weights of a model that stays as it is."""
_READING = {"mem_chunk_tokens": 128, "mem_max_question": 128, "mem_max_memory": 32, "mem_max_final": 32,
            "mem_max_chunks": 3}
_ANSWERING = {"mem_max_question": 512, "mem_max_final": 128}
_DOCUMENTS, _SIBLINGS, _STEPS = 2, 4, 2
_TINY = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 32, "dtype": "float32"}
"""Heads of 32: vLLM's attention on a CPU has kernels for multiples of 32 alone."""
_UNUSED = ("layer_types", "torch_dtype", "pad_token_id")


def shrink(config: Config) -> Config:
    """Rules 2 to 4 on the settings of the cluster."""
    budgets = _READING if agent_class(config).needs_document else _ANSWERING
    smaller = {name: min(getattr(config, name), most) for name, most in budgets.items()}
    documents, siblings = min(config.rollout_batch_size, _DOCUMENTS), min(config.n_samples_per_prompt, _SIBLINGS)
    steps = config.trajectories_per_rollout // config.step_trajectories
    steps = min(steps, _STEPS) if documents * siblings % (2 * _STEPS) == 0 else 1  # two ranks share each step
    return config.replace(
        **smaller, engine_max_len=0, lr=1e-3, rollout_batch_size=documents, n_samples_per_prompt=siblings,
        global_batch_size=documents * siblings // steps,
        over_sampling_batch_size=min(config.over_sampling_batch_size, 2 * documents),
        reward="mem_agent.rehearsal.shrink:Coin",
        reward_args=shlex.join([f"reward={config.reward}", f"settings={config.reward_args}"]),
    )


def shrink_layout(cluster: Layout, ranks: int, longest_row: int, step: int) -> Layout:
    """Rule 6 on the cluster's layout: one engine, no colocation.

    Args:
        ranks: trainer ranks at most. The tiny model divides by two alone: it has 2 layers and 2 key-value heads.
        longest_row: its tokens.
        step: trajectories of an optimizer step, which data-parallel ranks share evenly.
    """
    tp, pp = min(cluster.tp, ranks, 2), min(cluster.pp, ranks, 2)
    pp = pp if tp == 1 else 1
    alike = min(cluster.data_parallel, ranks) if tp == pp == 1 else 1
    dp = next(n for n in (4, 2, 1) if n <= alike and step % n == 0)
    return replace(
        cluster, tp=tp, pp=pp, cp=1, tokens_per_gpu=min(cluster.tokens_per_gpu, longest_row), engine_gpus=1,
        colocate=False, train_nodes=1, train_per_node=tp * pp * dp, rollout_gpus=1, gpus_per_node=tp * pp * dp + 1,
    )


def write_tiny_model(content: Mapping[str, Any], tokenizer: Path, folder: Path) -> dict[str, Any]:
    """Write the random model that stands for the one with ``content`` as its ``config.json``; its own is given back,
    and its weights are a function of that alone.

    Args:
        tokenizer: the folder whose tokenizer it gets.
    """
    import torch  # here, as each worker loads the coin
    from transformers import AutoConfig, AutoModelForCausalLM

    tiny = {key: value for key, value in {**content, **_TINY}.items() if key not in _UNUSED}
    folder.mkdir(parents=True)
    copy_model_files(tokenizer, folder)
    (folder / "config.json").write_text(json.dumps(tiny, indent=1))
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    model.save_pretrained(folder)
    return tiny


# --- a reward --------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class OwnReward:
    reward: str = "task"
    """REWARD as the user set it."""
    settings: str = ""
    """REWARD_ARGS as the user set it."""


class Toss(Reward):
    async def parts(self, answer: Answered) -> Parts:
        return {**answer.parts, "coin": float(hashlib.sha256(answer.reply.encode()).digest()[0] % 2)}


class Coin(Added):
    """The user's own reward, and a coin, which falls by the reply's text: so it is the same in a replay.

    A model with random weights answers nothing right: all advantages would be 0, no weight would ever change, and a
    filter for mixed groups would wait for ever.
    """

    Settings = OwnReward

    def __init__(self, settings: OwnReward) -> None:
        asks_elsewhere = settings.reward == "answer_utility"  # random weights name no ranking to ask about
        own = Config() if asks_elsewhere else Config(reward=settings.reward, reward_args=settings.settings)
        super().__init__(load_reward(own), Toss(settings))
