"""The hooks a host calls for one trajectory: ``mem_agent.rollout.generate`` and ``mem_agent.rollout.reward_func``.

    --custom-generate-function-path mem_agent.rollout.generate
    --custom-rm-path mem_agent.rollout.reward_func

Invariants, for slime, vime and the embedded host alike:
- one trajectory is one ``Sample``, in training and in evaluation; its turns are in ``train_metadata["turns"]``, from
  which ``custom_convert`` makes the training rows;
- ``sample.tokens`` is a sequence the policy really saw: the final turn's prompt and reply;
- ``sampling_params``, ``args`` and ``sample.prompt`` are never changed (hosts share and requeue them);
- ``train_metadata["memories"]`` describes the memory after each round (``rollout_metrics.memory_records``);
- with ``AGENT=rememr1`` every turn of a finished trajectory has ``state_rewards`` (``rewards.memory_state``);
- nothing but a bad configuration raises: every other error becomes status FAILED with reward 0, a fully masked
  placeholder and a counted reason in ``train_metadata["failure"]``; the group statistics leave it out;
- an abort ends the trajectory before its next turn, status ABORTED.

``sample.metadata`` carries the document inline (``context``) or by id (``context_id``, see ``document_store``) and
the accepted answers (``ground_truth``).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .agents import build_agent
from .agents.chunking import split_chunks
from .agents.documents import DocumentCache
from .agents.interface import MemoryAgent, Reading
from .agents.loop import run_trajectory
from .agents.records import Failure, FailureKind, Generation, Outcome, Trajectory, TurnFailed, TurnRequest
from .agents.rememr1 import ReMemR1
from .agents.vocabulary import Vocabulary
from .config import Config, ConfigError
from .data.document_store import DocumentStore, MissingDocument, store_folder
from .rewards.exact_match import boxed_exact_match
from .rewards.memory_state import Rewards, state_rewards, supporting_titles
from .rollout_client import client_for, endpoint_from_args, seed_of
from .rollout_metrics import Record, memory_records

logger = logging.getLogger(__name__)
_reader_lock = threading.Lock()


async def generate(args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False) -> Any:
    """Run one trajectory and write it into ``sample``.

    Args:
        args: the host's namespace; read are the router address, ``hf_checkpoint``, ``mem_agent`` (see ``Config``) and
            ``apply_chat_template_kwargs``.
        sample: the host's Sample; ``prompt`` is the question (text, or messages whose last user message it is).
        sampling_params: the host's dict; ``max_new_tokens`` is replaced by each turn's own budget.
        evaluation: the loop is the same; only ``reward_func`` charges nothing for the turns.

    Raises:
        ConfigError: the configuration cannot work for any sample.
    """
    config = Config.from_args(args)
    if getattr(args, "partial_rollout", False):
        raise ConfigError("--partial-rollout: a multi-turn trajectory cannot be continued; leave it off")
    if getattr(args, "apply_chat_template", False):
        raise ConfigError("--apply-chat-template would make the rendered chat the question; leave it off")
    sample.reward, sample.remove_sample = None, False
    memories: list[Record] = []
    states: list[Rewards] = []
    try:
        trajectory, memories, states = await _run(args, config, sample, sampling_params)
    except ConfigError:
        raise
    except TurnFailed as error:
        trajectory = _failed(error.kind, str(error))
    except Exception as error:  # the rollout boundary: one bad trajectory must not end the run
        logger.exception("trajectory %s failed", sample.index)
        trajectory = _failed(FailureKind.INTERNAL, f"{type(error).__name__}: {error}")
    if trajectory.failure:
        logger.warning("trajectory %s: %s: %s", sample.index, trajectory.failure.kind, trajectory.failure.message)
    return write_trajectory(args, sample, trajectory, memories, states, evaluation)


async def reward_func(args: Any, sample: Any, **kwargs: Any) -> Any:
    """Outcome reward: 1.0 if the boxed answer of ``sample.response`` equals one of the golds, else 0.0.

    In training a right answer pays for its rounds: ``1 - MEM_TURN_COST * rounds / (chunks + 1)``. Reading all
    chunks one by one costs MEM_TURN_COST, however long the document. So any right answer is worth more than a
    wrong one, of two right ones the quicker is worth more, and ending early never pays where it loses more than
    MEM_TURN_COST of the right answers. Wrong answers pay nothing: among siblings that are all wrong, the cost
    would only teach to give up. What an answer was worth without it is ``train_metadata["accuracy"]``.

    ``sample`` may be a list (hosts do that for groups and fan-outs); the result is then a list.
    """
    if isinstance(sample, list):
        return [_reward(args, one) for one in sample]
    return _reward(args, sample)


def _reward(args: Any, sample: Any) -> Any:
    golds = _golds(sample)
    accuracy = boxed_exact_match(sample.response or "", golds) if golds else 0.0
    written = sample.train_metadata or {}
    if "counts" not in written:  # of another generate hook
        return _keyed(args, accuracy)
    written["accuracy"] = accuracy
    cost = 0.0 if written["evaluation"] else Config.from_args(args).turn_cost
    counts = written["counts"]
    share = min(1.0, counts["rounds"] / (counts["chunks"] + 1)) if cost else 0.0
    return _keyed(args, accuracy * (1 - cost * share))


def _keyed(args: Any, reward: float) -> Any:
    """With ``--reward-key`` hosts expect a dict, and look the key up in every sample, failed ones included."""
    key = getattr(args, "reward_key", None)
    return {key: reward} if key else reward


def _golds(sample: Any) -> list[str]:
    golds = (sample.metadata or {}).get("ground_truth")
    if golds is None:
        golds = sample.label
    if golds is None:
        return []
    return [str(g) for g in golds] if isinstance(golds, list | tuple) else [str(golds)]


# --- one trajectory -----------------------------------------------------------------------------------------------


async def _run(
    args: Any, config: Config, sample: Any, sampling_params: Mapping[str, Any]
) -> tuple[Trajectory, list[Record], list[Rewards]]:
    question = _question(sample)
    context = await _context(args, config, sample)
    kwargs = json.dumps(getattr(args, "apply_chat_template_kwargs", None) or {}, sort_keys=True)
    reader = await asyncio.to_thread(_reader, args.hf_checkpoint, config, kwargs)
    question_ids = reader.vocabulary.encode_text(question)
    if len(question_ids) > config.mem_max_question:
        raise TurnFailed(
            FailureKind.LONG_QUESTION,
            f"question of {len(question_ids)} tokens, MEM_MAX_QUESTION={config.mem_max_question}",
        )
    document = await reader.documents.get(context)
    chunks = split_chunks(document, config.mem_chunk_tokens, config.mem_max_chunks)
    if not chunks.chunks:
        raise TurnFailed(FailureKind.NO_CONTEXT, "the document has no tokens")
    if chunks.dropped:
        logger.warning(
            "trajectory %s: %d of %d document tokens dropped from its centre (MEM_MAX_CHUNKS=%d)",
            sample.index, chunks.dropped, chunks.tokens, config.mem_max_chunks,
        )
    client = client_for(endpoint_from_args(args, config), config)
    sampling = _sampling(sampling_params, reader.vocabulary)
    key = _routing_key(sample, context)

    async def sample_turn(request: TurnRequest, number: int) -> Generation:
        turn_sampling = sampling if sampling["seed"] is None else sampling | {"seed": _turn_seed(sampling, number)}
        return await client.generate(
            request.prompt_ids, request.max_new_tokens, turn_sampling, key, lambda: host_is_aborting(args)
        )

    trajectory = await run_trajectory(
        reader.agent, Reading(question_ids, chunks), sample_turn, lambda: host_is_aborting(args)
    )
    # Hundreds of memories take a while to decode, and other trajectories need this loop meanwhile.
    memories = await asyncio.to_thread(memory_records, trajectory.memories, reader.vocabulary.decode, _golds(sample))
    states = await asyncio.to_thread(_state_rewards, config, reader.agent, trajectory, sample)
    return trajectory, memories, states


def _state_rewards(config: Config, agent: MemoryAgent, trajectory: Trajectory, sample: Any) -> list[Rewards]:
    """What each turn earned by itself, where the agent's turns earn anything."""
    if not isinstance(agent, ReMemR1) or trajectory.outcome not in _FINISHED:
        return []
    titles = supporting_titles(sample.metadata or {}) if config.mem_evidence_reward else []
    return state_rewards(agent.steps(trajectory), trajectory.answer, _golds(sample), titles)


def _question(sample: Any) -> str:
    prompt = sample.prompt
    if isinstance(prompt, list):
        users = [m["content"] for m in prompt if m.get("role") == "user"]
        prompt = users[-1] if users else ""
    if not isinstance(prompt, str) or not prompt.strip():
        raise TurnFailed(FailureKind.NO_QUESTION, "the prompt is empty")
    return prompt.strip()


async def _context(args: Any, config: Config, sample: Any) -> str:
    metadata = sample.metadata or {}
    context = metadata.get("context")
    if context is None and metadata.get("context_id") is not None:
        context = await asyncio.to_thread(_stored, _stores(args, config), metadata["context_id"])
    if not isinstance(context, str) or not context.strip():
        raise TurnFailed(FailureKind.NO_CONTEXT, "metadata has neither a context text nor a context_id")
    return context


def _stores(args: Any, config: Config) -> list[str]:
    """Where documents by id may lie: MEM_DOC_STORE, or beside the training file and each evaluation file."""
    if config.mem_doc_store:
        return [config.mem_doc_store]
    # ``prompt_data`` is the hosts' name of the training file.
    training = getattr(args, "prompt_data", None) or config.train_data
    return [str(store_folder(path)) for path in (training, *config.eval_files)]


def _stored(stores: list[str], document_id: str) -> str:
    """The document from the first store that has it; the first store's reason if none has."""
    reasons = []
    for path in stores:
        try:
            return _store(path).get(document_id)
        except MissingDocument as error:
            reasons.append(error)
    raise TurnFailed(FailureKind.MISSING_DOCUMENT, str(reasons[0])) from reasons[0]


def _sampling(params: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    stops = dict.fromkeys([*(params.get("stop_token_ids") or []), *vocabulary.eos_ids])
    return {**params, "stop_token_ids": list(stops), "seed": seed_of(params)}


def _turn_seed(sampling: Mapping[str, Any], number: int) -> int:
    return random.Random(f"{sampling['seed']}/{number}").getrandbits(31)


def _routing_key(sample: Any, context: str) -> str:
    """Siblings share a document, so they share a key; in evaluation hosts give no group, so the text decides."""
    if sample.group_index is not None:
        return f"group-{sample.group_index}"
    return "document-" + hashlib.sha256(context.encode()).hexdigest()[:16]


# --- what is built once per process -------------------------------------------------------------------------------


class _Reader:
    """A tokenizer with the agent and the document cache that belong to it."""

    def __init__(self, checkpoint: str, config: Config, chat_template_kwargs: Mapping[str, Any]) -> None:
        from transformers import AutoTokenizer

        self.vocabulary = Vocabulary(AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=True))
        self.agent: MemoryAgent = build_agent(config, self.vocabulary, chat_template_kwargs)
        self.documents = DocumentCache(self.vocabulary.encode_text)


@lru_cache(maxsize=8)
def _reader_once(checkpoint: str, config: Config, kwargs: str) -> _Reader:
    try:
        return _Reader(checkpoint, config, json.loads(kwargs))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the tokenizer of {checkpoint} cannot be used: {' '.join(str(error).split())}") from error


def _reader(checkpoint: str, config: Config, chat_template_kwargs: str) -> _Reader:
    """The one reader of these settings; ``chat_template_kwargs`` is JSON."""
    with _reader_lock:
        return _reader_once(checkpoint, config, chat_template_kwargs)


@lru_cache(maxsize=8)
def _store(path: str) -> DocumentStore:
    return DocumentStore(path)


# --- host specifics -----------------------------------------------------------------------------------------------

HOST_ROLLOUTS = ("slime.rollout.sglang_rollout", "vime.rollout.vllm_rollout")


def host_is_aborting(args: Any) -> bool:
    """Whether the host has asked its rollouts to end.

    slime and vime keep this in ``GenerateState(args).aborted``. The class is looked up through its module at each
    call because the hosts' own tests replace it, and only where the host itself has already loaded that module.
    """
    for name in HOST_ROLLOUTS:
        module = sys.modules.get(name)
        if module is not None:
            return bool(module.GenerateState(args).aborted)
    return False


# Newer vime cancels the task of a function that carries this mark, instead of draining its requests.
generate.abort_mode = "request"  # type: ignore[attr-defined]


# --- trajectory to Sample -----------------------------------------------------------------------------------------

PLACEHOLDER: dict[str, Any] = {"tokens": [0, 0], "response_length": 1, "loss_mask": [0], "rollout_log_probs": [0.0]}
"""A row that trains nothing and is legal for every host: one prompt token, one masked response token."""


_FINISHED = (Outcome.COMPLETED, Outcome.TRUNCATED)


def write_trajectory(
    args: Any,
    sample: Any,
    trajectory: Trajectory,
    memories: Sequence[Record] = (),
    states: Sequence[Rewards] = (),
    evaluation: bool = False,
) -> Any:
    """Write the outcome into the host's Sample; ``sample.Status`` is the host's own enum."""
    sample.status = sample.Status(trajectory.outcome.value)
    sample.response = trajectory.answer
    turns = [turn_row(t) for t in trajectory.turns]
    if states:
        turns = [turn | {"state_rewards": rewards} for turn, rewards in zip(turns, states, strict=True)]
    sample.train_metadata = {
        "turns": turns,
        "memories": list(memories),
        "outcome": trajectory.outcome.value,
        "failure": trajectory.failure.kind.value if trajectory.failure else None,
        "failure_message": trajectory.failure.message if trajectory.failure else None,
        "counts": dict(trajectory.counts),
        "evaluation": evaluation,
    }
    sample.weight_versions = list(dict.fromkeys(t.weight_version for t in trajectory.turns if t.weight_version))
    _write_cache_counts(sample, turns)
    finished = trajectory.outcome in _FINISHED
    row = turns[-1] if finished else PLACEHOLDER
    sample.tokens = list(row["tokens"])
    sample.response_length = row["response_length"]
    sample.loss_mask = list(row["loss_mask"])
    sample.rollout_log_probs = list(row["rollout_log_probs"])
    if not finished:
        sample.reward, sample.remove_sample = _keyed(args, 0.0), True
    return sample


def turn_row(turn: Any) -> dict[str, Any]:
    """One turn as the fields of a training row: ``tokens = prompt + reply``, every reply token trained."""
    return {
        "tokens": [*turn.prompt_ids, *turn.response_ids],
        "response_length": len(turn.response_ids),
        "loss_mask": [1] * len(turn.response_ids),
        "rollout_log_probs": list(turn.log_probs),
        "kind": turn.kind.value,
        "stop": turn.stop.value,
        "prompt_tokens": len(turn.prompt_ids),
        "cached_tokens": turn.cached_tokens,
    }


def _write_cache_counts(sample: Any, turns: Sequence[Record]) -> None:
    """Fill what slime and vime compute their own cache metrics from; turns name the counts as their ``add`` does.

    ``hasattr`` is the hosts' contract: the embedded host's Sample, and those of older hosts, have no such attribute.
    A new one replaces what an earlier attempt at this sample counted.
    """
    if hasattr(sample, "prefix_cache_info"):
        sample.prefix_cache_info = type(sample.prefix_cache_info)()
        for turn in turns:
            sample.prefix_cache_info.add(turn)


def _failed(kind: FailureKind, message: str) -> Trajectory:
    return Trajectory((), Outcome.FAILED, failure=Failure(kind, message))
