"""The one configuration object of the pack.

Every setting an outsider can make is one environment variable and one field here, under the same name in lower case
(``MEM_CHUNK_TOKENS`` -> ``config.mem_chunk_tokens``). A config is built once, validated once, frozen, and never read
from the environment at import.

A field says what it shapes (``Shapes``). What a resumed run may replay, which results belong together and the tables
of settings in the documents are derived from that. The default is to shape everything, so a setting whose author did
not think of it refuses a replay instead of mixing two runs.

It travels to remote workers inside the host's ``--custom-config-path`` YAML under the single key ``mem_agent``::

    mem_agent: {MEM_CHUNK_TOKENS: 2048, MEM_LAYOUT: section_first}

Hosts copy that key to ``args.mem_agent``, where ``hooks.host.config_of`` finds it. A run leaves the same text as
``SAVE_PATH/mem_agent.yaml``, and a converted model has beside its weights the part that says how its agent reads.

``mem-agent config`` prints every variable with its default and meaning.
"""

from __future__ import annotations

import hashlib
import math
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from .system.errors import ConfigError
from .system.files import write_atomically
from .system.plugins import absolute_name, parse_value
from .system.recipe import use_recipe
from .system.setting import Shapes, check_setting, in_section, knob
from .system.tracker_library import LIBRARIES

SETTINGS_FILE = "mem_agent.yaml"
"""In the folder of a run: all its settings. In that of a model: those of its agent."""

__all__ = ["Config", "ConfigError", "Shapes", "load_yaml", "variable_names"]


_TRAINING, _ANSWERS, _NOTHING = Shapes.TRAINING, Shapes.ANSWERS, Shapes.NOTHING
_READING = ("recurrent",)
STAGES = ("stages",)
"""In place of an EVAL_MODE: what shapes the answers of MemSifter's stages alone."""
_MEMORY_R = {"r1": "no", "memoryr": "knn", "memoryr+": "knn+", "ltree": "lexical"}


_STYLES_FILE = Path(__file__).parent / "recipes" / "styles.yaml"
_ALLOWED: Mapping[str, Mapping[str, list[Any]]] = {
    style: {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    for style, settings in yaml.safe_load(_STYLES_FILE.read_text()).items()
}
STYLES: Mapping[str, Mapping[str, Any]] = {
    style: {name: values[0] for name, values in settings.items()} for style, settings in _ALLOWED.items()
}
"""What each published STYLE sets, by variable; where the published code offers several values, the first."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings; see each field's text, or ``mem-agent config``."""

    in_section("where things are")
    host: str = knob("auto", "who trains: auto picks the framework around this pack, else the embedded host",
                      _NOTHING, choices=("auto", "local", "slime", "vime"))
    hf_ckpt: str = knob("", "Hugging Face folder or id of the policy's starting weights and tokenizer", _TRAINING)
    torch_dist: str = knob("", "torch_dist checkpoint of the starting weights; empty: read HF_CKPT", _TRAINING)
    train_data: str = knob("", "training rows: JSONL written by prepare_data.py, a parquet file, or a folder or "
                            "pattern of shards, train_*.parquet", _TRAINING)
    trust_remote_code: bool = knob(False, "run Python that comes with a model: that of its tokenizer or network "
                                    "(auto_map), and classes of its own that its mem_agent.yaml names", _NOTHING)
    save_path: str = knob("runs/train", "folder for checkpoints, logs and rollouts", _NOTHING)
    data_root: str = knob("", "folder with eval_<length>.json files", _NOTHING)
    tracker: str = knob("none", "where metrics go besides metrics.jsonl and the log (docs/watching.md); slime and "
                         "vime take wandb and tensorboard",
                         _NOTHING, choices=("none", *LIBRARIES))
    tracker_project: str = knob("mem_agent", "project name in the tracker", _NOTHING)

    in_section("what is learned")
    style: str = knob("own", "whose ways: the pack's own, or those of a published code wherever the two differ "
                       "(recipes/styles.yaml lists them, each a setting of its own)",
                       _NOTHING, choices=("own", *STYLES))
    agent: str = knob("memagent", "memory workflow: one of agents/, or a class of your own, package.module:Name or "
                       "file.py:Name", modes=_READING)
    agent_args: str = knob("", "settings of an agent of your own: words name=value, quoted as in a shell",
                            modes=_READING)
    task: str = knob("qa", "what rows ask and what answers are worth: one of tasks/, or a class of your own; after "
                      "a comma, more of your own that rows may name")
    task_args: str = knob("", "settings of TASK's first, as AGENT_ARGS: those of gsm8k, math and countdown are in "
                           "tasks/math.py, qa and ruler have none")
    reward: str = knob("task", "training reward: the task's, or that and one by length (cosine), or a class of your "
                        "own, which may see whole rollouts", _TRAINING)
    reward_args: str = knob("", "settings of REWARD, as AGENT_ARGS: those of cosine are in "
                             "rewards/cosine_length.py, task has none", _TRAINING)

    mem_ir: str = knob("no", "intrinsic reward, added to REWARD's: for being like earlier successes, in knn+ also "
                        "unlike earlier failures; or unlike earlier texts, by letters or lines. Memory-R's names are "
                        "read too: r1, memoryr, memoryr+, ltree",
                        _TRAINING, choices=("no", "knn", "knn+", "entropy", "lexical"), aliases=_MEMORY_R)
    mem_ir_k: int = knob(1, "MEM_IR=knn, knn+: nearest questions whose answers count", _TRAINING, at_least=1)
    mem_ir_model: str = knob("all-MiniLM-L6-v2", "MEM_IR=knn, knn+: sentence-transformers folder or hub id; or "
                              "hashing, which needs no model", _TRAINING)
    mem_ir_args: str = knob("", "settings of MEM_IR's mode (docs/papers/memory_r.md), as AGENT_ARGS", _TRAINING)

    in_section("the frozen chat model")
    answer_url: str = knob("", "REWARD=answer_utility: the chat model whose answers count, http://HOST:PORT or "
                            "https://HOST/v1; its key comes from ANSWER_KEY, API_KEY or OPENAI_API_KEY", _NOTHING)
    answer_model: str = knob("", "its name there; empty: that of ANSWER_CKPT", _TRAINING)
    answer_ckpt: str = knob("", "in place of ANSWER_URL: Hugging Face folder or id of a chat model that is served "
                             "beside the policy and never trained", _TRAINING)
    answer_gpus: int = knob(1, "ANSWER_CKPT in slime and vime: GPUs that serve it, of those that sample", _NOTHING,
                             at_least=1)
    answer_engine_gpus: int = knob(1, "ANSWER_CKPT in slime and vime: GPUs of each of its engines", _NOTHING,
                                    at_least=1)
    answer_concurrency: int = knob(32, "requests to it in flight from one process", _NOTHING, at_least=1)
    answer_timeout: float = knob(300.0, "seconds for one attempt", _NOTHING, at_least=0.01)
    answer_retries: int = knob(3, "further attempts on timeouts, connection errors, 429 and 5xx", _NOTHING,
                                at_least=0)
    answer_max_tokens: int = knob(1024, "tokens of its reply", _TRAINING, at_least=1)
    answer_temperature: float = knob(0.0, "its sampling temperature; 0 is greedy", _TRAINING, at_least=0)
    answer_budget: int = knob(8192, "tokens of the sessions that it is shown", _TRAINING, at_least=1)
    sifter_prompts: str = knob("", "YAML file with another wording of what models are asked about sessions "
                                "(sessions/wording.yaml)", _TRAINING)

    in_section("how much")
    num_rollout: int = knob(100, "training rollouts (each is ROLLOUT_BATCH_SIZE documents)", _NOTHING, at_least=1)
    rollout_batch_size: int = knob(8, "documents per rollout", _TRAINING, at_least=1)
    n_samples_per_prompt: int = knob(8, "trajectories per document (the GRPO group)", _TRAINING, at_least=1)
    global_batch_size: int = knob(0, "trajectories per optimizer step; 0: all of a rollout", _TRAINING, at_least=0)
    over_sampling_batch_size: int = knob(0, "documents kept in flight; 0: ROLLOUT_BATCH_SIZE", _NOTHING, at_least=0)
    dynamic_filter: str = knob("none", "drop groups whose rewards are all equal",
                                _TRAINING, choices=("none", "nonzero_std"))
    dynamic_filter_on: str = knob("reward", "what DYNAMIC_FILTER compares: each trajectory's own reward; what the "
                                   "answer is worth to its task alone; or the reward with all that the rollout as a "
                                   "whole adds, such as MEM_IR", _TRAINING, choices=("reward", "accuracy", "total"))
    max_gen_batches: int = knob(0, "DYNAMIC_FILTER: groups that one rollout may judge, counted in "
                                 "OVER_SAMPLING_BATCH_SIZE; it then goes on with what there is. 0: the embedded host "
                                 "ends the run after 20 batches of dropped groups, slime and vime never", _TRAINING,
                                 at_least=0)
    rollout_shuffle: bool = knob(True, "draw documents in a new order each epoch; else in the file's", _TRAINING)
    save_interval: int = knob(10, "rollouts between checkpoints; the last one is always saved", _NOTHING, at_least=1)
    keep_checkpoints: int = knob(3, "newest checkpoints kept; 0 keeps all", _NOTHING, at_least=0)
    keep_trajectories: int = knob(2, "documents of each rollout whose trajectories are kept to be read, the newest "
                                   "rollout's all; evaluation keeps all; 0: none (docs/trajectories.md)", _NOTHING,
                                   at_least=0)
    keep_trajectories_mb: int = knob(500, "megabytes that the trajectories of a run or an evaluation may take; the "
                                      "oldest are thinned first", _NOTHING, at_least=1)
    seed: int = knob(1, "seed of data order, sampling and initialisation", at_least=0)

    in_section("the agent")
    mem_chunk_tokens: int = knob(2048, "document tokens per memory turn", at_least=1, modes=_READING)
    mem_max_memory: int = knob(1024, "tokens of a memory, and of a memory turn's reply", at_least=1, modes=_READING)
    mem_max_final: int = knob(256, "tokens of the final answer turn", at_least=1)
    mem_max_chunks: int = knob(512, "chunks read per document in training; longer ones are cut in the centre",
                                _TRAINING, at_least=1)
    mem_max_question: int = knob(1024, "tokens of a question, with AGENT=chat of all of a row's messages; longer "
                                 "ones fail", at_least=1)
    mem_layout: str = knob("section_first", "order of section and memory in a memory turn's prompt",
                            choices=("section_first", "memory_first"), modes=_READING)
    mem_prompts: str = knob("", "YAML file with own templates (keys in agents/README.md)")
    mem_query_blind: bool = knob(False, "hide the question from all turns but the final one", modes=_READING)
    mem_parallel: int = knob(4, "sections that an agent may read side by side; from 3 on fewer rounds",
                              at_least=1, at_most=16, modes=_READING)
    mem_turn_cost: float = knob(-1.0, "share of a right answer's training reward that reading every chunk costs; "
                                 "each round pays its part; negative: the agent's own, 0 for most",
                                 _TRAINING, at_most=0.9)
    overlong_buffer: int = knob(0, "tokens before MEM_MAX_FINAL in which a final reply's training reward falls, "
                                 "linearly, by OVERLONG_PENALTY; 0: none", _TRAINING, at_least=0)
    overlong_penalty: float = knob(1.0, "what the longest final reply pays", _TRAINING, at_least=0)
    mem_thinking: bool = knob(False, "let the model think in its turns (chat templates with enable_thinking)")
    mem_recall: str = knob("tfidf", "how an agent that recalls finds an earlier memory",
                            choices=("tfidf", "bm25", "embedding", "tfidf_tokens"), modes=_READING)
    mem_recall_model: str = knob("", "MEM_RECALL=embedding: Hugging Face folder or id of the embedding model",
                                  modes=_READING)
    mem_recall_order: str = knob("ask_first", "AGENT=rememr1: a query is answered before the memory written with it "
                                  "joins the history, or after, when it may find that one (released evaluation)",
                                  choices=("ask_first", "add_first"), modes=_READING)
    mem_recall_query: str = knob("reply", "AGENT=rememr1: who asks for an earlier memory: the reply, or by rule the "
                                  "question after every section, or nobody",
                                  choices=("reply", "question", "none"), modes=_READING)
    mem_carry: str = knob("memory", "what of a reply the next turn is shown: its memory (what follows thinking; "
                           "AGENT=rememr1: the content of <update>), or all that released code carries "
                           "(AGENT=rememr1: all but <recall>, thinking and tags included)",
                           choices=("memory", "reply"), modes=_READING)
    mem_doc_store: str = knob("", "document store folder; empty: <training data>.docs", _NOTHING)

    in_section("requests")
    mem_request_timeout: float = knob(600.0, "seconds for one generation request", _NOTHING, at_least=0.01)
    mem_max_retries: int = knob(5, "retries of a request on connection errors, 5xx and 429", _NOTHING, at_least=0)
    mem_retry_backoff: float = knob(0.5, "seconds before the first retry; doubles each time", _NOTHING, at_least=0)
    mem_routing: str = knob("chunk", "what is kept at one engine: a group's turns over one chunk, all turns of a "
                             "group, or those of a trajectory", _NOTHING, choices=("chunk", "group", "trajectory"))
    mem_lead: str = knob("auto", "the first sibling at a chunk has what they share computed before the others go; "
                          "auto: where an engine would compute it for each", _NOTHING,
                          choices=("auto", "always", "never"))
    mem_concurrency: int = knob(1024, "requests in flight from one process; of those that wait, the one with most "
                                "left to read is next", _NOTHING, at_least=1)
    mem_max_prompt_tokens: int = knob(0, "prompt + reply must fit this; 0: the host's engine limit", at_least=0)

    in_section("evaluation")
    length: str = knob("50 100 200", "lengths to evaluate: the <n> of eval_<n>.json, separated by blanks", _NOTHING)
    eval_raw: str = knob("", "HotpotQA's raw development file, of whose documents published files hold numbers; "
                          "empty: hotpot_dev_distractor_v1.json or hotpotqa_dev.json in DATA_ROOT", _NOTHING)
    eval_temperature: float = knob(0.7, "sampling temperature of evaluation; 0 is greedy", _ANSWERS, at_least=0)
    eval_top_p: float = knob(0.95, "nucleus of evaluation sampling", _ANSWERS, at_least=0.01, at_most=1)
    eval_samples: int = knob(1, "answers to each question, each with a seed of its own", _NOTHING, at_least=1)
    eval_mode: str = knob("recurrent", "read chunk by chunk as in training, or one prompt: with the whole document "
                           "(cut in its centre), or with retrieved passages",
                           _ANSWERS, choices=("recurrent", "direct", "rag"))
    eval_answer: str = knob("auto", "how an answer is read from a reply: as its task does (the last box; RULER's "
                             "tasks: the whole reply), or all alike, the_answer_is as MemAgent's evaluation does",
                             _ANSWERS, choices=("auto", "boxed", "the_answer_is", "whole"))
    eval_top_k: int = knob(10, "EVAL_MODE=rag: passages in the prompt", _ANSWERS, at_least=1, modes=("rag",))
    eval_retriever: str = knob("bm25", "EVAL_MODE=rag: how passages are found",
                                _ANSWERS, choices=("bm25", "embedding"), modes=("rag",))
    eval_embedding: str = knob("", "EVAL_RETRIEVER=embedding: Hugging Face folder or id of the embedding model",
                                _ANSWERS, modes=("rag",))
    eval_max_chunks: int = knob(0, "chunks read per document in evaluation; longer ones are cut in the centre; "
                                 "0: all",
                                 _ANSWERS, at_least=0, modes=_READING)
    base_url: str = knob("", "a running server to evaluate, http://HOST:PORT or https://HOST/v1; its key comes from "
                          "BASE_URL_KEY or OPENAI_API_KEY, in MemSifter's stages API_KEY; empty: scripts start one",
                          _NOTHING)
    eval_api: str = knob("auto", "what BASE_URL speaks; auto: the first of the others that it answers",
                          _NOTHING, choices=("auto", "generate", "completions", "chat"))
    eval_model: str = knob("", "the model's name at BASE_URL; empty: the only one there", _NOTHING)
    eval_server_wait: float = knob(600.0, "seconds a server that stopped answering may take to come back",
                                    _NOTHING, at_least=0)
    eval_interval: int = knob(0, "rollouts between evaluations while training; 0: none", _NOTHING, at_least=0)
    val_samples: int = knob(1, "answers to each question of an evaluation while training", _NOTHING, at_least=1)
    val_temperature: float = knob(-1.0, "sampling temperature there; negative: EVAL_TEMPERATURE", _NOTHING,
                                   at_most=100)
    val_top_p: float = knob(0.0, "nucleus there; 0: EVAL_TOP_P", _NOTHING, at_least=0, at_most=1)
    eval_data: str = knob("", "what is asked there: files of prepare_data.py, separated by blanks; empty: in the "
                           "embedded host DATA_ROOT's of LENGTH", _NOTHING)

    in_section("learning")
    loss: str = knob("grpo", "what a step minimises: GRPO's loss of sampled trajectories, or the cross entropy of "
                      "given replies (a row's metadata.replies, or its task's solution), which samples nothing",
                      _TRAINING, choices=("grpo", "sft"))
    adv_std: bool = knob(False, "divide a group's advantages by their standard deviation", _TRAINING)
    mem_alpha: float = knob(0.8, "where turns earn rewards of their own: weight of the outcome's advantage; the rest "
                             "is that of each turn's state reward", _TRAINING, at_least=0, at_most=1)
    mem_reward: str = knob("answer", "TASK=qa: a right answer equals a gold but for what says nothing; or by "
                            "MemAgent's released rule; or by word F1, ReMemR1's released option",
                            _TRAINING, choices=("answer", "published", "published_f1"))
    mem_state_reward: str = knob("words", "where turns earn rewards of their own: by whole words and well-formed "
                                  "replies, or by ReMemR1's released functions",
                                  _TRAINING, choices=("words", "published"))
    mem_state_weight: float = knob(1.0, "where turns earn rewards of their own: factor of the state reward's "
                                    "advantage; ReMemR1's released code counts it twice: 2", _TRAINING, at_least=0)
    mem_turn_weight: str = knob("even", "factor of a memory turn's advantage: 1, or 0.5 plus the share of the golds' "
                                 "words that its prompt shows (ReMemR1's released option action_reweight)",
                                 _TRAINING, choices=("even", "prompt"))
    mem_evidence_reward: bool = knob(False, "where turns earn rewards of their own: reward memories that name the "
                                      "supporting documents, where the data tells them", _TRAINING)
    train_turns: str = knob("all", "turns that become training rows", _TRAINING, choices=("all", "memory", "final"))
    temperature: float = knob(1.0, "sampling temperature of training rollouts", _TRAINING, at_least=1e-3)
    lr: float = knob(1e-6, "learning rate", _TRAINING, at_least=0)
    lr_warmup_steps: int = knob(0, "optimizer steps of linear warm-up from 0: the first one moves nothing", _TRAINING,
                                 at_least=0)
    lr_warmup_rollouts: int = knob(0, "rollouts of linear warm-up from 0 in place of LR_WARMUP_STEPS: all steps of a "
                                    "rollout alike, those of the first move nothing", _TRAINING, at_least=0)
    weight_decay: float = knob(0.01, "AdamW weight decay", _TRAINING, at_least=0)
    adam_beta1: float = knob(0.9, "AdamW beta1", _TRAINING, at_least=0, at_most=1)
    adam_beta2: float = knob(0.98, "AdamW beta2", _TRAINING, at_least=0, at_most=1)
    clip_grad: float = knob(1.0, "gradient norm clip", _TRAINING, at_least=0)
    eps_clip: float = knob(0.2, "lower PPO clip", _TRAINING, at_least=0, at_most=1)
    eps_clip_high: float = knob(0.28, "upper PPO clip", _TRAINING, at_least=0)
    eps_clip_c: float = knob(0.0, "dual clip: a token of negative advantage loses at most this many times that; "
                              "above 1, or 0 for none", _TRAINING, at_least=0)
    kl_coef: float = knob(0.001, "weight of the low_var_kl loss; 0 loads no reference model", _TRAINING, at_least=0)
    loss_agg: str = knob("trajectory", "token mean per trajectory then over trajectories, or over all tokens",
                          _TRAINING, choices=("trajectory", "token"))

    in_section("the trainer")
    tp: int = knob(0, "tensor parallel size; 0: 1 in the embedded host, derived in slime and vime",
                    _TRAINING, at_least=0)
    max_tokens_per_gpu: int = knob(0, "tokens per packed micro-batch, in the embedded host shared ones once; 0: 4096 "
                                    "there, else derived",
                                    _TRAINING, at_least=0)

    in_section("the embedded host")
    train_procs: int = knob(0, "trainer processes (data parallel x tensor parallel); 0: what suits model and "
                             "machine; a run that continues keeps what it began with", _TRAINING, at_least=0)
    share_prefixes: bool = knob(True, "train on tries: a prefix that rows of a step share is encoded once", _TRAINING)
    lora_rank: int = knob(0, "train adapters of this rank on the projections of attention and MLP, and nothing else; "
                           "0: all weights", _TRAINING, at_least=0)
    lora_alpha: int = knob(32, "adapters count LORA_ALPHA / LORA_RANK times", _TRAINING, at_least=1)
    num_engines: int = knob(1, "inference servers behind the router", _NOTHING, at_least=1)
    engine_max_len: int = knob(0, "engine context length in tokens; 0: the agent's longest turn",
                                at_least=0, modes=("direct",))
    engine_max_seqs: int = knob(64, "sequences an engine decodes at once", _NOTHING, at_least=1)
    engine_kv_bytes: int = knob(2**30, "KV cache bytes of an engine", _NOTHING, at_least=1)
    engine_block_size: int = knob(32, "KV cache block in tokens; prefixes are shared in whole blocks",
                                   _NOTHING, at_least=1)
    engine_dtype: str = knob("auto", "engine number format; auto: float32 on CPU, bfloat16 on GPU",
                              choices=("auto", "float32", "bfloat16", "float16"))
    engine_restarts: int = knob(3, "times a dead inference server is replaced in one run", _NOTHING, at_least=0)
    engine_start_timeout: float = knob(600.0, "seconds an inference server may take to start", _NOTHING, at_least=1)

    in_section("MemSifter's stages")
    data_dir: str = knob("data", "folder with {data set}/{split}.parquet, histories and questions about them",
                          _NOTHING)
    datasets: str = knob("", "data sets, separated by blanks; empty: all that are there", _NOTHING)
    splits: str = knob("test", "their splits, separated by blanks", _NOTHING)
    output_dir: str = knob("data/results", "folder of what the stages write, {model}/{data set}_{split}_....parquet",
                            _NOTHING)
    model_name: str = knob("", "name of the model that answers, in the files' names and at BASE_URL: the ranker in "
                            "stage 2, the chat model in stage 3; empty: that of its folder, or the only one there",
                            _NOTHING)
    rank_top_k: int = knob(0, "stage 2: most similar sessions that the ranker is shown; 0: as many as fit its prompt",
                            _ANSWERS, at_least=0, modes=STAGES)
    methods: str = knob("", "stage 3: whose order of sessions, separated by blanks: an embedding model, a ranker, "
                         "bm25, full, or a folder of *_retrieved_memory.parquet; empty: EMBEDDING_MODEL_NAME",
                         _NOTHING)
    top_k: int = knob(10, "stage 3: sessions that the chat model is shown at most; METHODS=full has no such limit",
                       _ANSWERS, at_least=1, modes=STAGES)
    max_input_tokens: int = knob(8192, "stage 3: tokens of the sessions that it shows", _ANSWERS, at_least=1,
                                  modes=STAGES)
    full_input_tokens: int = knob(131072, "stage 3, METHODS=full: those tokens", _ANSWERS, at_least=1,
                                   modes=STAGES)
    max_output_token: int = knob(4096, "stage 3: tokens of its reply", _ANSWERS, at_least=1, modes=STAGES)
    chat_concurrency: int = knob(64, "stage 3: requests in flight", _NOTHING, at_least=1)
    chat_timeout: float = knob(300.0, "stage 3: seconds for one attempt", _NOTHING, at_least=0.01)
    chat_retries: int = knob(5, "stage 3: further attempts on timeouts, connection errors, 429 and 5xx", _NOTHING,
                              at_least=0)
    embedding_model_name: str = knob("bge-m3", "stage 1: sentence-transformers model, by name, hub id or folder; "
                                      "later stages read its similarities", _NOTHING)
    embed_store_path: str = knob("data/embedding_store", "stage 1: vectors and token counts of texts that it has "
                                  "seen, by data set and model", _NOTHING)

    in_section("the endpoint")
    serve_concurrency: int = knob(64, "documents that are read at once; further requests get 429 and when to come "
                                   "back", _NOTHING, at_least=1)
    serve_timeout: float = knob(600.0, "seconds for one request; 0: no limit", _NOTHING, at_least=0)
    serve_document_tokens: int = knob(1_000_000, "tokens of all documents of a request; longer ones are refused, "
                                       "never cut; 0: no limit", _NOTHING, at_least=0)

    in_section("slime and vime")
    host_root: str = knob("", "checkout of slime or vime; empty: the one around this pack, or the installed one",
                           _NOTHING)
    megatron_root: str = knob("", "checkout of Megatron-LM; empty: /root/Megatron-LM, or the installed one", _NOTHING)
    model_family: str = knob("", "<name> of the host's scripts/models/<name>.sh; empty: the one that fits HF_CKPT",
                              _NOTHING)
    torch_dist_writer: str = knob("host", "who converts HF_CKPT when TORCH_DIST is missing: the host's tool (GPU), "
                                   "or this pack (CPU)", _NOTHING, choices=("host", "pack"))
    num_nodes: int = knob(1, "machines", _NOTHING, at_least=1)
    num_gpus: int = knob(0, "GPUs per machine; 0: those found", _NOTHING, at_least=0)
    gpu_memory_gb: float = knob(0.0, "memory of one GPU in GiB; 0: what nvidia-smi says", _NOTHING, at_least=0)
    pp: int = knob(0, "pipeline parallel size; 0: derived", _TRAINING, at_least=0)
    cp: int = knob(0, "context parallel size; 0: derived", _TRAINING, at_least=0)
    engine_gpus: int = knob(0, "GPUs per inference engine; 0: derived", _NOTHING, at_least=0)
    engine_memory_fraction: float = knob(0.7, "share of a GPU's memory that an engine takes",
                                          _NOTHING, at_least=0.1, at_most=0.95)
    fully_async: bool = knob(False, "train while the next rollouts are sampled, on GPUs of their own", _TRAINING)
    rollout_gpus: int = knob(0, "FULLY_ASYNC: GPUs of all machines that sample; 0: half", _TRAINING, at_least=0)
    tis: str = knob("auto", "truncated importance sampling of engine against trainer log-probs; auto: FULLY_ASYNC",
                     _TRAINING, choices=("auto", "on", "off"))
    host_args: str = knob("", "further arguments for the host's train.py, as in a shell; the last one wins",
                           _TRAINING)
    ray_address: str = knob("", "job address of a running Ray cluster, http://HEAD:8265; empty: start one here",
                             _NOTHING)
    ray_port: int = knob(6379, "port of the Ray head that is started here", _NOTHING, at_least=1024, at_most=65535)
    ray_dashboard_port: int = knob(8265, "port of its job server, on 127.0.0.1; its agent takes the next",
                                    _NOTHING, at_least=1024, at_most=65534)
    rehearse_rollouts: int = knob(2, "REHEARSE=1: rollouts before the run is ended and resumed for one more",
                                   _NOTHING, at_least=1)
    rehearse_ranks: int = knob(2, "REHEARSE=1: trainer ranks at most, on as many logical GPUs", _NOTHING,
                                at_least=1, at_most=4)
    ray_start_timeout: float = knob(600.0, "seconds for Ray and its NUM_NODES machines to come up",
                                     _NOTHING, at_least=1)
    master_addr: str = knob("127.0.0.1", "address of the head machine as the other machines see it", _NOTHING)

    def __post_init__(self) -> None:
        for f in fields(self):
            value = f.metadata["aliases"].get(getattr(self, f.name), getattr(self, f.name))
            object.__setattr__(self, f.name, value)  # frozen once it is made
            if f.name == "mem_ir" and "cosine" in str(value):
                beside = str(value).replace("cosine", "").lstrip("+") or "no"  # of knn+cosine: knn+, as published
                raise ConfigError(f"MEM_IR={value!r}: the cosine reward is no intrinsic one; set REWARD=cosine and "
                                  f"MEM_IR={beside}")
            allowed = {limit: f.metadata[limit] for limit in ("at_least", "at_most", "choices")}
            check_setting(f.name.upper(), value, **allowed)
        for name, values in _ALLOWED.get(self.style, {}).items():
            if (own := getattr(self, name.lower())) not in values:
                raise ConfigError(f"{name}={own} contradicts STYLE={self.style}, which has {name}="
                                  f"{' or '.join(map(str, values))}; leave {name} out, or set STYLE=own")
        if self.host in ("auto", "local") and self.train_procs % self.trainer_tp:
            raise ConfigError(f"TP={self.tp} does not divide TRAIN_PROCS={self.train_procs}")
        if self.trajectories_per_rollout % self.step_trajectories:
            each = "" if self.supervised else " x N_SAMPLES_PER_PROMPT"
            raise ConfigError(
                f"GLOBAL_BATCH_SIZE={self.global_batch_size} counts trajectories and must divide "
                f"ROLLOUT_BATCH_SIZE{each} = {self.trajectories_per_rollout}"
            )
        if 0 < self.eps_clip_c <= 1:
            raise ConfigError(f"EPS_CLIP_C={self.eps_clip_c:g}: a dual clip is above 1; 0 for none")
        if self.max_gen_batches and self.dynamic_filter == "none":
            raise ConfigError(f"MAX_GEN_BATCHES={self.max_gen_batches} bounds DYNAMIC_FILTER, which is none; leave it "
                              "out, or set DYNAMIC_FILTER=nonzero_std")
        if self.overlong_buffer > self.mem_max_final:
            raise ConfigError(f"OVERLONG_BUFFER={self.overlong_buffer} is more than MEM_MAX_FINAL="
                              f"{self.mem_max_final}, a final reply's tokens; allowed: up to that")
        if self.lr_warmup_steps and self.lr_warmup_rollouts:
            raise ConfigError(f"LR_WARMUP_STEPS={self.lr_warmup_steps} and LR_WARMUP_ROLLOUTS="
                              f"{self.lr_warmup_rollouts}: set one of them")
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
    def supervised(self) -> bool:
        """Whether replies are given (LOSS=sft): nothing is sampled, and nothing earns a reward."""
        return self.loss == "sft"

    @property
    def keep_trajectories_bytes(self) -> int:
        return self.keep_trajectories_mb * 10**6

    @property
    def evaluations(self) -> int:
        """How many of a run share KEEP_TRAJECTORIES_MB; a guess where only its host knows EVAL_INTERVAL."""
        return max(1, math.ceil(self.num_rollout / self.eval_interval)) if self.eval_interval else 20

    @property
    def group_size(self) -> int:
        """Trajectories of one draw of a document."""
        return 1 if self.supervised else self.n_samples_per_prompt

    @property
    def trajectories_per_rollout(self) -> int:
        return self.rollout_batch_size * self.group_size

    @property
    def compares_with_reference(self) -> bool:
        """Whether the loss has a KL term, for which the starting policy is kept."""
        return not self.supervised and self.kl_coef > 0

    @property
    def step_trajectories(self) -> int:
        """Trajectories in one optimizer step."""
        return self.global_batch_size or self.trajectories_per_rollout

    @property
    def groups_in_flight(self) -> int:
        return self.over_sampling_batch_size or self.rollout_batch_size

    @property
    def serves_answers(self) -> bool:
        """Whether a frozen chat model is served beside the policy."""
        return self.reward == "answer_utility" and not self.supervised and bool(self.answer_ckpt)

    @property
    def eval_files(self) -> list[str]:
        """The files of EVAL_DATA; one with a blank in its name is quoted there as in a shell."""
        try:
            return shlex.split(self.eval_data)
        except ValueError as error:
            raise ConfigError(f"EVAL_DATA={self.eval_data!r}: {error}; quote it as in a shell") from None

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The names of classes in the fields that hold such."""
        return {"agent": (self.agent,), "task": self.tasks, "reward": (self.reward,)}

    @property
    def tasks(self) -> tuple[str, ...]:
        """TASK's: the first is that of rows that name none."""
        return tuple(name.strip() for name in self.task.split(","))

    def seed_for(self, name: object) -> int:
        """A sampling seed of its own for the trajectory or question ``name``: a function of SEED and name alone."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1

    # --- from and to the outside ------------------------------------------------------------------------------------

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None, defaults: Mapping[str, Any] | None = None) -> Config:
        """Build from environment variables.

        Args:
            env: ``os.environ`` unless given; unset and empty ones keep their default.
            defaults: ``{VARIABLE: value}`` for those, in place of the pack's own defaults.

        Raises:
            ConfigError: a value is not allowed, or RECIPE cannot be read.
        """
        if env is None:
            use_recipe()
            env = os.environ
        return cls.from_mapping({**(defaults or {}), **STYLES.get(env.get("STYLE", ""), {}), **_set_in(env)})

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Config:
        """Build from ``{VARIABLE: value}``; values may be strings or already typed; unknown names are errors."""
        values = {**STYLES.get(str(values.get("STYLE", "")), {}), **values}
        by_name = {f.name.upper(): f for f in fields(cls)}
        unknown = sorted(str(name) for name in set(values) - set(by_name))
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]}; run `mem-agent config` for the list")
        for name, value in values.items():
            if value is None or isinstance(value, list | dict):
                raise ConfigError(f"{name}={value!r:.80}: expected one value; leave the line out for the default")
        return cls(**{by_name[k].name: parse_value(k, v, type(by_name[k].default)) for k, v in values.items()})

    @classmethod
    def cached(cls, values: Mapping[str, Any]) -> Config:
        """``from_mapping`` of an environment or of what a host carries; equal values give the same object."""
        carried = _set_in(values) if values is os.environ else values
        if not all(isinstance(value, str | int | float) for value in carried.values()):
            return cls.from_mapping(carried)  # which says what is wrong
        return _cached(tuple(sorted((name, str(value)) for name, value in carried.items())))

    def to_yaml(self) -> str:
        """The text for the host's ``--custom-config-path`` file."""
        return yaml.safe_dump({"mem_agent": self.to_mapping()}, sort_keys=False)

    def to_mapping(self) -> dict[str, Any]:
        return {f.name.upper(): getattr(self, f.name) for f in fields(self)}

    def with_absolute_paths(self) -> Config:
        """The same settings for whoever reads them in another folder; hub ids and names of the pack stay."""
        changed: dict[str, Any] = {name: _absolute(getattr(self, name)) for name in _PATHS}
        models = {name: getattr(self, name) for name in _MODELS}
        changed |= {name: _absolute(model) for name, model in models.items() if Path(model).is_dir()}
        changed |= {name: ",".join(map(absolute_name, names)) for name, names in self.classes.items()}
        changed["eval_data"] = shlex.join(map(_absolute, self.eval_files))
        return replace(self, **changed)


_PATHS = ("torch_dist", "train_data", "save_path", "data_root", "mem_prompts", "sifter_prompts", "mem_doc_store")
_MODELS = ("hf_ckpt", "mem_recall_model", "mem_ir_model", "eval_embedding", "answer_ckpt")
"""Folders, or ids on the hub."""


def _absolute(path: str) -> str:
    return str(Path(os.path.expanduser(path)).absolute()) if path else ""


def write_settings(config: Config) -> None:
    """``SAVE_PATH/mem_agent.yaml``, with which ``mem-agent train --config`` repeats the run from anywhere."""
    folder = Path(config.save_path)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SETTINGS_FILE, config.with_absolute_paths().to_yaml().encode())


def shaping_training() -> list[str]:
    """The fields that shape what is trained."""
    return [f.name for f in fields(Config) if f.metadata["shapes"].training]


def shaping_answers(mode: str) -> list[str]:
    """The fields that shape an answer in EVAL_MODE ``mode``."""
    shaping = [f for f in fields(Config) if f.metadata["shapes"].answers]
    return [f.name for f in shaping if f.metadata["modes"] is None or mode in f.metadata["modes"]]


def shaping_agent() -> list[str]:
    """The fields that say how an agent reads and answers, on whatever machine: a trained model takes them along."""
    sections = {f.name: f.metadata["section"] for f in fields(Config)}
    return [name for name in shaping_answers("recurrent") if sections[name] in ("what is learned", "the agent")]


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


def variable_names() -> tuple[str, ...]:
    return tuple(f.name.upper() for f in fields(Config))


def _set_in(env: Mapping[str, Any]) -> dict[str, Any]:
    return {name: env[name] for name in variable_names() if env.get(name, "") != ""}


@lru_cache(maxsize=64)
def _cached(items: tuple[tuple[str, Any], ...]) -> Config:
    return Config.from_mapping(dict(items))
