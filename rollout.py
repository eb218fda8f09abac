"""Every hook that a host calls, but for the converter (``custom_convert.py``).

    --custom-generate-function-path mem_agent.rollout.generate
    --custom-rm-path mem_agent.rollout.reward_func
    --dynamic-sampling-filter-path mem_agent.rollout.nonzero_std            (optional)
    --custom-rollout-log-function-path mem_agent.rollout.log_rollout
    --rollout-function-path mem_agent.rollout.rollout_fully_async             (FULLY_ASYNC)
    --eval-function-path mem_agent.rollout.evaluate
    --custom-eval-rollout-log-function-path mem_agent.rollout.log_eval

Invariants, for slime, vime and the embedded host alike:
- one trajectory is one ``Sample``, in training and in evaluation; its turns are in its record (``hooks.record``), from
  which ``custom_convert`` makes the training rows;
- ``sample.tokens`` is a sequence the policy really saw: the final turn's prompt and reply;
- ``sampling_params``, ``args`` and ``sample.prompt`` are never changed (hosts share and requeue them);
- nothing raises but a bad configuration, ``hooks.refusals`` and ``hooks.survivors``: every other error becomes status
  FAILED with reward 0, a fully masked placeholder and a counted reason; the group statistics leave it out;
- an abort ends the trajectory before its next turn, status ABORTED.

``sample.metadata`` carries the document inline (``context``) or by id (``context_id``, see ``document_store``), the
accepted answers (``ground_truth``), perhaps a task of its own (``task``) and what the reply goes on from
(``reply_prefix``).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .agents import turn_cost
from .agents.chunking import Chunks
from .agents.interface import Reading
from .agents.loop import run_trajectory
from .agents.records import FailureKind, Generation, Trajectory, TurnFailed, TurnKind, TurnRequest
from .client.rollout_client import client_for
from .client.sampling import for_turn, with_stops
from .client.siblings import WORTH_TOKENS, turn_key
from .config import Config, ConfigError
from .custom_convert import row_counts
from .hooks import batch_reward, filter_cap, keep_trajectories, open_groups, refusals, survivors
from .hooks.given_replies import run_given, teach
from .hooks.host import HostArgs, as_output, evaluate_in_host, is_aborting, sample_asynchronously
from .hooks.keep_evaluation import keep_evaluation
from .hooks.metrics import best_of, find_golds, metrics_line, rollout_metrics
from .hooks.reader import Reader, context_of, reader_for
from .hooks.record import MemoryRecord, Record, failed, write_failure, write_record, write_scores
from .hooks.sample import as_reward, ended, gold_answers, lost, reward_of
from .hooks.task_row import messages_before, question_of, reply_form, row_of, task_name, task_of
from .hooks.turn_rewards import Rewards, turn_rewards, turn_weights
from .rewards.overlong import overlong_share
from .rewards.reward import plain_parts

__all__ = [
    "evaluate", "generate", "log_eval", "log_rollout", "nonzero_std", "reward_func", "rollout_fully_async",
    "rollout_of_given_replies",
]

logger = logging.getLogger(__name__)


async def generate(args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False) -> Any:
    """Run one trajectory and write it into ``sample``.

    Args:
        args: the host's namespace; ``hooks.host.HostArgs`` lists what is read of it.
        sample: the host's Sample; ``prompt`` is the question, or messages (``hooks.task_row``).
        sampling_params: the host's dict; ``max_new_tokens`` is replaced by each turn's own budget.
        evaluation: the loop is the same; only ``reward_func`` measures instead of training.

    Raises:
        ConfigError: the configuration cannot work for any sample.
    """
    host = HostArgs.of(args)
    if host.refused:
        raise ConfigError(host.refused)
    sample.reward, sample.remove_sample = None, False
    await open_groups.begin(host, sample, lambda: is_aborting(args))
    notes = _Notes()
    try:
        trajectory, notes = await _run(args, host, sample, sampling_params, evaluation)
    except (ConfigError, asyncio.CancelledError):
        open_groups.end(host, sample, broken_off=True)
        raise
    except TurnFailed as error:
        trajectory = failed(error.kind, str(error))
    except Exception as error:  # the rollout boundary: one bad trajectory must not end the run
        logger.exception("trajectory %s failed", sample.index)
        trajectory = failed(FailureKind.INTERNAL, f"{type(error).__name__}: {error}")
    if trajectory.failure:
        logger.warning("trajectory %s: %s: %s", sample.index, trajectory.failure.kind, trajectory.failure.message)
    task = task_name(host.config, sample)
    record = Record.of_trajectory(
        trajectory, notes.memories, notes.states, notes.weights, notes.recalled, evaluation=evaluation, task=task
    )
    written = write_record(sample, record, trajectory, host.reward_key)
    open_groups.end(host, sample)
    return written


# Newer vime cancels the task of a function that carries this mark, instead of draining its requests.
generate.abort_mode = "request"  # type: ignore[attr-defined]


async def reward_func(args: Any, sample: Any, **kwargs: Any) -> Any:
    """What the outcome of a trajectory is worth: the sum of the task's parts, the turns' cost, and REWARD's parts.

    In training a right answer pays for its rounds: ``MEM_TURN_COST * rounds / (chunks + 1)`` of what it is worth.
    Reading all chunks one by one costs MEM_TURN_COST, however long the document. So any right answer is worth more
    than a wrong one, of two right ones the quicker is worth more, and ending early never pays where it loses more than
    MEM_TURN_COST of the right answers. Wrong answers pay nothing: among siblings that are all wrong, the cost would
    only teach to give up. A final reply within OVERLONG_BUFFER tokens of its limit pays up to OVERLONG_PENALTY, right
    or wrong. Evaluation charges nothing and adds nothing.

    What cannot be scored (an unknown task or metric, a reward that raises) fails, is counted, and is worth 0.

    Under LOSS=sft all trajectories are worth 0: their replies were given.

    ``sample`` may be a list (hosts do that for groups and fan-outs); the result is then a list.
    """
    host = HostArgs.of(args)
    if isinstance(sample, list):
        return [await _reward(host, one) for one in sample]
    return await _reward(host, sample)


async def _reward(host: HostArgs, sample: Any) -> Any:
    if lost(sample) or _is_given(host, sample):
        return as_reward(0.0, host.reward_key)
    try:
        reward = await _sum_of_parts(host, sample)
    except ConfigError as error:
        refusals.ends(host, error)
        kind, message = FailureKind.INTERNAL, str(error)
    except TurnFailed as error:
        kind, message = error.kind, str(error)
    except Exception as error:  # as in generate: one bad row must not end the run
        logger.exception("trajectory %s cannot be scored", sample.index)
        kind, message = FailureKind.INTERNAL, f"{type(error).__name__}: {error}"
    else:
        refusals.scored(host, sample)
        return as_reward(reward, host.reward_key)
    logger.warning("trajectory %s: %s: %s", sample.index, kind, message)
    write_failure(sample, kind, message, host.reward_key)
    refusals.scored(host, sample)
    return as_reward(0.0, host.reward_key)


def _is_given(host: HostArgs, sample: Any) -> bool:
    """Whether its replies were the row's own."""
    record = Record.of(sample) if host.config.supervised else None
    return record is not None and not record.evaluation


async def _sum_of_parts(host: HostArgs, sample: Any) -> float:
    task, reply, row = task_of(host.config, sample), sample.response or "", row_of(sample)
    parts = plain_parts(await asyncio.to_thread(task.reward, reply, row) if task.slow else task.reward(reply, row))
    record = Record.of(sample)
    if record is None:  # of another generate hook
        return sum(parts.values())
    accuracy = task.accuracy(parts)
    record = replace(record, reward_parts=parts, accuracy=accuracy)
    if not record.evaluation:
        reward = batch_reward.reward_for(host)
        parts = plain_parts(await reward.parts(batch_reward.answered(host.config, sample, record)))
        paid = _turn_cost(host.config, record) * max(0.0, accuracy)
        parts |= {"turn_cost": -paid} if paid else {}
        long = _overlong(host.config, record, malformed=task.malformed(reply, row))
        parts |= {"overlong": -long} if long else {}
        record = replace(record, reward_parts=parts)
    write_scores(sample, record)
    return sum(parts.values())


def _turn_cost(config: Config, record: Record) -> float:
    """The share of a right answer's worth that its rounds cost."""
    cost = turn_cost(config)
    return cost * min(1.0, record.counts["rounds"] / (record.counts["chunks"] + 1)) if cost else 0.0


def _overlong(config: Config, record: Record, *, malformed: bool) -> float:
    """What the final turn pays for its length; a reply that its task cannot read pays as the longest one does, so it
    never gains on those that it can by being short."""
    if not (config.overlong_buffer and record.turns):
        return 0.0
    tokens = config.mem_max_final if malformed else record.turns[-1].response_length
    return config.overlong_penalty * overlong_share(tokens, config.mem_max_final, config.overlong_buffer)


def nonzero_std(args: Any, samples: list[Any], **kwargs: Any) -> bool:
    """Keep the group iff at least two usable trajectories have different rewards, those of their turns included.

    DYNAMIC_FILTER_ON says which reward: what is known of each alone, that with what the whole rollout will add, or
    what the task said of the answer and nothing else.

    Source: DAPO, arXiv 2503.14476, section 3.2. An element of the group may be a list of Samples of one trajectory,
    which counts once. Failed and aborted trajectories are no evidence either way; where nothing but failures comes,
    the run ends (``hooks.survivors``). Once a rollout has judged MAX_GEN_BATCHES, it takes what there is
    (``hooks.filter_cap``).
    """
    host = HostArgs.of(args)
    group = [s[0] if isinstance(s, list) else s for s in samples]
    survivors.judged(host, group)
    trajectories = [s for s in group if ended(s)]
    by_turn = host.config.mem_alpha < 1 and host.config.dynamic_filter_on != "accuracy"
    worth = _compared_rewards(host, trajectories)
    each = {(one, *(_state_totals(s) if by_turn else ())) for one, s in zip(worth, trajectories, strict=True)}
    return filter_cap.keeps(host, differs=len(each) > 1)


def _compared_rewards(host: HostArgs, samples: Sequence[Any]) -> Sequence[float | None]:
    if host.config.dynamic_filter_on == "total":
        return batch_reward.totals(host, samples)
    rewards = [reward_of(s, host.reward_key) for s in samples]
    if host.config.dynamic_filter_on == "reward":
        return rewards
    records = [Record.of(s) for s in samples]
    return [reward if record is None else record.accuracy for record, reward in zip(records, rewards, strict=True)]


def _state_totals(sample: Any) -> Sequence[float]:
    record = Record.of(sample)
    return (record.state_totals if record else None) or ()


# --- rollouts, evaluation and logs ----------------------------------------------------------------------------------


def rollout_fully_async(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """One rollout by the host's fully asynchronous function, whose worker samples on while the trainer trains."""
    return sample_asynchronously(args, rollout_id, data_source, evaluation)


def rollout_of_given_replies(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """LOSS=sft in a host: one rollout of the next rows with the replies that they give; no server is asked.

    Raises:
        MemAgentError: not one row could be taught; the first one's reason.
    """
    assert not evaluation, "there is no engine to evaluate with"
    groups = data_source.get_samples(HostArgs.of(args).rollout_groups)
    asyncio.run(teach([sample for group in groups for sample in group], partial(_given, args)))
    return as_output(groups)


async def _given(args: Any, sample: Any) -> None:
    sample.reward = await reward_func(args, await generate(args, sample, {}))


def evaluate(args: Any, rollout_id: int, data_source: Any, evaluation: bool = True) -> Any:
    """One evaluation of all of the host's evaluation sets, through the same ``generate`` hook as training."""
    assert evaluation, "this is the evaluation function; training has --rollout-function-path"
    return evaluate_in_host(args, rollout_id, data_source)


def log_rollout(
    rollout_id: int, args: Any, samples: list[Any], rollout_extra_metrics: dict[str, Any] | None, rollout_time: float
) -> bool:
    """Score what looks at the whole rollout, and log it: ``rollout/memory/<name>`` in the host's metrics, and a line.

    Hosts give None in place of their metrics where they replay saved rollouts; the line is then all there is. Returns
    False, so the host logs what it always logs.
    """
    host = HostArgs.of(args)
    refusals.raise_waiting(host)
    batch_reward.apply(host, samples, rollout_id)
    dropped = open_groups.take(host, samples) | filter_cap.take(host)
    scored = not host.config.supervised
    metrics = rollout_metrics(samples, host.reward_key, scored=scored) | row_counts(args, samples) | dropped
    metrics |= batch_reward.metrics(host) if scored else {}
    metrics |= keep_trajectories.take(host)  # of the rollout before: the converter, which has them kept, comes next
    keep_trajectories.begin(host, rollout_id)
    _merge(rollout_extra_metrics, "rollout/memory", metrics)
    logger.info("rollout %s: %s | %.1f s", rollout_id, metrics_line(metrics), rollout_time)
    return False


def log_eval(rollout_id: int, args: Any, data: dict[str, Any], extra_metrics: dict[str, Any] | None) -> bool:
    """Log an evaluation, one line for each data set: ``eval/<dataset>/memory/<name>``. Returns False."""
    host = HostArgs.of(args)
    keep_evaluation(host, rollout_id, {name: results.get("samples") or [] for name, results in data.items()})
    for dataset, results in data.items():
        # ``samples`` is optional in the hosts' contract: an own evaluation function may give rewards alone.
        samples = results.get("samples") or []
        metrics = rollout_metrics(samples, host.eval_reward_key) | best_of(samples, host)
        if metrics["trajectories"]:
            _merge(extra_metrics, f"eval/{dataset}/memory", metrics)
            logger.info("eval %s %s: %s", rollout_id, dataset, metrics_line(metrics))
    return False


def _merge(host_metrics: dict[str, Any] | None, prefix: str, metrics: Mapping[str, float]) -> None:
    if host_metrics is not None:
        host_metrics.update({f"{prefix}/{name}": value for name, value in metrics.items()})


# --- one trajectory -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Notes:
    """What is known of a trajectory beside its turns; see ``Record.of_trajectory``."""

    memories: Sequence[MemoryRecord] = ()
    states: Sequence[Rewards] = ()
    weights: Sequence[float] = ()
    recalled: Sequence[str] = ()


async def _run(
    args: Any, host: HostArgs, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool
) -> tuple[Trajectory, _Notes]:
    config = host.config
    question = question_of(sample)
    if not question:
        raise TurnFailed(FailureKind.NO_QUESTION, "the prompt is empty")
    context = await context_of(host, sample)
    reader = await asyncio.to_thread(reader_for, host.hf_checkpoint, config, host.chat_template_kwargs)
    question_ids = reader.vocabulary.encode_text(question)
    if len(question_ids) > config.mem_max_question:
        raise TurnFailed(
            FailureKind.LONG_QUESTION,
            f"question of {len(question_ids)} tokens, MEM_MAX_QUESTION={config.mem_max_question}",
        )
    document = await reader.read(context, config, sample.index, evaluation=evaluation)
    prefix, tokens = reply_form(sample)
    prefix_ids = reader.vocabulary.encode_text(prefix)
    before = messages_before(sample) if reader.agent.shows_messages else ()
    reading = Reading(question_ids, document, prefix_ids, tokens if evaluation else 0, before)
    if config.supervised and not evaluation:
        return await run_given(reader, reading, config, sample), _Notes()
    client = client_for(host.router, config)
    sampling = with_stops(sampling_params, reader.vocabulary)
    group = _group_key(config, sample, context or question)
    leads = _leads(host, evaluation)
    warmed = 0

    async def sample_turn(request: TurnRequest, number: int) -> Generation:
        nonlocal warmed
        turn_sampling = for_turn(sampling, number)
        key = turn_key(group, request) if config.mem_routing == "chunk" else group
        weight = _left_to_read(host, document, request, number)
        ask = partial(client.generate, routing_key=key, is_aborted=lambda: is_aborting(args), weight=weight)
        with session.asking(key):
            if leads and request.shared >= WORTH_TOKENS:
                shared = request.prompt_ids[: request.shared]
                if await client.ahead.follow(group, turn_key(group, request), partial(ask, shared, 1, turn_sampling)):
                    warmed += len(shared)
            room = max(0, host.router.max_tokens - len(request.prompt_ids))
            return reader.of_model(await ask(request.prompt_ids, request.max_new_tokens, turn_sampling), room)

    sessions = client.sessions.trajectory(group, _siblings(host, evaluation))
    with client.ahead.trajectory(group), sessions as session:
        trajectory = await run_trajectory(reader.agent, reading, sample_turn, lambda: is_aborting(args))
    if leads:
        trajectory.counts["warmed_tokens"] = warmed
    # Hundreds of memories take a while to decode, and other trajectories need this loop meanwhile.
    return trajectory, await asyncio.to_thread(_noted, config, reader, trajectory, sample)


def _noted(config: Config, reader: Reader, trajectory: Trajectory, sample: Any) -> _Notes:
    vocabulary, keep = reader.vocabulary, config.keep_trajectories > 0
    return _Notes(
        find_golds(trajectory.memories, vocabulary.decode, gold_answers(sample), keep=keep),
        turn_rewards(config, reader.agent, trajectory, sample),
        turn_weights(config, vocabulary.reply_text, trajectory, sample),
        [vocabulary.decode(turn.recalled) for turn in trajectory.turns] if keep else (),
    )


def _group_key(config: Config, sample: Any, text: str) -> str:
    """Siblings share a document, so they share a key; in evaluation hosts give no group, so the text decides."""
    if config.mem_routing == "trajectory":
        return f"trajectory-{sample.index}"
    if sample.group_index is not None:
        return f"group-{sample.group_index}"
    return "document-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _leads(host: HostArgs, evaluation: bool) -> bool:
    """Whether the first sibling at a chunk goes ahead."""
    if host.config.mem_lead == "auto" and host.router.dialect.shares_while_computing:
        return False
    return host.config.mem_lead != "never" and _siblings(host, evaluation) > 1


def _siblings(host: HostArgs, evaluation: bool) -> int:
    """Trajectories that share a key."""
    if host.config.mem_routing == "trajectory":
        return 1
    return host.eval_samples if evaluation else host.group_size


def _left_to_read(host: HostArgs, document: Chunks, request: TurnRequest, number: int) -> int:
    """Chunks that the trajectory has yet to read, one for each turn: the weight of its ``number``-th turn.

    A turn that merges counts as a chunk, and whoever may end early as if it did not; an answer weighs nothing. Where
    groups are sampled ahead of a batch, which may never need them, all turns weigh the same, and the oldest go first.
    """
    if request.kind is TurnKind.FINAL or host.samples_ahead:
        return 0
    return max(0, len(document.chunks) - number)
