"""Memory workflows: pure state machines (``interface.py``), run by one loop (``loop.py``).

``AGENT`` names one of ``AGENTS``. A new workflow is one file here and one line in this table; ``README.md`` of this
folder has a complete example.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..config import Config, ConfigError
from .gated import Gated
from .interface import MemoryAgent
from .memagent import MemAgent
from .parallel import Parallel
from .prompts import Prompts, Wording, chat_frame, load_prompts
from .rememr1 import ReMemR1
from .vocabulary import Vocabulary

AGENTS: dict[str, type[MemAgent]] = {
    "memagent": MemAgent, "rememr1": ReMemR1, "gated": Gated, "parallel": Parallel,
}


def check_agent(config: Config) -> Prompts:
    """The prompts of the configured workflow.

    Raises:
        ConfigError: before any tokenizer is loaded, if ``AGENT`` is unknown or its prompts cannot work.
    """
    if config.agent not in AGENTS:
        raise ConfigError(f"AGENT={config.agent!r}: allowed: {', '.join(AGENTS)}")
    return load_prompts(config.mem_layout, config.mem_prompts, own_wording(), config.mem_query_blind)


def own_wording() -> dict[str, Wording]:
    """The turns that only some agents have."""
    return {name: wording for agent in AGENTS.values() for name, wording in agent.own_wording.items()}


def build_agent(config: Config, vocabulary: Vocabulary, chat_template_kwargs: Mapping[str, Any]) -> MemoryAgent:
    """The configured workflow for one tokenizer.

    Raises:
        ConfigError: ``AGENT`` is unknown, or its prompts do not fit the model's chat template.
    """
    prompts = check_agent(config)
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, chat_template_kwargs)
    return AGENTS[config.agent].from_config(config, vocabulary, prompts, frame)
