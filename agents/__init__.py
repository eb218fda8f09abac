"""Memory workflows: pure state machines (``interface.py``), run by one loop (``loop.py``).

``AGENT`` names one of ``AGENTS``. A new workflow is one file here and one line in this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..config import Config, ConfigError
from .interface import MemoryAgent
from .memagent import Limits, MemAgent
from .prompts import chat_frame, load_prompts
from .recall import histories
from .rememr1 import ReMemR1
from .vocabulary import Vocabulary

AGENTS: dict[str, Any] = {"memagent": MemAgent, "rememr1": ReMemR1}


def check_agent(config: Config) -> None:
    """Raise ConfigError, before any tokenizer is loaded, if ``AGENT`` is unknown or its prompts cannot work."""
    if config.agent not in AGENTS:
        raise ConfigError(f"AGENT={config.agent!r}: allowed: {', '.join(AGENTS)}")
    load_prompts(config.mem_layout, config.mem_prompts, AGENTS[config.agent].wording)


def build_agent(config: Config, vocabulary: Vocabulary, chat_template_kwargs: Mapping[str, Any]) -> MemoryAgent:
    """The configured workflow for one tokenizer.

    Raises:
        ConfigError: ``AGENT`` is unknown, or its prompts do not fit the model's chat template.
    """
    check_agent(config)
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, chat_template_kwargs)
    make = AGENTS[config.agent]
    prompts = load_prompts(config.mem_layout, config.mem_prompts, make.wording)
    limits = Limits(config.mem_max_memory, config.mem_max_final)
    if make is ReMemR1:
        return ReMemR1(vocabulary, prompts, frame, limits, histories(config))
    return make(vocabulary, prompts, frame, limits)
