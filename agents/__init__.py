"""Memory agents: pure state machines (``interface.py``), run by one loop (``rollout.run_trajectory``).

``AGENT`` names one of ``AGENTS``, or a class of the user's (``system.plugins``); ``AGENT_ARGS`` are its settings. A
new agent of the pack is one file here and one line in this table; docs/extending.md has an example.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import cycle
from string import ascii_lowercase
from typing import Any

from ..config import Config
from ..system.plugins import load_class, parse_settings
from .documents import Chunks
from .gated import Gated
from .interface import MemoryAgent, Reading
from .mem1 import Mem1
from .memagent import MemAgent
from .one_prompt import Chat, Single
from .parallel import MOST, Parallel
from .prompts import Prompts, chat_frame, load_prompts
from .records import Generation, StopReason
from .rememr1 import ReMemR1
from .vocabulary import Vocabulary

AGENTS: dict[str, type[MemoryAgent]] = {
    "memagent": MemAgent, "rememr1": ReMemR1, "gated": Gated, "parallel": Parallel, "mem1": Mem1, "single": Single,
    "chat": Chat,
}


def agent_class(config: Config) -> type[MemoryAgent]:
    """The class that ``AGENT`` names. Raises ConfigError if there is none."""
    return load_class("AGENT", config.agent, AGENTS, MemoryAgent)


@lru_cache(maxsize=64)
def agent_settings(config: Config) -> Any:
    """AGENT_ARGS as the chosen agent's ``Settings``. Raises ConfigError."""
    return parse_settings(agent_class(config).Settings, config.agent_args, "AGENT_ARGS")


def turn_cost(config: Config) -> float:
    """Share of a right answer's training reward that reading every chunk costs."""
    return getattr(agent_settings(config), "turn_cost", 0.0)


def outcome_weight(config: Config) -> float:
    """Weight of the outcome's advantage, where turns earn something too; the rest is that of their own rewards."""
    return getattr(agent_settings(config), "alpha", 0.8)


def check_agent(config: Config) -> Prompts:
    """The prompts of the configured agent.

    Raises:
        ConfigError: before any tokenizer is loaded, if ``AGENT`` is unknown, cannot work under these settings, or its
            prompts cannot.
    """
    blind = getattr(agent_settings(config), "query_blind", False)
    return load_prompts(config.mem_layout, config.mem_prompts, agent_class(config).own_prompts, blind)


def build_agent(config: Config, vocabulary: Vocabulary, chat_template_kwargs: Mapping[str, Any]) -> MemoryAgent:
    """The configured agent for one tokenizer.

    Raises:
        ConfigError: ``AGENT`` is unknown, or its prompts do not fit the model's chat template.
    """
    if not vocabulary.tokenizer.chat_template:
        _tell_bare_prompts(vocabulary.tokenizer.name_or_path)
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, chat_template_kwargs)
    return agent_class(config)(config, vocabulary, check_agent(config), frame)


@cache
def _tell_bare_prompts(model: str) -> None:
    """Once for each model of a process."""
    logging.getLogger(__name__).warning("%s has no chat template: prompts are bare texts, as for a base model", model)


def longest_turn(config: Config, vocabulary: Vocabulary) -> int:
    """Tokens of the run's longest prompt with its reply: what an engine must hold.

    The agent itself reads a question and chunks of full length with replies that fill their budget, and before every
    turn it says what it would show if its memories were full too (``MemoryAgent.filled``). ``width=2``::

        prompt                                      reply            counted
        template, question, chunk, full memory      MEM_MAX_MEMORY   both, for each of the two chunks
        template, question, full memory, 2 replies  MEM_MAX_MEMORY   the merge turn
        template, question, full memory             MEM_MAX_FINAL

    Raises:
        ConfigError: the agent cannot work under these settings, or with this model's chat template.
    """
    agent = build_agent(config, vocabulary, {})
    # Replies differ from each other and from the memory: an agent may leave out what is said twice.
    full, *others = (vocabulary.encode_text(letter)[-1] for letter in ascii_lowercase)
    letters = cycle(others)
    chunks = ([full] * config.mem_chunk_tokens,) * (2 * MOST)
    state = agent.start(Reading([full] * config.mem_max_question, Chunks(chunks, dropped=0)))
    thought = vocabulary.encode_markup("</think>")  # for templates that open a <think>: all would be thinking
    longest = 0
    while requests := agent.requests(state):
        for fullest in agent.requests(agent.filled(state, [full] * config.mem_max_memory)):
            longest = max(longest, len(fullest.prompt_ids) + fullest.max_new_tokens)
        replies = [[*thought, *[next(letters)] * request.max_new_tokens] for request in requests]
        state = agent.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.LENGTH) for ids in replies])
    return longest
