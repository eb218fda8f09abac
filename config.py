"""The one configuration object of the pack.

Every knob an outsider can set is one environment variable and one field here, under the same name in lower case
(``MEM_CHUNK_TOKENS`` -> ``config.mem_chunk_tokens``). A config is built once, validated once, frozen, and never read
from the environment at import.

It travels to remote workers inside the host's ``--custom-config-path`` YAML under the single key ``mem_agent``::

    mem_agent: {MEM_CHUNK_TOKENS: 2048, MEM_LAYOUT: section_first}

Hosts copy that key to ``args.mem_agent``; ``Config.from_args`` reads it there and falls back to the environment.

Run ``python -m mem_agent.config`` to print every variable with its default and meaning.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from .system.errors import MemAgentError


class ConfigError(MemAgentError, ValueError):
    """A bad setting: the message names the variable, its value and what is allowed."""


def _knob(default: Any, doc: str, *, at_least: float | None = None, at_most: float | None = None, choices=None) -> Any:
    return field(
        default=default, metadata={"doc": doc, "at_least": at_least, "at_most": at_most, "choices": choices}
    )


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings; see each field's text, or ``python -m mem_agent.config``."""

    # --- where things are -------------------------------------------------------------------------------------------
    host: str = _knob("auto", "who trains: auto picks the framework around this pack, else the embedded host",
                      choices=("auto", "local", "slime", "vime"))
    agent: str = _knob("memagent", "memory workflow, one of the files in agents/")
    hf_ckpt: str = _knob("", "Hugging Face folder or id of the policy's starting weights and tokenizer")
    torch_dist: str = _knob("", "torch_dist checkpoint of the starting weights; empty: read HF_CKPT")
    train_data: str = _knob("", "training JSONL written by prepare_data.py")
    save_path: str = _knob("runs/train", "folder for checkpoints, logs and rollouts")
    data_root: str = _knob("", "folder with eval_<length>.json files")

    # --- how much ---------------------------------------------------------------------------------------------------
    num_rollout: int = _knob(100, "training rollouts (each is ROLLOUT_BATCH_SIZE documents)", at_least=1)
    rollout_batch_size: int = _knob(8, "documents per rollout", at_least=1)
    n_samples_per_prompt: int = _knob(8, "trajectories per document (the GRPO group)", at_least=1)
    global_batch_size: int = _knob(0, "trajectories per optimizer step; 0: all of a rollout", at_least=0)
    over_sampling_batch_size: int = _knob(0, "documents kept in flight; 0: ROLLOUT_BATCH_SIZE", at_least=0)
    dynamic_filter: str = _knob("none", "drop groups whose rewards are all equal", choices=("none", "nonzero_std"))
    save_interval: int = _knob(10, "rollouts between checkpoints; the last one is always saved", at_least=1)
    keep_checkpoints: int = _knob(3, "newest checkpoints kept; 0 keeps all", at_least=0)
    seed: int = _knob(1, "seed of data order, sampling and initialisation", at_least=0)

    # --- the agent --------------------------------------------------------------------------------------------------
    mem_chunk_tokens: int = _knob(2048, "document tokens per memory turn", at_least=1)
    mem_max_memory: int = _knob(1024, "tokens of a memory, and of a memory turn's reply", at_least=1)
    mem_max_final: int = _knob(256, "tokens of the final answer turn", at_least=1)
    mem_max_chunks: int = _knob(512, "chunks read per document; longer ones are cut in the centre", at_least=1)
    mem_max_question: int = _knob(1024, "tokens of a question; longer ones fail", at_least=1)
    mem_layout: str = _knob("section_first", "order of section and memory in a memory turn's prompt",
                            choices=("section_first", "memory_first"))
    mem_prompts: str = _knob("", "YAML file with own templates (keys in agents/README.md)")
    mem_query_blind: bool = _knob(False, "hide the question from all turns but the final one")
    mem_parallel: int = _knob(4, "AGENT=parallel: sections read side by side; from 3 on fewer rounds",
                              at_least=1, at_most=16)
    mem_turn_cost: float = _knob(-1.0, "share of a right answer's training reward that reading every chunk costs; "
                                 "each round pays its part; negative: 0.2 for AGENT=gated, else 0", at_most=0.9)
    mem_thinking: bool = _knob(False, "let the model think in its turns (chat templates with enable_thinking)")
    mem_recall: str = _knob("tfidf", "AGENT=rememr1: how an earlier memory is found",
                            choices=("tfidf", "bm25", "embedding"))
    mem_recall_model: str = _knob("", "MEM_RECALL=embedding: Hugging Face folder or id of the embedding model")
    mem_doc_store: str = _knob("", "document store folder; empty: <training data>.docs")

    # --- requests ---------------------------------------------------------------------------------------------------
    mem_request_timeout: float = _knob(600.0, "seconds for one generation request", at_least=0.01)
    mem_max_retries: int = _knob(5, "retries of a request on connection errors, 5xx and 429", at_least=0)
    mem_retry_backoff: float = _knob(0.5, "seconds before the first retry; doubles each time", at_least=0)
    mem_concurrency: int = _knob(1024, "requests in flight from one process", at_least=1)
    mem_max_prompt_tokens: int = _knob(0, "prompt + reply must fit this; 0: the host's engine limit", at_least=0)

    # --- evaluation -------------------------------------------------------------------------------------------------
    length: str = _knob("50 100 200", "lengths to evaluate: the <n> of eval_<n>.json, separated by blanks")
    eval_temperature: float = _knob(0.7, "sampling temperature of evaluation; 0 is greedy", at_least=0)
    eval_top_p: float = _knob(0.95, "nucleus of evaluation sampling", at_least=0.01, at_most=1)
    eval_samples: int = _knob(1, "answers to each question, each with a seed of its own", at_least=1)
    eval_mode: str = _knob("recurrent", "read chunk by chunk as in training, or one prompt: with the whole document "
                           "(cut in its centre), or with retrieved passages", choices=("recurrent", "direct", "rag"))
    eval_top_k: int = _knob(10, "EVAL_MODE=rag: passages in the prompt", at_least=1)
    eval_retriever: str = _knob("bm25", "EVAL_MODE=rag: how passages are found", choices=("bm25", "embedding"))
    eval_embedding: str = _knob("", "EVAL_RETRIEVER=embedding: Hugging Face folder or id of the embedding model")
    eval_trace: bool = _knob(False, "keep every turn's token ids in the results")
    base_url: str = _knob("", "a running server to evaluate, http://HOST:PORT or https://HOST/v1; its key comes from "
                          "BASE_URL_KEY or OPENAI_API_KEY; empty: run-eval.sh starts one")
    eval_api: str = _knob("auto", "what BASE_URL speaks; auto: the first of the others that it answers",
                          choices=("auto", "generate", "completions", "chat"))
    eval_model: str = _knob("", "the model's name at BASE_URL; empty: the only one there")
    eval_server_wait: float = _knob(600.0, "seconds a server that stopped answering may take to come back", at_least=0)
    eval_interval: int = _knob(0, "slime and vime: rollouts between evaluations while training; 0: none", at_least=0)
    eval_data: str = _knob("", "slime and vime: evaluation JSONL files (prepare_data.py), separated by blanks")

    # --- learning ---------------------------------------------------------------------------------------------------
    adv_std: bool = _knob(False, "divide a group's advantages by their standard deviation")
    mem_alpha: float = _knob(0.8, "AGENT=rememr1: weight of the outcome's advantage; the rest is that of each turn's "
                             "state reward", at_least=0, at_most=1)
    mem_evidence_reward: bool = _knob(False, "AGENT=rememr1: reward memories that name the supporting documents, "
                                      "where the data tells them")
    train_turns: str = _knob("all", "turns that become training rows", choices=("all", "memory", "final"))
    temperature: float = _knob(1.0, "sampling temperature of training rollouts", at_least=1e-3)
    lr: float = _knob(1e-6, "learning rate", at_least=0)
    lr_warmup_steps: int = _knob(0, "optimizer steps of linear warm-up", at_least=0)
    weight_decay: float = _knob(0.01, "AdamW weight decay", at_least=0)
    adam_beta1: float = _knob(0.9, "AdamW beta1", at_least=0, at_most=1)
    adam_beta2: float = _knob(0.98, "AdamW beta2", at_least=0, at_most=1)
    clip_grad: float = _knob(1.0, "gradient norm clip", at_least=0)
    eps_clip: float = _knob(0.2, "lower PPO clip", at_least=0, at_most=1)
    eps_clip_high: float = _knob(0.28, "upper PPO clip", at_least=0)
    kl_coef: float = _knob(0.001, "weight of the low_var_kl loss; 0 loads no reference model", at_least=0)
    loss_agg: str = _knob("trajectory", "token mean per trajectory then over trajectories, or over all tokens",
                          choices=("trajectory", "token"))

    # --- the trainer ------------------------------------------------------------------------------------------------
    tp: int = _knob(0, "tensor parallel size; 0: 1 in the embedded host, derived in slime and vime", at_least=0)
    max_tokens_per_gpu: int = _knob(0, "tokens per packed micro-batch; 0: 4096 in the embedded host, else derived",
                                    at_least=0)

    # --- the embedded host ------------------------------------------------------------------------------------------
    train_procs: int = _knob(1, "trainer processes (data parallel x tensor parallel)", at_least=1)
    num_engines: int = _knob(1, "inference servers behind the router", at_least=1)
    engine_max_len: int = _knob(0, "engine context length in tokens; 0: what the MEM_ budgets need", at_least=0)
    engine_max_seqs: int = _knob(64, "sequences an engine decodes at once", at_least=1)
    engine_kv_bytes: int = _knob(2**30, "KV cache bytes of an engine", at_least=1)
    engine_block_size: int = _knob(32, "KV cache block in tokens; prefixes are shared in whole blocks", at_least=1)
    engine_dtype: str = _knob("auto", "engine number format; auto: float32 on CPU, bfloat16 on GPU",
                              choices=("auto", "float32", "bfloat16", "float16"))
    engine_restarts: int = _knob(3, "times a dead inference server is replaced in one run", at_least=0)
    engine_start_timeout: float = _knob(600.0, "seconds an inference server may take to start", at_least=1)

    # --- slime and vime ---------------------------------------------------------------------------------------------
    host_root: str = _knob("", "checkout of slime or vime; empty: the one around this pack, or the installed one")
    megatron_root: str = _knob("", "checkout of Megatron-LM; empty: /root/Megatron-LM, or the installed one")
    model_family: str = _knob("", "<name> of the host's scripts/models/<name>.sh; empty: the one that fits HF_CKPT")
    torch_dist_writer: str = _knob("host", "who converts HF_CKPT when TORCH_DIST is missing: the host's tool (GPU), "
                                   "or this pack (CPU)", choices=("host", "pack"))
    num_nodes: int = _knob(1, "machines", at_least=1)
    num_gpus: int = _knob(0, "GPUs per machine; 0: those found", at_least=0)
    gpu_memory_gb: float = _knob(0.0, "memory of one GPU in GiB; 0: what nvidia-smi says", at_least=0)
    pp: int = _knob(0, "pipeline parallel size; 0: derived", at_least=0)
    cp: int = _knob(0, "context parallel size; 0: derived", at_least=0)
    engine_gpus: int = _knob(0, "GPUs per inference engine; 0: derived", at_least=0)
    engine_memory_fraction: float = _knob(0.7, "share of a GPU's memory that an engine takes", at_least=0.1,
                                          at_most=0.95)
    fully_async: bool = _knob(False, "train while the next rollouts are sampled, on GPUs of their own")
    rollout_gpus: int = _knob(0, "FULLY_ASYNC: GPUs of all machines that sample; 0: half", at_least=0)
    tis: str = _knob("auto", "truncated importance sampling of engine against trainer log-probs; auto: FULLY_ASYNC",
                     choices=("auto", "on", "off"))
    tracker: str = _knob("none", "where metrics go besides the log", choices=("none", "wandb", "tensorboard"))
    tracker_project: str = _knob("mem_agent", "project name in the tracker")
    host_args: str = _knob("", "further arguments for the host's train.py, as in a shell; the last one wins")
    ray_address: str = _knob("", "job address of a running Ray cluster, http://HEAD:8265; empty: start one here")
    ray_port: int = _knob(6379, "port of the Ray head that is started here", at_least=1024, at_most=65535)
    ray_dashboard_port: int = _knob(8265, "port of its job server, on 127.0.0.1; its agent takes the next",
                                    at_least=1024, at_most=65534)
    ray_start_timeout: float = _knob(600.0, "seconds for Ray and its NUM_NODES machines to come up", at_least=1)
    master_addr: str = _knob("127.0.0.1", "address of the head machine as the other machines see it")

    def __post_init__(self) -> None:
        for f in fields(self):
            _check(f.name, getattr(self, f.name), f.metadata)
        if self.host in ("auto", "local") and self.train_procs % self.trainer_tp:
            raise ConfigError(f"TP={self.tp} does not divide TRAIN_PROCS={self.train_procs}")
        if self.trajectories_per_rollout % self.step_trajectories:
            raise ConfigError(
                f"GLOBAL_BATCH_SIZE={self.global_batch_size} counts trajectories and must divide "
                f"ROLLOUT_BATCH_SIZE x N_SAMPLES_PER_PROMPT = {self.trajectories_per_rollout}"
            )
        if self.agent == "rememr1" and self.mem_recall == "embedding" and not self.mem_recall_model:
            raise ConfigError("MEM_RECALL_MODEL is empty; MEM_RECALL=embedding needs an embedding model")
        if 0 < self.over_sampling_batch_size < self.rollout_batch_size:
            raise ConfigError(
                f"OVER_SAMPLING_BATCH_SIZE={self.over_sampling_batch_size} is smaller than "
                f"ROLLOUT_BATCH_SIZE={self.rollout_batch_size}; allowed: 0 or at least that"
            )

    @property
    def trainer_tp(self) -> int:
        """Tensor parallel size in the embedded host."""
        return self.tp or 1

    @property
    def packed_tokens(self) -> int:
        """Tokens of a packed micro-batch in the embedded host."""
        return self.max_tokens_per_gpu or 4096

    @property
    def trajectories_per_rollout(self) -> int:
        return self.rollout_batch_size * self.n_samples_per_prompt

    @property
    def step_trajectories(self) -> int:
        """Trajectories in one optimizer step."""
        return self.global_batch_size or self.trajectories_per_rollout

    @property
    def eval_files(self) -> list[str]:
        """The files of EVAL_DATA; one with a blank in its name is quoted there as in a shell."""
        try:
            return shlex.split(self.eval_data)
        except ValueError as error:
            raise ConfigError(f"EVAL_DATA={self.eval_data!r}: {error}; quote it as in a shell") from None

    @property
    def longest_request(self) -> int:
        """Tokens of the longest prompt with its reply that the MEM_ budgets allow, templates included."""
        template = 512
        reply = max(self.mem_max_memory, self.mem_max_final)
        return self.mem_max_question + self.longest_text + self.shown_memory + reply + template

    @property
    def shown_memory(self) -> int:
        """Tokens of memories that one prompt can hold: the current one, and a recalled one where the agent recalls."""
        return self.mem_max_memory * (2 if self.agent == "rememr1" else 1)

    @property
    def longest_text(self) -> int:
        """Tokens of the longest text that a turn sees beside question and memory: a section, or a round's notes."""
        return max(self.mem_chunk_tokens, self._notes_tokens)

    @property
    def longest_text_words(self) -> str:
        """The settings that ``longest_text`` comes from."""
        if self._notes_tokens > self.mem_chunk_tokens:
            return f"MEM_PARALLEL={self.mem_parallel} notes of MEM_MAX_MEMORY={self.mem_max_memory}"
        return f"MEM_CHUNK_TOKENS={self.mem_chunk_tokens}"

    @property
    def _notes_tokens(self) -> int:
        between = 2
        return self.mem_parallel * (self.mem_max_memory + between) if self.agent == "parallel" else 0

    @property
    def turn_cost(self) -> float:
        """MEM_TURN_COST, settled; an agent that cannot end early has nothing to learn from it."""
        return self.mem_turn_cost if self.mem_turn_cost >= 0 else {"gated": 0.2}.get(self.agent, 0.0)

    def seed_for(self, name: object) -> int:
        """A sampling seed of its own for the trajectory or question ``name``: a function of SEED and name alone."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1

    @property
    def groups_in_flight(self) -> int:
        return self.over_sampling_batch_size or self.rollout_batch_size

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Config:
        """Build from environment variables (``os.environ`` unless given); unset or empty ones keep their default."""
        env = os.environ if env is None else env
        return cls.from_mapping({name: env[name] for name in variable_names() if env.get(name, "") != ""})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Config:
        """Build from ``{VARIABLE: value}``; values may be strings or already typed; unknown names are errors."""
        by_name = {f.name.upper(): f for f in fields(cls)}
        unknown = sorted(set(values) - set(by_name))
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]}; run `python -m mem_agent.config` for the list")
        return cls(**{by_name[k].name: _parse(k, v, type(by_name[k].default)) for k, v in values.items()})

    @classmethod
    def from_args(cls, args: Any) -> Config:
        """The config a hook works with: ``args.mem_agent`` if the host carries it, else the environment.

        ``getattr`` with a default is the hosts' contract here: their tests call hooks with an attribute-less ``args``.
        """
        carried = getattr(args, "mem_agent", None)
        if isinstance(carried, Config):
            return carried
        if carried is None:
            return _cached(tuple((n, os.environ[n]) for n in variable_names() if os.environ.get(n, "") != ""))
        return _cached(tuple(sorted((name, str(value)) for name, value in carried.items())))

    def to_yaml(self) -> str:
        """The text for the host's ``--custom-config-path`` file."""
        return yaml.safe_dump({"mem_agent": self.to_mapping()}, sort_keys=False)

    def to_mapping(self) -> dict[str, Any]:
        return {f.name.upper(): getattr(self, f.name) for f in fields(self)}


def load_yaml(path: str | Path) -> Config:
    """Read a file written by ``Config.to_yaml``."""
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not isinstance(content.get("mem_agent"), dict):
        raise ConfigError(f"{path}: expected a mapping with the key mem_agent")
    return Config.from_mapping(content["mem_agent"])


def variable_names() -> tuple[str, ...]:
    return tuple(f.name.upper() for f in fields(Config))


@lru_cache(maxsize=64)
def _cached(items: tuple[tuple[str, Any], ...]) -> Config:
    return Config.from_mapping(dict(items))


_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def _parse(name: str, value: Any, kind: type) -> Any:
    if kind is bool:
        text = str(value).strip().lower()
        if text in _TRUE | _FALSE:
            return text in _TRUE
        raise ConfigError(f"{name}={value!r}: allowed: 1 or 0")
    if kind is str:
        return str(value)
    try:
        return kind(str(value).strip())
    except ValueError:
        raise ConfigError(f"{name}={value!r}: allowed: {_words(kind)}") from None


def _check(field_name: str, value: Any, meta: Mapping[str, Any]) -> None:
    low, high, choices = meta["at_least"], meta["at_most"], meta["choices"]
    bad = (
        (choices is not None and value not in choices)
        or (low is not None and not value >= low)
        or (high is not None and not value <= high)
    )
    if bad:
        if choices is not None:
            allowed = ", ".join(choices)
        else:
            bounds = [f"at least {low}" * (low is not None), f"at most {high}" * (high is not None)]
            allowed = _words(type(value)) + " " + " and ".join(b for b in bounds if b)
        raise ConfigError(f"{field_name.upper()}={value!r}: allowed: {allowed}")


def _words(kind: type) -> str:
    return {int: "a whole number", float: "a number"}[kind]


def _main() -> None:
    for f in fields(Config):
        choices = f.metadata["choices"]
        suffix = f" [{' | '.join(choices)}]" if choices else ""
        print(f"{f.name.upper():26} {f.default!r:18} {f.metadata['doc']}{suffix}")


if __name__ == "__main__":
    _main()
