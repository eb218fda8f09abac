"""Memory workflows: pure state machines (``interface.py``), run by one loop (``loop.py``).

``AGENT`` names one of ``AGENTS``, or a class of the user's (``system.plugins``). A new workflow of the pack is one
file here and one line in this table; ``README.md`` of this folder has a complete example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..config import STYLES, Config, shaping_answers, shaping_training
from ..system.plugins import load_class, name_by_content
from ..system.setting import refuse_unread
from .chat import Chat
from .gated import Gated
from .interface import MemoryAgent
from .memagent import MemAgent
from .one_prompt import BASELINES, Single
from .parallel import Parallel
from .prompts import Prompts, Wording, chat_frame, load_prompts, read_prompts
from .rememr1 import ReMemR1
from .rule_recall import RuleRecall
from .vocabulary import Vocabulary

AGENTS: dict[str, type[MemoryAgent]] = {
    "memagent": MemAgent, "rememr1": ReMemR1, "gated": Gated, "parallel": Parallel, "rule_recall": RuleRecall,
    "single": Single, "chat": Chat,
}


def agent_class(config: Config) -> type[MemoryAgent]:
    """Raises ConfigError where ``AGENT`` names none."""
    return load_class("AGENT", config.agent, AGENTS, MemoryAgent)


def check_agent(config: Config) -> Prompts:
    """The prompts of the configured workflow.

    Raises:
        ConfigError: before any tokenizer is loaded, if ``AGENT`` is unknown, cannot work under these settings, or its
            prompts cannot.
    """
    agent = agent_class(config)
    _refuse_unread(config, agent)
    agent.check(config)
    return load_prompts(config.mem_layout, config.mem_prompts, all_wording(agent), config.mem_query_blind)


def _earns(agent: type[MemoryAgent]) -> bool:
    """Whether its turns earn rewards of their own."""
    return agent.state_steps is not MemoryAgent.state_steps


_READ_BY: dict[str, Callable[[type[MemoryAgent]], bool]] = {
    "mem_carry": lambda agent: "mem_carry" in agent.settings,
    "mem_recall_order": lambda agent: "mem_recall_order" in agent.settings,
    "mem_recall_query": lambda agent: "mem_recall_query" in agent.settings,
    "mem_state_reward": _earns,
    "mem_state_weight": _earns,
    "mem_turn_weight": lambda agent: agent.needs_document,
}
"""Settings that name a release's behaviour or an ablation."""


def _refuse_unread(config: Config, agent: type[MemoryAgent]) -> None:
    """Raises ConfigError where one of those is set and ``agent`` does not read it."""
    for name, reads in _READ_BY.items():
        readers = [known for known, one in AGENTS.items() if reads(one)]
        refuse_unread(config, name, "agent", readers, read=reads(agent), origin=_origin(config, name))


def _origin(config: Config, name: str) -> str:
    return f" (of STYLE={config.style})" if name.upper() in STYLES.get(config.style, {}) else ""


def all_wording(*chosen: type[MemoryAgent]) -> dict[str, Wording]:
    """The turns that only some agents have, of the pack's own agents, of EVAL_MODE's and of chosen ones."""
    agents = (*AGENTS.values(), *BASELINES.values(), *chosen)
    return {name: wording for agent in agents for name, wording in agent.own_wording.items()}


def build_agent(
    config: Config, vocabulary: Vocabulary, chat_template_kwargs: Mapping[str, Any], *, models: bool = True
) -> MemoryAgent:
    """The configured workflow for one tokenizer.

    Args:
        models: load the models of its own that the agent needs to go from turn to turn; its prompts need none.

    Raises:
        ConfigError: ``AGENT`` is unknown, or its prompts do not fit the model's chat template.
    """
    prompts = check_agent(config)
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, chat_template_kwargs)
    agent = agent_class(config)
    return agent.from_config(config if models else agent.without_models(config), vocabulary, prompts, frame)


def turn_cost(config: Config) -> float:
    """MEM_TURN_COST, or the agent's own."""
    return config.mem_turn_cost if config.mem_turn_cost >= 0 else agent_class(config).turn_cost


# --- what identifies a run ------------------------------------------------------------------------------------------


def training_settings(config: Config) -> dict[str, Any]:
    """All that two runs must share for one to replay what the other sampled."""
    return _values(config, shaping_training())


def answer_settings(config: Config) -> dict[str, Any]:
    """All that two evaluations must share for their answers to belong together; of MEM_PROMPTS what the mode shows."""
    values = _values(config, shaping_answers(config.eval_mode))
    if config.eval_mode in BASELINES:
        own = read_prompts(config.mem_prompts, all_wording(agent_class(config)))
        values["mem_prompts"] = own.get(BASELINES[config.eval_mode].name, "")
    return values


def _values(config: Config, names: list[str]) -> dict[str, Any]:
    """The named fields without those that only other agents read, and what the files hold that they name."""
    declared = frozenset[str]().union(*(agent.settings for agent in AGENTS.values()))
    unread = declared - agent_class(config).settings
    values = {name: getattr(config, name) for name in names if name not in unread}
    if values.get("mem_prompts"):
        values["mem_prompts"] = Path(config.mem_prompts).read_text(encoding="utf-8")
    return values | {
        name: ",".join(map(name_by_content, names)) for name, names in config.classes.items() if name in values
    }
