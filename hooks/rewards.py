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
not answer after all retries is a missing reward: the trajectory fails, counted as ``answer_model``, and is masked;
what it refuses as ``answer_refused``, a judge's reply without a score as ``answer_score``. A key, route or name that
is wrong from the first request on ends the run, and so does a rollout of nothing but failures.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..agents.records import FailureKind, TurnFailed
from ..checkpoints.folders import number_of, numbered
from ..config import Config, ConfigError
from ..rewards.answer_utility import AnswerUtility, AnswerUtilitySettings, Frozen, judged_score
from ..rewards.intrinsic.encoder import make_encoder
from ..rewards.intrinsic.memory import MODES, EntropySettings, Episodic, TextReward
from ..rewards.reward import Added, Answered, CosineLength, Reward, plain_parts
from ..rewards.sessions import load_wording
from ..system.files import naming, remove
from ..system.plugins import load_class, make, parse_settings
from ..system.server_url import KEYS, key_from
from .host import HostArgs
from .reader import stored_text
from .sample import Record, as_reward, ended, write_scores
from .task_row import reply_form, row_of, task_of

if TYPE_CHECKING:
    from .chat_model import ChatClient  # whose library takes a second, which other rewards need not wait

logger = logging.getLogger(__name__)

REWARDS: dict[str, type[Reward]] = {"task": Reward, "cosine": CosineLength, "answer_utility": AnswerUtility}


# --- made from settings ---------------------------------------------------------------------------------------------


def load_reward(config: Config, host: HostArgs | None = None) -> Reward:
    """A fresh reward of the configured kind, with MEM_IR's on top; without ``host`` it is only for checking
    settings. Raises ConfigError.
    """
    own = _answer_utility(config, host) if config.reward == "answer_utility" else load_own_reward(config)
    if config.mem_ir_args and config.mem_ir == "no":
        raise ConfigError(f"MEM_IR_ARGS={config.mem_ir_args!r}: MEM_IR=no takes none; set MEM_IR, or leave it out")
    return own if config.mem_ir == "no" else Added(own, _intrinsic(config))


def load_own_reward(config: Config) -> Reward:
    """A fresh reward of REWARD's kind alone. Raises ConfigError."""
    kind = load_class("REWARD", config.reward, REWARDS, Reward)
    return make("REWARD", config.reward, kind, parse_settings(kind.Settings, config.reward_args, "REWARD_ARGS"))


def _intrinsic(config: Config) -> Reward:
    """MEM_IR's reward. Raises ConfigError."""
    settings = parse_settings(MODES[config.mem_ir], config.mem_ir_args, "MEM_IR_ARGS")
    if isinstance(settings, EntropySettings):
        return TextReward(settings)
    encoder = make_encoder(settings.model, "MEM_IR_ARGS: model", trust_remote_code=config.trust_remote_code)
    return Episodic(settings, encoder)


def _answer_utility(config: Config, host: HostArgs | None) -> AnswerUtility:
    settings = parse_settings(AnswerUtilitySettings, config.reward_args, "REWARD_ARGS")
    if config.mem_ir != "no":
        raise ConfigError("REWARD=answer_utility needs MEM_IR=no, as its bonus can lift an invalid ranking to the top")
    if settings.alpha and not (config.answer_url and settings.model):
        raise ConfigError("REWARD=answer_utility asks a chat model; set ANSWER_URL, and its name in REWARD_ARGS: "
                          "model=NAME")
    wording = load_wording(settings.prompts)
    if not settings.alpha:
        return AnswerUtility(settings)
    from .chat_model import ChatClient, ChatSettings

    answering = ChatSettings(
        url=config.answer_url, model=settings.model, key=key_from(os.environ, ("ANSWER_KEY", *KEYS)),
        concurrency=settings.concurrency, max_output_tokens=settings.max_tokens, temperature=settings.temperature)
    if host is None:
        return AnswerUtility(settings)
    ask, judging = partial(_ask, ChatClient(answering)), ChatClient(replace(answering, temperature=0.0))
    document = partial(stored_text, host)
    return AnswerUtility(settings, Frozen(ask, partial(_judge, judging), document, wording, config.seed_for))


async def _ask(chat: ChatClient, prompt: str, seed: int) -> str:
    from .chat_model import ChatFailed

    try:
        return await chat.ask([{"role": "user", "content": prompt}], seed)
    except ChatFailed as failed:
        if failed.holds_for_all and not chat.counts["answered"]:
            raise ConfigError(f"REWARD=answer_utility: {failed}") from None
        refused = failed.kind is FailureKind.REJECTED
        raise TurnFailed(FailureKind.ANSWER_REFUSED if refused else FailureKind.ANSWER_MODEL, str(failed)) from failed


async def _judge(chat: ChatClient, prompt: str, seed: int) -> float:
    reply = await _ask(chat, prompt, seed)
    if (score := judged_score(reply)) is None:
        raise TurnFailed(FailureKind.ANSWER_SCORE, f"{chat.settings.url}: no score from 0 to 1: {reply!r:.80}")
    return score


# --- applied to rollouts --------------------------------------------------------------------------------------------


@dataclass
class Run:
    """The reward of a run in this process, and the rollout whose batch it has to see next."""

    reward: Reward
    next_rollout: int | None = None

    @property
    def has_state(self) -> bool:
        return type(self.reward).save is not Reward.save


RUNS: dict[tuple[Config, str], Run] = {}
"""By configuration and SAVE_PATH."""


def _run(host: HostArgs) -> Run:
    key = (host.config, host.save)
    if key not in RUNS:
        RUNS[key] = Run(load_reward(host.config, host))
    return RUNS[key]


def reward_for(host: HostArgs) -> Reward:
    """The run's one reward in this process."""
    return _run(host).reward


def metrics(host: HostArgs) -> dict[str, float]:
    """What the run's reward tells about its state and the last rollout."""
    return plain_parts(_run(host).reward.metrics())


def answered(config: Config, sample: Any, record: Record) -> Answered:
    """The trajectory as rewards see it."""
    row = row_of(sample)
    reasoning = task_of(config, sample).reasoning(reply_form(sample)[0] + sample.response)
    counts = {**record.counts, "max_final_tokens": config.mem_max_final}
    return Answered(row.question, row.golds, row.metadata, sample.response, record.reward_parts,
                    record.accuracy or 0.0, sample.group_index, reasoning, counts)


def prepare(host: HostArgs, rollout: int) -> None:
    """Bring the reward to the state before ``rollout``, of which nothing is sampled yet; for a host that can say so.

    Raises:
        ConfigError: the reward has a state, and that one is not there.
    """
    run = _run(host)
    if run.has_state:
        _continue(host, run, rollout)
    run.reward.begin()


def apply(host: HostArgs, samples: Sequence[Any], rollout: int | None) -> None:
    """Add what the whole rollout earns to the rewards of its samples, unless that was done.

    Args:
        rollout: its number; None where the host does not tell.

    Raises:
        ConfigError: the reward has a state, and the one before this rollout is not there.
    """
    if host.config.supervised:
        return
    run = _run(host)
    if type(run.reward).batch_parts is Reward.batch_parts:
        return
    number = rollout if run.has_state else None
    batch = [(sample, record) for sample in samples if ended(sample) and (record := Record.of(sample))]
    if any(record.batch_scored for _, record in batch) or (not batch and rollout is None):
        return  # where all have failed, the log hook has kept the state already
    if run.has_state and number is None:
        raise ConfigError(f"REWARD={host.config.reward!r} MEM_IR={host.config.mem_ir}: its state needs the rollout's "
                          "number; add --custom-rollout-log-function-path mem_agent.rollout.log_rollout")
    if number is not None:
        _continue(host, run, number)
    told = [answered(host.config, sample, record) for sample, record in batch]
    earned = run.reward.batch_parts(told) if batch else []
    for (sample, record), parts in zip(batch, map(plain_parts, earned), strict=True):
        total = {**record.reward_parts, **parts}
        write_scores(sample, replace(record, reward_parts=total, batch_scored=True))
        sample.reward = as_reward(sum(total.values()), host.reward_key)
    if number is not None:
        run.next_rollout = number + 1
        _save(host, run.reward, number)


# --- the state ------------------------------------------------------------------------------------------------------


def _continue(host: HostArgs, run: Run, rollout: int) -> None:
    """Bring the reward to the state before ``rollout``."""
    if run.next_rollout == rollout:
        return
    if run.next_rollout is not None:  # set back: what it has seen since must not count
        run.reward = load_reward(host.config, host)
    if rollout > 0:
        folder = _folder(host, rollout - 1)
        try:
            folder.stat()  # a load of a user's own may not look
            run.reward.load(folder)
        except FileNotFoundError as error:
            raise ConfigError(f"{error.filename}: the reward's state before rollout {rollout} is not there; set "
                              "REWARD and MEM_IR as they were, restore the folder, or start a new SAVE_PATH") from None
        logger.info("the reward continues from %s", folder)
    run.next_rollout = rollout


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
