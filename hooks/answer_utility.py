"""``REWARD=answer_utility`` beside a host: its frozen chat model, its documents, and what its settings refuse.

The chat model is ANSWER_URL, or ANSWER_CKPT where the host serves one beside the policy; its key is in the request
headers alone. What it does not answer after all retries is a missing reward: the trajectory fails, counted as
``answer_model``, and is masked; what it refuses as ``answer_refused``, a judge's reply without a score as
``answer_score``. A key, route or name that is wrong from the first request on ends the run, and so does a rollout of
refusals (``refusals.py``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..agents import turn_cost
from ..agents.records import FailureKind, TurnFailed
from ..checkpoints.hf_model import model_positions
from ..client.chat_settings import KEYS, ChatFailed, ChatSettings, key_from
from ..config import Config, ConfigError
from ..rewards.answer_utility import AnswerUtility, AnswerUtilitySettings, Frozen
from ..rewards.judge import BadVerdict, read_verdict
from ..sessions.wording import load_wording
from ..system.plugins import parse_settings
from ..system.server_url import chat_base
from .host import HostArgs
from .reader import stored_text

if TYPE_CHECKING:
    from ..client.chat_client import ChatClient

ANSWER_KEYS = ("ANSWER_KEY", *KEYS)
JUDGE_KEYS = ("JUDGE_KEY",)
"""Of a judge at an address of its own: no other server's key is sent there."""


def check(config: Config) -> AnswerUtilitySettings:
    """The settings of the reward. Raises ConfigError where they cannot work."""
    settings = parse_settings(AnswerUtilitySettings, config.reward_args, "REWARD_ARGS")
    name = "REWARD=answer_utility"
    if settings.alpha and not (config.answer_url or config.answer_ckpt):
        raise ConfigError(f"{name} asks a chat model; set ANSWER_URL, or ANSWER_CKPT, or alpha=0 in REWARD_ARGS")
    if config.answer_url and config.answer_ckpt:
        raise ConfigError("ANSWER_URL and ANSWER_CKPT: one chat model answers; unset one of them")
    if config.answer_url:
        chat_base("ANSWER_URL", config.answer_url, ANSWER_KEYS[0])
        if settings.alpha and not config.answer_model:
            raise ConfigError(f"ANSWER_URL={config.answer_url!r}: set ANSWER_MODEL, the chat model's name there")
    if settings.judge_url:
        chat_base("REWARD_ARGS: judge_url", settings.judge_url, JUDGE_KEYS[0])
        if not settings.judge_model:
            raise ConfigError("REWARD_ARGS: judge_url without judge_model, the judge's name there")
    if config.mem_ir != "no":
        raise ConfigError(f"{name} MEM_IR={config.mem_ir}: replies are session numbers, and a bonus for their form "
                          "could lift one that is no ranking above one that is; take MEM_IR=no")
    if turn_cost(config) >= settings.below:
        raise ConfigError(f"MEM_TURN_COST={config.mem_turn_cost:g}: must be less than below={settings.below:g} of "
                          "REWARD_ARGS, or a valid ranking could be worth less than none")
    if settings.beta and config.dynamic_filter != "none" and config.dynamic_filter_on == "reward":
        raise ConfigError(f"{name}: NDCG joins the reward with the whole rollout, so DYNAMIC_FILTER_ON=reward would "
                          "not see it; take total")
    load_wording(config.sifter_prompts)
    return settings


def answer_utility(config: Config, host: HostArgs | None) -> AnswerUtility:
    """A fresh reward.

    Args:
        host: None where settings are only checked.

    Raises:
        ConfigError: a setting cannot work, or the host serves no chat model.
    """
    settings = check(config)
    if host is None or not settings.alpha:
        return AnswerUtility(settings)
    from ..client.chat_client import ChatClient  # whose library takes a second, which other rewards need not wait

    key = "" if config.answer_ckpt else key_from(os.environ, ANSWER_KEYS)
    answering = ChatSettings(
        url=_url(host), model=_model(config), key=key, concurrency=config.answer_concurrency,
        timeout_s=config.answer_timeout, retries=config.answer_retries,
        max_output_tokens=config.answer_max_tokens, temperature=config.answer_temperature,
        is_own=bool(config.answer_ckpt),
    )
    judging = _judge(settings, answering)
    chat = ChatClient(answering)
    judge = chat if judging is answering else ChatClient(judging)  # one limit for both where both are one
    frozen = Frozen(
        partial(_asked, chat), partial(_judged, judge), partial(stored_text, host),
        load_wording(config.sifter_prompts), config.answer_budget, config.seed_for,
    )
    return AnswerUtility(settings, frozen)


def answer_length(config: Config) -> int:
    """Tokens of the longest request to the frozen model with its reply: its tokenizer may need more than the one that
    counted the sessions. At most what the model can read, where its folder says.
    """
    wanted = config.answer_budget * 3 // 2 + 2048 + config.answer_max_tokens
    folder = Path(config.answer_ckpt)
    limit = model_positions(folder) if (folder / "config.json").is_file() else 0
    return min(wanted, limit or wanted)


def _judge(settings: AnswerUtilitySettings, answering: ChatSettings) -> ChatSettings:
    if not settings.judge_url and not settings.judge_model:
        return answering
    own = answering
    if settings.judge_url:
        own = replace(own, url=settings.judge_url, key=key_from(os.environ, JUDGE_KEYS), is_own=False)
    return replace(own, model=settings.judge_model or own.model, temperature=0.0)


def _url(host: HostArgs) -> str:
    if host.config.answer_url:
        return host.config.answer_url
    if not host.answer_url:
        raise ConfigError(f"ANSWER_CKPT={host.config.answer_ckpt!r}: this host serves no second model; set ANSWER_URL")
    return host.answer_url


def _model(config: Config) -> str:
    return config.answer_model or config.answer_ckpt


async def _asked(chat: ChatClient, prompt: str, seed: int) -> str:
    messages: list[Mapping[str, str]] = [{"role": "user", "content": prompt}]
    try:
        return await chat.ask(messages, seed)
    except ChatFailed as failed:
        if failed.holds_for_all and not chat.counts.answered:
            raise ConfigError(f"REWARD=answer_utility: {failed}") from None
        refused = failed.kind is FailureKind.REJECTED
        raise TurnFailed(FailureKind.ANSWER_REFUSED if refused else FailureKind.ANSWER_MODEL, str(failed)) from failed


async def _judged(chat: ChatClient, prompt: str, seed: int) -> float:
    reply = await _asked(chat, prompt, seed)
    try:
        return read_verdict(reply)
    except BadVerdict as error:
        raise TurnFailed(FailureKind.ANSWER_SCORE, f"{chat.settings.url}: {error}") from None
