"""The one configuration of the pack: every setting is an environment variable and a field under the same name.

``MEM_CHUNK_TOKENS=2048`` is ``config.mem_chunk_tokens``. A config is built once, validated once (by pydantic) and
frozen; no module reads the environment at import. A recipe is a file of ``NAME=value`` lines that RECIPE names; a
variable of the user's own wins over it.

What only one agent, task or reward reads is a setting of its own, not of this model: ``AGENT_ARGS="recall=bm25"`` is
read into that agent's ``Settings``.

A config travels to remote workers inside the host's ``--custom-config-path`` YAML under one key::

    mem_agent: {MEM_CHUNK_TOKENS: 2048, MEM_LAYOUT: section_first}

Hosts copy that key to ``args.mem_agent``. A run leaves the same text as ``SAVE_PATH/mem_agent.yaml``; a converted
model has the part beside its weights that says how its agent reads (``READING``).

``mem-agent config`` prints all settings, those first that are set; ``docs/settings.md`` is the same as a page.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .system.cli import one_line_errors, use_recipe
from .system.errors import ConfigError
from .system.files import write_atomically
from .system.plugins import absolute_name, shell_words

SETTINGS_FILE = "mem_agent.yaml"
"""In the folder of a run: all its settings. In that of a model: those of its agent."""


_GROUPS = {
    "host": "Where things are", "agent": "What is learned", "num_rollout": "How much", "mem_chunk_tokens": "The agent",
    "length": "Evaluation", "loss": "Learning", "train_procs": "The embedded host", "host_root": "slime and vime",
}
"""The first setting of each group, and the group's title."""
READING = ("agent", "agent_args", "task", "task_args", "mem_chunk_tokens", "mem_max_memory", "mem_max_final",
           "mem_max_question", "mem_layout", "mem_prompts", "mem_thinking")
"""How an agent reads and answers, on any machine: a trained model takes these along."""
EVAL_MODE = re.compile(r"^(recurrent|direct|rag(:(?P<retriever>bm25|embedding=.+?))?(:(?P<most>[1-9][0-9]*))?)$")


def _setting(default: Any, meaning: str, **bounds: Any) -> Any:
    return Field(default, description=meaning, **bounds)


class Config(BaseModel):
    """All settings; ``mem-agent config`` lists them. Raises ConfigError where a value is not allowed."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False)

    # where things are
    host: Literal["auto", "local", "slime", "vime"] = _setting(
        "auto", "who trains: auto takes the framework around this pack, else the embedded host")
    hf_ckpt: str = _setting("", "Hugging Face folder or id of the starting weights and the tokenizer")
    torch_dist: str = _setting("", "torch_dist checkpoint of the starting weights; empty: HF_CKPT")
    train_data: str = _setting("", "training rows: JSONL of `mem-agent prepare`, parquet, or a folder of shards")
    save_path: str = _setting("runs/train", "folder for checkpoints, logs and rollouts")
    data_root: str = _setting("", "folder with eval_<length>.json files")
    tracker: Literal["none", "tensorboard", "wandb"] = _setting("none", "where metrics go besides metrics.jsonl")
    trust_remote_code: bool = _setting(False, "run Python code that comes with a model")

    # what is learned
    agent: str = _setting("memagent", "how it reads: memagent, rememr1, gated, parallel, mem1, chat, single, or yours")
    agent_args: str = _setting("", "settings of AGENT, name=value, quoted as in a shell (docs/extending.md)")
    task: str = _setting("qa", "what rows ask: qa, ruler, math, gsm8k, countdown, rank_sessions, or yours; two: a,b")
    task_args: str = _setting("", "settings of the first TASK, as AGENT_ARGS")
    reward: str = _setting("task", "the task's, also by length (cosine) or a chat model (answer_utility), or yours")
    reward_args: str = _setting("", "settings of REWARD, as AGENT_ARGS")
    mem_ir: Literal["no", "knn", "knn+", "entropy", "lexical"] = _setting(
        "no", "added to REWARD: for being like successes (knn), and unlike failures (knn+); or unlike earlier texts")
    mem_ir_args: str = _setting("", "settings of MEM_IR, as AGENT_ARGS (docs/memory_r.md)")
    answer_url: str = _setting("", "the chat model of answer_utility, as BASE_URL; key: ANSWER_KEY or API_KEY")

    # how much
    num_rollout: int = _setting(100, "training rollouts, each of ROLLOUT_BATCH_SIZE documents", ge=1)
    rollout_batch_size: int = _setting(8, "documents per rollout", ge=1)
    n_samples_per_prompt: int = _setting(8, "trajectories per document (the GRPO group)", ge=1)
    global_batch_size: int = _setting(0, "trajectories per optimizer step; 0: all of a rollout", ge=0)
    over_sampling_batch_size: int = _setting(0, "documents in flight; 0: ROLLOUT_BATCH_SIZE", ge=0)
    dynamic_filter: Literal["none", "nonzero_std"] = _setting("none", "drop groups whose rewards are all equal (DAPO)")
    rollout_shuffle: bool | None = _setting(None, "shuffle documents each epoch; unset: unless they are a curriculum")
    save_interval: int = _setting(10, "rollouts between checkpoints; the last one is always saved", ge=1)
    keep_checkpoints: int = _setting(3, "newest checkpoints kept; 0: all", ge=0)
    keep_trajectories: int = _setting(2, "documents of each rollout whose trajectories are kept; 0: none", ge=0)
    seed: int = _setting(1, "seed of data order, sampling and initialisation", ge=0)

    # the agent
    mem_chunk_tokens: int = _setting(2048, "document tokens per memory turn", ge=1)
    mem_max_memory: int = _setting(1024, "tokens of a memory, and of a memory turn's reply", ge=1)
    mem_max_final: int = _setting(256, "tokens of the final answer", ge=1)
    mem_max_chunks: int = _setting(512, "chunks of a document read in training; longer ones lose their centre", ge=1)
    mem_max_question: int = _setting(1024, "tokens of a question (AGENT=chat: all messages); longer ones fail", ge=1)
    mem_layout: Literal["section_first", "memory_first"] = _setting(
        "section_first", "order of section and memory in the prompt; section_first shares more of it")
    mem_prompts: str = _setting("", "YAML file with own templates (docs/extending.md)")
    mem_thinking: bool = _setting(False, "let the model think (chat templates with enable_thinking)")
    mem_concurrency: int = _setting(1024, "requests in flight from one process", ge=1)

    # evaluation
    length: str = _setting("50 100 200", "lengths to evaluate: the <n> of eval_<n>.json, separated by blanks")
    eval_temperature: float = _setting(0.7, "sampling temperature of evaluation; 0: greedy", ge=0)
    eval_top_p: float = _setting(0.95, "nucleus of evaluation sampling", ge=0.01, le=1)
    eval_samples: int = _setting(1, "answers to each question, each with its own seed", ge=1)
    eval_mode: str = _setting(
        "recurrent", "as trained; or one prompt: direct, rag:bm25:10, rag:embedding=ID:10", pattern=EVAL_MODE.pattern)
    eval_interval: int = _setting(0, "rollouts between evaluations while training; 0: none", ge=0)
    eval_data: str = _setting("", "files of `mem-agent prepare` for EVAL_INTERVAL; empty (local): DATA_ROOT's")
    base_url: str = _setting("", "a server to evaluate, http://HOST:PORT or https://HOST/v1; key: OPENAI_API_KEY")
    eval_api: Literal["auto", "generate", "completions", "chat"] = _setting(
        "auto", "what BASE_URL speaks; auto: the first of the others that it answers")

    # learning
    loss: Literal["grpo", "sft"] = _setting("grpo", "GRPO, or cross entropy of replies that rows give (metadata)")
    adv_std: bool = _setting(False, "divide a group's advantages by their standard deviation")
    temperature: float = _setting(1.0, "sampling temperature of training rollouts", ge=1e-3)
    lr: float = _setting(1e-6, "learning rate", ge=0)
    lr_warmup_steps: int = _setting(0, "optimizer steps of linear warm-up; the first has learning rate 0", ge=0)
    weight_decay: float = _setting(0.01, "AdamW weight decay", ge=0)
    adam_beta2: float = _setting(0.98, "AdamW beta2; beta1 is 0.9", ge=0, le=1)
    clip_grad: float = _setting(1.0, "gradient norm clip", ge=0)
    eps_clip: float = _setting(0.2, "lower PPO clip", ge=0, le=1)
    eps_clip_high: float = _setting(0.28, "upper PPO clip", ge=0)
    eps_clip_c: float = _setting(0.0, "dual clip of tokens of negative advantage, above 1; 0: none", ge=0)
    kl_coef: float = _setting(0.001, "weight of the low_var_kl loss; 0 loads no reference model", ge=0)
    loss_agg: Literal["trajectory", "token"] = _setting("trajectory", "token mean of each trajectory, or of all")
    tp: int = _setting(0, "tensor parallel size; 0: 1 in the embedded host, derived in slime and vime", ge=0)
    max_tokens_per_gpu: int = _setting(0, "tokens per packed micro-batch; 0: 4096 (local), else derived", ge=0)

    # the embedded host
    train_procs: int = _setting(0, "trainer processes; 0: what fits model and machine", ge=0)
    train_dtype: Literal["auto", "float32", "bfloat16"] = _setting(
        "auto", "weights, of the engines too; auto: bfloat16 above 50M parameters on a GPU, or where this processor "
        "multiplies it at least 1.5 times as fast; masters, optimizer and loss stay float32")
    lora_rank: int = _setting(0, "train adapters of this rank alone; 0: all weights", ge=0)
    num_engines: int = _setting(1, "inference servers behind the router", ge=1)
    engine_max_len: int = _setting(0, "engine context in tokens; 0: the agent's longest turn", ge=0)
    engine_args: str = _setting("", "further vLLM flags, as in a shell; the last one wins: --max-num-seqs 16")

    # slime and vime
    host_root: str = _setting("", "checkout of slime or vime; empty: the one around this pack, or installed")
    megatron_root: str = _setting("", "checkout of Megatron-LM; empty: /root/Megatron-LM, or installed")
    num_nodes: int = _setting(1, "machines", ge=1)
    num_gpus: int = _setting(0, "GPUs per machine; 0: those found", ge=0)
    master_addr: str = _setting("127.0.0.1", "address of the head machine as the others see it")
    ray_address: str = _setting("", "job address of a running Ray cluster, http://HEAD:8265; empty: start one")
    fully_async: bool = _setting(False, "train while the next rollouts are sampled, on GPUs of their own")
    host_args: str = _setting("", "further arguments of the host's train.py, as in a shell; the last one wins")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]).upper()
            if first["type"] == "extra_forbidden":
                raise ConfigError(f"unknown setting {name}; `mem-agent config` lists all") from None
            raise ConfigError(f"{name}={first['input']!r:.80}: {first['msg']}") from None
        embedded, batch = self.host in ("auto", "local"), self.rollout_batch_size
        faults = (
            ("tp", embedded and self.train_procs % (self.tp or 1), f"a divisor of TRAIN_PROCS={self.train_procs}"),
            ("n_samples_per_prompt", self.group_size == 1 and not self.supervised,
             "at least 2, since an advantage is a reward minus its group's mean; or LOSS=sft"),
            ("global_batch_size", self.trajectories_per_rollout % self.step_trajectories,
             f"a divisor of a rollout's trajectories, {self.trajectories_per_rollout}"),
            ("lora_rank", embedded and self.lora_rank and self.tp > 1,
             "0 with TP above 1, since adapters are trained on whole matrices; or TP=1, whose copies share the rows"),
            ("eps_clip_c", 0 < self.eps_clip_c <= 1, "above 1, or 0 for none"),
            ("over_sampling_batch_size", 0 < self.over_sampling_batch_size < batch,
             f"0, or at least ROLLOUT_BATCH_SIZE={batch}"),
        )
        for name, wrong, allowed in faults:
            if wrong:
                raise ConfigError(f"{name.upper()}={getattr(self, name)}: allowed: {allowed}")

    # --- derived -----------------------------------------------------------------------------------------------------

    @property
    def supervised(self) -> bool:
        """Whether replies are given (LOSS=sft): nothing is sampled, and nothing earns a reward."""
        return self.loss == "sft"

    @property
    def group_size(self) -> int:
        """Trajectories of one draw of a document."""
        return 1 if self.supervised else self.n_samples_per_prompt

    @property
    def trajectories_per_rollout(self) -> int:
        return self.rollout_batch_size * self.group_size

    @property
    def step_trajectories(self) -> int:
        """Trajectories in one optimizer step."""
        return self.global_batch_size or self.trajectories_per_rollout

    @property
    def groups_in_flight(self) -> int:
        return self.over_sampling_batch_size or self.rollout_batch_size

    @property
    def compares_with_reference(self) -> bool:
        """Whether the loss has a KL term, for which the starting policy is kept."""
        return not self.supervised and self.kl_coef > 0

    @property
    def eval_files(self) -> list[str]:
        """The files of EVAL_DATA."""
        return shell_words("EVAL_DATA", self.eval_data)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks in TASK; rows that name none use the first."""
        return tuple(name.strip() for name in self.task.split(","))

    def seed_for(self, name: object) -> int:
        """A sampling seed for the trajectory or question ``name``: a function of SEED and name alone."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1

    def replace(self, **changes: Any) -> Self:
        """The same settings with ``changes``, validated again."""
        return type(self)(**{**dict(self), **changes})

    # --- from and to the outside -------------------------------------------------------------------------------------

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None, defaults: Mapping[str, Any] | None = None) -> Self:
        """Build from environment variables; unset and empty ones keep their default.

        Args:
            env: ``os.environ`` with RECIPE unless given.
            defaults: ``{VARIABLE: value}`` in place of the pack's own defaults.

        Raises:
            ConfigError: a value is not allowed, or RECIPE cannot be read.
        """
        if env is None:
            use_recipe()
            env = os.environ
        given = {name: env[name] for name in map(str.upper, cls.model_fields) if env.get(name, "") != ""}
        return cls.from_mapping({**(defaults or {}), **_of_folder(given, evaluates="DATA_ROOT" not in env)})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Build from ``{VARIABLE: value}``, values as text or typed; unknown names are errors."""
        return cls(**{str(name).lower(): value for name, value in values.items()})

    def to_mapping(self) -> dict[str, Any]:
        return {name.upper(): value for name, value in self}

    def changed(self) -> dict[str, Any]:
        """The settings that are not their defaults, by variable."""
        default = type(self)().to_mapping()
        return {name: value for name, value in self.to_mapping().items() if value != default[name]}

    def to_yaml(self) -> str:
        """The text of the host's ``--custom-config-path`` file."""
        return yaml.safe_dump({"mem_agent": self.to_mapping()}, sort_keys=False)

    def with_absolute_paths(self) -> Self:
        """The same settings as read in another folder; hub ids and names of the pack's own classes stay."""
        paths = ("torch_dist", "train_data", "save_path", "data_root", "mem_prompts")
        changed = {name: _absolute(getattr(self, name)) for name in paths}
        changed["hf_ckpt"] = _absolute(self.hf_ckpt) if Path(self.hf_ckpt).is_dir() else self.hf_ckpt
        for name in ("agent", "task", "reward"):
            changed[name] = ",".join(map(absolute_name, getattr(self, name).split(",")))
        return self.replace(**changed, eval_data=shlex.join(map(_absolute, self.eval_files)))


def _of_folder(given: Mapping[str, str], *, evaluates: bool) -> dict[str, str]:
    """The settings with what a TRAIN_DATA of ``mem-agent prepare --output FOLDER`` stands for: its rows and, if it
    ``evaluates``, its evaluation files."""
    folder = Path(given.get("TRAIN_DATA", ""))
    if not (folder / "train.jsonl").is_file():
        return dict(given)
    found = {"DATA_ROOT": str(folder), "LENGTH": " ".join(
        sorted((path.stem.removeprefix("eval_") for path in folder.glob("eval_*.json")),
               key=lambda name: (len(name), name)))}
    evaluated = found if found["LENGTH"] and evaluates else {}
    return {**evaluated, **given, "TRAIN_DATA": str(folder / "train.jsonl")}


def _absolute(path: str) -> str:
    if path.startswith("["):  # a list of shards (data/training_file.py)
        return "[" + ", ".join(f'"{_absolute(each)}"' for each in yaml.safe_load(path)) + "]"
    return str(Path(os.path.expanduser(path)).absolute()) if path else ""


def write_settings(config: Config) -> None:
    """``SAVE_PATH/mem_agent.yaml``, with which ``mem-agent train --config`` repeats the run from anywhere."""
    folder = Path(config.save_path)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SETTINGS_FILE, config.with_absolute_paths().to_yaml().encode())


def load_yaml(path: str | Path) -> Config:
    """Read a file written by ``Config.to_yaml``."""
    return Config.from_mapping(read_yaml(path))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The settings in a file written by ``Config.to_yaml``, by variable. Raises ConfigError."""
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not isinstance(content.get("mem_agent"), dict):
        raise ConfigError(f"{path}: expected a mapping with the key mem_agent")
    return content["mem_agent"]


# --- mem-agent config ---------------------------------------------------------------------------------------------


def listing(config: Config) -> str:
    """All settings for a terminal: those that are not at their default first, then every group."""
    changed = [name.lower() for name in config.changed()]
    parts = []
    for title, names in (({"Set": changed} if changed else {}) | _groups()).items():
        lines = [f"{name.upper():26} {getattr(config, name)!r:18} {_about(name)}" for name in names]
        parts.append("\n".join([f"# {title}", *lines]))
    return "\n\n".join(parts)


def markdown() -> str:
    """The page ``docs/settings.md``: a table for each group."""
    lines = ["# Settings", "", "Every environment variable; `mem-agent config --markdown` writes this page."]
    for title, names in _groups().items():
        lines += ["", f"## {title}", "", "| setting | default | meaning |", "|---|---|---|"]
        for name in names:
            default = f"`{Config.model_fields[name].default}`".replace("``", "none")
            lines.append(f"| `{name.upper()}` | {default} | {_about(name).replace('<', '&lt;')} |")
    return "\n".join([*lines, ""])


def _groups() -> dict[str, list[str]]:
    names = list(Config.model_fields)
    starts = [*map(names.index, _GROUPS), len(names)]
    return {title: names[start:end] for title, (start, end) in zip(_GROUPS.values(), pairwise(starts), strict=True)}


def _about(name: str) -> str:
    field = Config.model_fields[name]
    choices = ", ".join(one for one in getattr(field.annotation, "__args__", ()) if isinstance(one, str))
    return f"{field.description} ({choices})" if choices else str(field.description)


@one_line_errors("nothing was changed")
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent config", description="List every setting, those set first.")
    parser.add_argument("--markdown", action="store_true", help="as the page docs/settings.md")
    options = parser.parse_args(argv)
    print(markdown() if options.markdown else listing(Config.from_env()), end="" if options.markdown else "\n")
    return 0
