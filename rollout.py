"""The method: read a document chunk by chunk, keep a short memory, answer from the memory alone, train every turn.

    memory = nothing                                  MemAgent, arXiv 2507.02259, section 2
    for chunk in document:
        reply = sample(problem, chunk, memory)        a MEMORY turn: its own prompt, so its own context
        memory = what the agent carries of the reply  (``agents/``: other agents recall, skip, merge ...)
    answer = sample(problem, memory)                  the FINAL turn
    reward = task(answer)                             ``tasks/``, ``rewards/``
    advantage = reward - mean of the group            ``custom_convert.py``: each turn is a training row

Every hook that a host calls, except the converter::

    --custom-generate-function-path           mem_agent.rollout.generate
    --custom-rm-path                          mem_agent.rollout.reward_func
    --dynamic-sampling-filter-path            mem_agent.rollout.nonzero_std          (DYNAMIC_FILTER)
    --custom-rollout-log-function-path        mem_agent.rollout.log_rollout
    --rollout-function-path                   mem_agent.rollout.rollout_fully_async  (FULLY_ASYNC), or
                                              mem_agent.rollout.rollout_of_given_replies  (LOSS=sft)
    --eval-function-path                      mem_agent.rollout.evaluate
    --custom-eval-rollout-log-function-path   mem_agent.rollout.log_eval
    --custom-megatron-init-path               mem_agent.rollout.keep_policy

A Sample comes with ``prompt`` (the question, or messages) and ``metadata``: the document (``context``, or its
``context_id`` in the document store), ``ground_truth``, perhaps ``task``, ``reply_prefix``. ``generate`` leaves::

    status, response     how the trajectory ended, and its decoded answer
    tokens, loss_mask    the FINAL turn, a sequence that the policy saw
    train_metadata       all turns with ids and log-probs (``hooks.sample.Record``), for the converter

Invariants: ``sampling_params``, ``args`` and ``prompt`` are never changed; only a bad configuration and a run of
nothing but failures raise. Any other error becomes status FAILED: counted by its reason, masked, and left out of its
group's statistics. An abort ends a trajectory before its next round.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .agents import turn_cost
from .agents.interface import MemoryAgent, Reading
from .agents.records import (
    FailureKind,
    Generation,
    Outcome,
    StopReason,
    Trajectory,
    Turn,
    TurnFailed,
    TurnKind,
    TurnRequest,
)
from .config import ConfigError
from .custom_convert import row_counts
from .hooks import no_signal, rewards, traces
from .hooks.host import HostArgs, as_output, evaluate, is_aborting, keep_policy, rollout_fully_async, sampling_of
from .hooks.metrics import metrics_line, rollout_metrics
from .hooks.reader import Reader, context_of, question_of, reader_for, row_of, task_name, task_of
from .hooks.sample import Record, ended, lost, require_survivors, write_failure, write_record, write_scores
from .rewards.reward import overlong_cost, plain_parts
from .rollout_client import How, client_for
from .system.concurrency import gather_or_cancel
from .system.errors import place_of

__all__ = [
    "evaluate", "generate", "keep_policy", "log_eval", "log_rollout", "nonzero_std", "reward_func",
    "rollout_fully_async", "rollout_of_given_replies", "run_trajectory",
]

logger = logging.getLogger(__name__)

Sampler = Callable[[Sequence[TurnRequest], int], Awaitable[Sequence[Generation]]]
"""Samples one round of turns, the first of which has this number in the trajectory (0, 1, ...)."""
Watcher = Callable[[Sequence[Turn], Any], None]
"""Called after every round with its turns and the agent's state after them."""


# --- the loop -----------------------------------------------------------------------------------------------------


async def run_trajectory(
    agent: MemoryAgent, reading: Reading, sample: Sampler, is_aborted: Callable[[], bool] = lambda: False,
    watch: Watcher = lambda turns, state: None,
) -> Trajectory:
    """Run ``agent`` over one reading: the one loop of training, evaluation and serving.

    A completed trajectory ends with its FINAL turn. There is one memory for each round of MEMORY turns. An aborted
    generation ends the trajectory at once: its partial text is never a memory. A ``TurnFailed`` ends it as FAILED with
    the turns so far; other exceptions propagate.
    """
    state = agent.start(reading)
    turns: list[Turn] = []
    memories: list[tuple[int, ...]] = []
    rounds = 0

    def ended_as(outcome: Outcome, failure: TurnFailed | None = None) -> Trajectory:
        counts = agent.counts(state) | _counts(reading, turns, rounds, memories)
        return Trajectory(tuple(turns), outcome, agent.answer(state), failure, counts, tuple(memories), state)

    while requests := [_of_reading(reading, request) for request in agent.requests(state)]:
        if is_aborted():
            return ended_as(Outcome.ABORTED)
        try:
            replies = await sample(requests, len(turns))
        except TurnFailed as error:
            return ended_as(Outcome.FAILED, error)
        new = [_turn(request, reply, rounds) for request, reply in zip(requests, replies, strict=True)]
        turns, rounds = turns + new, rounds + 1
        if any(reply.stop is StopReason.ABORT for reply in replies):
            return ended_as(Outcome.ABORTED)
        state = agent.advance(state, replies)
        if any(request.kind is TurnKind.MEMORY for request in requests):
            memories.append(tuple(agent.memory(state)))
        watch(new, state)
    return ended_as(Outcome.TRUNCATED if turns[-1].stop is StopReason.LENGTH else Outcome.COMPLETED)


def _of_reading(reading: Reading, request: TurnRequest) -> TurnRequest:
    """A FINAL prompt ends with what the reply goes on from, and has the reading's own budget, if any."""
    if request.kind is not TurnKind.FINAL:
        return request
    prompt = [*request.prompt_ids, *reading.prefix_ids]
    shared = len(prompt) if request.shared == len(request.prompt_ids) else request.shared
    budget = reading.reply_tokens or request.max_new_tokens
    return replace(request, prompt_ids=prompt, max_new_tokens=budget, shared=shared)


def _turn(request: TurnRequest, reply: Generation, number: int) -> Turn:
    return Turn(
        request.kind, [*request.prompt_ids, *reply.token_ids], len(request.prompt_ids), reply.log_probs, reply.stop,
        reply.weight_version, reply.cached_tokens, number, request.section, request.recalled, request.told)


def _counts(
    reading: Reading, turns: Sequence[Turn], rounds: int, memories: Sequence[Sequence[int]]
) -> dict[str, float]:
    """What is counted whatever the agent; ``cached_tokens`` where the engine tells them."""
    document, cached = reading.document, [t.cached_tokens for t in turns if t.cached_tokens is not None]
    return {
        "turns": len(turns), "rounds": rounds, "chunks": len(document.chunks), "document_tokens": document.tokens,
        "dropped_tokens": document.dropped,
        "prompt_tokens": sum(turn.prompt_tokens for turn in turns),
        "response_tokens": sum(len(turn.log_probs) for turn in turns),
        **({"cached_tokens": sum(cached)} if len(cached) == len(turns) else {}),
        **({"memory_tokens": len(memories[-1])} if memories else {}),
    }


# --- one trajectory -----------------------------------------------------------------------------------------------


async def generate(args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False) -> Any:
    """Run one trajectory and write it into ``sample``.

    Args:
        args: the host's namespace; ``hooks.host.HostArgs`` lists what is read of it.
        sample: the host's Sample.
        sampling_params: the host's dict; each turn's own budget replaces ``max_new_tokens``.
        evaluation: the loop is the same; ``reward_func`` then measures only.

    Raises:
        ConfigError: the configuration cannot work for any sample.
    """
    host = HostArgs(args)
    sample.reward, sample.remove_sample = None, False
    task, error = task_name(host.config, sample), None
    try:
        trajectory, reader = await _read(args, host, sample, sampling_params, evaluation)
        # Hundreds of memories take a while to decode, and other trajectories need this loop meanwhile.
        record = await asyncio.to_thread(reader.record, trajectory, sample, evaluation=evaluation, task=task)
    except (ConfigError, asyncio.CancelledError):
        raise
    except Exception as unforeseen:  # the rollout boundary: one bad trajectory must not end the run
        error = unforeseen
        trajectory = Trajectory((), Outcome.FAILED, failure=_failure(error))
        record = Record.of_trajectory(trajectory, evaluation=evaluation, task=task)
    if trajectory.failure:
        _tell(host, trajectory.failure, error)
    return write_record(sample, record, trajectory.answer, host.reward_key)


# Newer vime cancels the task of a function that carries this mark, instead of draining its requests.
generate.abort_mode = "request"  # type: ignore[attr-defined]


_told: set[tuple[str, FailureKind, str]] = set()
"""Failures that were told: run folder, kind and, of one that nobody foresaw, where it was raised."""


def _failure(error: Exception) -> TurnFailed:
    """One that nobody foresaw is named by file and line."""
    if isinstance(error, TurnFailed):
        return error
    return TurnFailed(FailureKind.INTERNAL, f"{type(error).__name__}: {error} ({place_of(error)})")


def _tell(host: HostArgs, failure: TurnFailed, error: Exception | None = None) -> None:
    """The first failure of its kind, one that nobody foresaw with its traceback; metrics count all
    (``failed/<kind>``)."""
    unforeseen = error if failure.kind is FailureKind.INTERNAL else None
    told = (host.save, failure.kind, place_of(unforeseen) if unforeseen else "")
    if told not in _told:
        _told.add(told)
        logger.warning("a trajectory failed, %s: %s; others like it are only counted", failure.kind, failure,
                       exc_info=unforeseen)


async def _read(
    args: Any, host: HostArgs, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool
) -> tuple[Trajectory, Reader]:
    config = host.config
    context = await context_of(host, sample)
    reader = await asyncio.to_thread(reader_for, host.hf_checkpoint, config, host.chat_template_kwargs)
    reading = await reader.reading(sample, context, evaluation=evaluation)
    if config.supervised and not evaluation:
        return await reader.given(partial(run_trajectory, reader.agent, reading), sample), reader
    aborting = partial(is_aborting, args)
    how = How(sampling=sampling_of(sampling_params, reader.vocabulary.eos_ids), is_aborted=aborting)
    # Siblings share a document, so they share a key; in evaluation hosts give no group, so the text decides.
    digest = hashlib.sha256((context or question_of(sample)).encode("utf-8", "surrogatepass")).hexdigest()
    group = f"document-{digest[:16]}" if sample.group_index is None else f"group-{sample.group_index}"
    # The most chunks left to read go first; where groups are sampled that no batch may need, the oldest do.
    ahead = config.fully_async or config.groups_in_flight > config.rollout_batch_size

    async def sample_round(requests: Sequence[TurnRequest], number: int) -> Sequence[Generation]:
        final = requests[0].kind is TurnKind.FINAL
        left = 0 if ahead or final else max(0, len(reading.document.chunks) - number)
        return await session.sample(requests, number, replace(how, weight=left))

    client = client_for(host.router, config.mem_concurrency)
    with client.trajectory(group, 1 if evaluation else host.group_size) as session:
        return await run_trajectory(reader.agent, reading, sample_round, aborting), reader


# --- what it is worth ---------------------------------------------------------------------------------------------


async def reward_func(args: Any, sample: Any, **kwargs: Any) -> Any:
    """What a trajectory is worth: the sum of the task's parts, REWARD's, the cost of its turns and of its length.

    In training a right answer pays for its rounds: ``turn_cost * rounds / (chunks + 1)`` of its worth, so that reading
    all chunks one by one costs ``turn_cost`` however long the document. Any right answer stays worth more than a wrong
    one; wrong ones pay nothing, else siblings that are all wrong would learn to give up. Evaluation charges and adds
    nothing. What cannot be scored fails, is counted, and is worth 0; under LOSS=sft all is worth 0.

    ``sample`` may be a list, as hosts give groups; the result is then a list.
    """
    if isinstance(sample, list):
        return [await reward_func(args, one) for one in sample]
    host, worth = HostArgs(args), 0.0
    try:
        if not lost(sample):
            worth = await _sum_of_parts(host, sample)
    except Exception as error:  # as in generate: one bad row must not end the run
        if isinstance(error, ConfigError) and not host.config.fully_async:  # whose worker would sample on for ever
            raise
        failure = _failure(error)
        _tell(host, failure, error)
        write_failure(sample, failure.kind, str(failure), host.reward_key)
    return {host.reward_key: worth} if host.reward_key else worth


async def _sum_of_parts(host: HostArgs, sample: Any) -> float:
    record = Record.of(sample)
    if host.config.supervised and record and not record.evaluation:
        return 0.0
    config, task, reply, row = host.config, task_of(host.config, sample), sample.response or "", row_of(sample)
    given = await asyncio.to_thread(task.reward, reply, row) if task.slow else task.reward(reply, row)
    parts = plain_parts(given, task.reward)
    if record is None:  # of another generate hook
        return sum(parts.values())
    accuracy = task.accuracy(parts)
    record = replace(record, reward_parts=parts, accuracy=accuracy)
    if not record.evaluation:
        reward = rewards.run_of(host).reward
        parts = plain_parts(await reward.parts(rewards.answered(config, sample, record)), reward.parts)
        pace = min(1.0, record.counts["rounds"] / (record.counts["chunks"] + 1))
        paid = turn_cost(config) * pace * max(0.0, accuracy)
        tokens = config.mem_max_final if task.malformed(reply, row) else len(record.turns[-1].log_probs)
        long = overlong_cost(reward.settings, tokens, config.mem_max_final)
        parts |= ({"turn_cost": -paid} if paid else {}) | ({"overlong": -long} if long else {})
        record = replace(record, reward_parts=parts)
    write_scores(sample, record)
    return sum(parts.values())


_failed_groups: Counter[str] = Counter()
"""Consecutive groups in which no trajectory finished, by run folder."""
_equal_groups: Counter[str] = Counter()
"""Consecutive groups whose trajectories are all worth the same, by run folder."""
EQUAL_ROLLOUTS = 20
"""The run ends after this many rollouts' worth of them."""


def nonzero_std(args: Any, samples: list[Any], **kwargs: Any) -> bool:
    """Keep the group iff at least two usable trajectories have different rewards, those of their turns included.

    Source: DAPO, arXiv 2503.14476, section 3.2. An element of the group may be a list of Samples of one trajectory,
    which counts once. Hosts sample until a batch is full, so the run ends after a rollout's worth of consecutive
    groups in which no trajectory finished (AllFailed), and after EQUAL_ROLLOUTS times as many of equal rewards
    (ConfigError).
    """
    host = HostArgs(args)
    group = [s[0] if isinstance(s, list) else s for s in samples]
    _failed_groups[host.save] = 0 if any(map(ended, group)) else _failed_groups[host.save] + 1
    if _failed_groups[host.save] >= host.rollout_groups:
        require_survivors(group, f"{host.rollout_groups} consecutive groups")
    differ = len(no_signal.worths(host, group)) > 1
    _equal_groups[host.save] = 0 if differ else _equal_groups[host.save] + 1
    equal = _equal_groups[host.save]
    if equal in (no_signal.ROLLOUTS * host.rollout_groups, EQUAL_ROLLOUTS * host.rollout_groups):
        told = (f"{equal} consecutive groups each had equal rewards. {no_signal.explanation(host, group)}; or set "
                "DYNAMIC_FILTER=none")
        if equal == EQUAL_ROLLOUTS * host.rollout_groups:
            raise ConfigError(told)
        logger.warning(told)
    return differ


# --- rollouts, evaluation and logs --------------------------------------------------------------------------------


def rollout_of_given_replies(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """LOSS=sft in a host: one rollout of the next rows with the replies that they give; no server is asked.

    Raises:
        AllFailed: not one row could be taught; the first one's reason.
    """
    groups = data_source.get_samples(HostArgs(args).rollout_groups)
    samples = [sample for group in groups for sample in group]

    async def teach(sample: Any) -> None:
        sample.reward = await reward_func(args, await generate(args, sample, {}))

    asyncio.run(gather_or_cancel(*map(teach, samples)))
    require_survivors(samples, "a rollout")
    return as_output(groups)


def log_rollout(
    rollout_id: int, args: Any, samples: list[Any], rollout_extra_metrics: dict[str, Any] | None, rollout_time: float
) -> bool:
    """Score what looks at the whole rollout, and log it: ``rollout/memory/<name>`` in the host's metrics, and a line.

    Hosts give None for their metrics where they replay saved rollouts. Returns False: the host logs its own too.
    """
    host = HostArgs(args)
    rewards.apply(host, samples, rollout_id)
    if scored := not host.config.supervised:
        no_signal.watch(host, samples)
    metrics = rollout_metrics(samples, host.reward_key, scored=scored) | row_counts(args, samples)
    metrics |= rewards.metrics(host) if scored else {}
    traces.begin(host, rollout_id)  # the converter, which has the advantages, keeps what was read
    _merge(rollout_extra_metrics, "rollout/memory", metrics)
    logger.info("rollout %s: %s | %.1f s", rollout_id, metrics_line(metrics), rollout_time)
    return False


def log_eval(rollout_id: int, args: Any, data: dict[str, Any], extra_metrics: dict[str, Any] | None) -> bool:
    """Log an evaluation, one line for each data set: ``eval/<dataset>/memory/<name>``. Returns False."""
    host = HostArgs(args)
    for dataset, results in data.items():
        # Optional in the hosts' contract: an own evaluation function may give rewards alone.
        if samples := results.get("samples"):
            metrics = rollout_metrics(samples, host.eval_reward_key)
            _merge(extra_metrics, f"eval/{dataset}/memory", metrics)
            logger.info("eval %s %s: %s", rollout_id, dataset, metrics_line(metrics))
    return False


def _merge(host_metrics: dict[str, Any] | None, prefix: str, metrics: Mapping[str, float]) -> None:
    if host_metrics is not None:
        host_metrics.update({f"{prefix}/{name}": value for name, value in metrics.items()})
