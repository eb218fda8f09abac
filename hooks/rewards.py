"""REWARD and MEM_IR beside a host: made from settings, applied to whole rollouts, their state kept in between.

Hosts call the log hook with the rollout's number and then the converter without it, in one process; ``apply`` is
called by whichever comes first and does its work once. State is kept beside the checkpoints::

    SAVE_PATH/reward_state/0000017/     as rollout 17 left it; rollout 18 starts from it

Invariants:
- rollout n is scored with the state that rollout n - 1 left, in this process or in one before it; ``prepare`` or the
  log hook tells n. Where a run continues in slime or vime, which tell it only after sampling, an answer scored alone
  sees a fresh state until then (only the weights of ``answer_utility``'s warm-up depend on that);
- a state folder is whole or absent; the newest three stay, as a host that samples ahead writes its checkpoint later,
  and those that a checkpoint continues from. Those of later rollouts, of a run that was set back, are left as they
  are: a journal may still lead there;
- failed and aborted trajectories, and those of another generate hook, are in no batch;
- LOSS=sft gives no rewards: none is loaded.

``REWARD=answer_utility`` asks the chat model at ANSWER_URL, with ANSWER_KEY in the request headers alone. What it does
not answer after all retries, or refuses, and a judge's reply without a score are missing rewards: the trajectory
fails, counted as ``answer_model``, and is masked. A key, route or name that is wrong from the first request on ends
the run, and so does a rollout of nothing but failures.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..agents import check_agent
from ..agents.records import FailureKind, TurnFailed
from ..checkpoints.folders import number_of, numbered
from ..config import Config, ConfigError
from ..rewards.answer_utility import AnswerUtility, Frozen, judged_score
from ..rewards.intrinsic.encoder import make_encoder
from ..rewards.intrinsic.memory import MODES, EntropySettings, Episodic, TextReward
from ..rewards.reward import Added, Answered, CosineLength, Reward, plain_parts
from ..rewards.sessions import load_wording
from ..system.files import naming, remove
from ..system.plugins import load_class, parse_settings
from ..system.server_url import KEYS, key_from
from .host import HostArgs
from .reader import reply_form, row_of, stored_text, task_by_name, task_of
from .sample import Record, as_reward, ended, write_scores

REWARDS: dict[str, type[Reward]] = {"task": Reward, "cosine": CosineLength, "answer_utility": AnswerUtility}


# --- checked before anything is started -----------------------------------------------------------------------------


def check_plugins(config: Config, *, training: bool = True) -> None:
    """Load the classes that AGENT, TASK and REWARD name, with their settings; an evaluation and LOSS=sft load no
    reward.

    Raises:
        ConfigError: one is not there, lacks a method, or cannot work under these settings.
    """
    check_agent(config)
    for name in config.tasks:
        task_by_name(name, config)
    if training and not config.supervised:
        load_reward(config)


# --- made from settings ---------------------------------------------------------------------------------------------


def load_reward(config: Config, host: HostArgs | None = None) -> Reward:
    """A fresh reward of the configured kind, with MEM_IR's on top; without ``host`` it is only for checking
    settings. Raises ConfigError.
    """
    kind = load_class("REWARD", config.reward, REWARDS, Reward)
    settings: Any = parse_settings(kind.Settings, config.reward_args, "REWARD_ARGS")
    own = kind(settings)
    if isinstance(own, AnswerUtility):
        own = _answer_utility(config, settings, host)
    if config.mem_ir == "no":
        return own
    more: Any = parse_settings(MODES[config.mem_ir], config.mem_ir_args, "MEM_IR_ARGS")
    if isinstance(more, EntropySettings):
        return Added(own, TextReward(more))
    encoder = make_encoder(more.model, "MEM_IR_ARGS: model", trust_remote_code=config.trust_remote_code)
    return Added(own, Episodic(more, encoder))


def _answer_utility(config: Config, settings: Any, host: HostArgs | None) -> AnswerUtility:
    if config.mem_ir != "no":
        raise ConfigError("REWARD=answer_utility needs MEM_IR=no, as its bonus can lift an invalid ranking to the top")
    if not settings.alpha:
        return AnswerUtility(settings)
    if not (config.answer_url and settings.model):
        raise ConfigError("REWARD=answer_utility asks a chat model; set ANSWER_URL, and its name in REWARD_ARGS: "
                          "model=NAME")
    from .chat_model import ChatClient, ChatFailed, ChatSettings  # whose library takes a second

    wording = load_wording(settings.prompts)
    answering = ChatSettings(
        url=config.answer_url, model=settings.model, key=key_from(os.environ, ("ANSWER_KEY", *KEYS)),
        concurrency=settings.concurrency, max_output_tokens=settings.max_tokens, temperature=settings.temperature)
    if host is None:
        return AnswerUtility(settings)

    async def ask(chat: ChatClient, prompt: str, seed: int) -> str:
        try:
            return await chat.ask([{"role": "user", "content": prompt}], seed)
        except ChatFailed as failed:
            if failed.holds_for_all and not chat.answered:
                raise ConfigError(f"REWARD=answer_utility: {failed}") from None
            raise TurnFailed(FailureKind.ANSWER_MODEL, str(failed)) from failed

    async def judge(prompt: str, seed: int) -> float:
        reply = await ask(judging, prompt, seed)
        if (score := judged_score(reply)) is None:
            raise TurnFailed(FailureKind.ANSWER_MODEL, f"{answering.url}: no score from 0 to 1: {reply!r:.80}")
        return score

    judging = ChatClient(replace(answering, temperature=0.0))
    frozen = Frozen(partial(ask, ChatClient(answering)), judge, partial(stored_text, host), wording, config.seed_for)
    return AnswerUtility(settings, frozen)


# --- applied to rollouts --------------------------------------------------------------------------------------------


@dataclass
class Run:
    """The reward of a run in this process, and whether it has the state of the rollouts so far."""

    reward: Reward
    has_state: bool
    continued: bool = False


RUNS: dict[tuple[Config, str], Run] = {}
"""By configuration and SAVE_PATH."""


def run_of(host: HostArgs) -> Run:
    key = (host.config, host.save)
    if key not in RUNS:
        reward = load_reward(host.config, host)
        RUNS[key] = Run(reward, type(reward).save is not Reward.save)
    return RUNS[key]


def metrics(host: HostArgs) -> dict[str, float]:
    """What the run's reward tells about its state and the last rollout."""
    reward = run_of(host).reward
    return plain_parts(reward.metrics(), reward.metrics)


def answered(config: Config, sample: Any, record: Record) -> Answered:
    """The trajectory as rewards see it."""
    row = row_of(sample)
    reasoning = task_of(config, sample).reasoning(reply_form(sample)[0] + sample.response)
    counts = {**record.counts, "max_final_tokens": config.mem_max_final}
    return Answered(row.question, row.golds, row.metadata, sample.response, record.reward_parts,
                    record.accuracy or 0.0, sample.group_index, reasoning, counts)


def prepare(host: HostArgs, rollout: int) -> None:
    """Bring the reward to the state before ``rollout``, before it is sampled; for a host that can say so.

    Raises:
        ConfigError: the reward has a state, and that one is not there.
    """
    _continue(host, run_of(host), rollout)


def apply(host: HostArgs, samples: Sequence[Any], rollout: int | None) -> None:
    """Add what the whole rollout earns to the rewards of its samples, unless that was done.

    Args:
        rollout: its number; None where the host does not tell.

    Raises:
        ConfigError: the reward has a state, and the one before this rollout is not there.
    """
    if host.config.supervised:
        return
    run = run_of(host)
    if type(run.reward).batch_parts is Reward.batch_parts:
        return
    batch = [(sample, record) for sample in samples if ended(sample) and (record := Record.of(sample))]
    if any(record.batch_scored for _, record in batch) or (not batch and rollout is None):
        return  # where all have failed, the log hook has kept the state already
    _continue(host, run, rollout)
    told = [answered(host.config, sample, record) for sample, record in batch]
    earned = run.reward.batch_parts(told) if batch else []
    for (sample, record), given in zip(batch, earned, strict=True):
        parts = plain_parts(given, run.reward.batch_parts, "batch")
        total = {**record.reward_parts, **parts}
        write_scores(sample, replace(record, reward_parts=total, batch_scored=True))
        sample.reward = as_reward(sum(total.values()), host.reward_key)
    if run.has_state and rollout is not None:
        _save(host, run.reward, rollout)


# --- the state ------------------------------------------------------------------------------------------------------


def _continue(host: HostArgs, run: Run, rollout: int | None) -> None:
    """Bring the reward of a fresh process to the state before ``rollout``, if it has one."""
    if not run.has_state or run.continued:
        return
    if rollout is None:
        raise ConfigError(f"REWARD={host.config.reward!r} MEM_IR={host.config.mem_ir}: its state needs the rollout's "
                          "number; add --custom-rollout-log-function-path mem_agent.rollout.log_rollout")
    try:
        if rollout > 0:
            run.reward.load(_folder(host, rollout - 1))
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename}: the reward's state before rollout {rollout} is not there; set REWARD "
                          "and MEM_IR as they were, restore the folder, or start a new SAVE_PATH") from None
    run.continued = True


def _save(host: HostArgs, reward: Reward, rollout: int) -> None:
    """Write the state that ``rollout`` left, and remove older ones that no checkpoint continues from."""
    final = _folder(host, rollout)
    draft = final.with_name(f".{final.name}.writing")
    remove(draft)
    draft.mkdir(parents=True)
    with naming(final):
        reward.save(draft)
    remove(final)
    draft.rename(final)
    kept = {number_of(folder) for folder in numbered(host.save)}
    for old in final.parent.glob("[0-9]*"):
        if int(old.name) < rollout - 2 and int(old.name) not in kept:
            remove(old)


def _folder(host: HostArgs, rollout: int) -> Path:
    return Path(host.save) / "reward_state" / f"{rollout:07d}"
