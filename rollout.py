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
from collections.abc import Mapping
from typing import Any

from .agents.chunking import split_chunks
from .agents.interface import MemoryAgent, Reading
from .agents.loop import run_trajectory
from .agents.records import Failure, FailureKind, Generation, Outcome, Trajectory, TurnFailed, TurnRequest
from .agents.vocabulary import Vocabulary
from .config import Config, ConfigError
from .hooks.engine_api import seed_of
from .hooks.metrics import Record, memory_records
from .hooks.reader import context_of, reader_for
from .hooks.record import FINISHED, write_trajectory
from .hooks.reward import golds_of, reward_func
from .rewards.memory_state import Rewards, state_rewards, supporting_titles
from .rollout_client import client_for, endpoint_from_args

__all__ = ["generate", "reward_func"]

logger = logging.getLogger(__name__)


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


# --- one trajectory -----------------------------------------------------------------------------------------------


async def _run(
    args: Any, config: Config, sample: Any, sampling_params: Mapping[str, Any]
) -> tuple[Trajectory, list[Record], list[Rewards]]:
    question = _question(sample)
    context = await context_of(args, config, sample)
    kwargs = json.dumps(getattr(args, "apply_chat_template_kwargs", None) or {}, sort_keys=True)
    reader = await asyncio.to_thread(reader_for, args.hf_checkpoint, config, kwargs)
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
    memories = await asyncio.to_thread(memory_records, trajectory.memories, reader.vocabulary.decode, golds_of(sample))
    states = await asyncio.to_thread(_state_rewards, config, reader.agent, trajectory, sample)
    return trajectory, memories, states


def _state_rewards(config: Config, agent: MemoryAgent, trajectory: Trajectory, sample: Any) -> list[Rewards]:
    """What each turn earned by itself, where the agent's turns earn anything."""
    steps = agent.state_steps(trajectory) if trajectory.outcome in FINISHED else ()
    if not steps:
        return []
    titles = supporting_titles(sample.metadata or {}) if config.mem_evidence_reward else []
    return state_rewards(steps, trajectory.answer, golds_of(sample), titles)


def _question(sample: Any) -> str:
    prompt = sample.prompt
    if isinstance(prompt, list):
        users = [m["content"] for m in prompt if m.get("role") == "user"]
        prompt = users[-1] if users else ""
    if not isinstance(prompt, str) or not prompt.strip():
        raise TurnFailed(FailureKind.NO_QUESTION, "the prompt is empty")
    return prompt.strip()


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


def _failed(kind: FailureKind, message: str) -> Trajectory:
    return Trajectory((), Outcome.FAILED, failure=Failure(kind, message))
