"""The longest prompt with its reply of a run, measured on the agent itself with the model's own template.

A question and chunks of full length are read with replies that fill their budget. Before every turn the agent is asked
what it would show if its memories were full too (``MemAgent.filled``); the longest of these prompts, with the reply it
allows, is what an engine must hold. ``AGENT=parallel`` with ``MEM_PARALLEL=2``::

    prompt                                      reply            counted
    template, question, chunk, full memory      MEM_MAX_MEMORY   both, for each of the two chunks
    template, question, full memory, 2 replies  MEM_MAX_MEMORY   the merge turn
    template, question, full memory             MEM_MAX_FINAL

No server, no torch and no weights: a tokenizer is all that is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from string import ascii_lowercase

from ..config import Config
from . import build_agent
from .chunking import Chunks
from .interface import Reading
from .records import Generation, StopReason
from .vocabulary import Vocabulary

_CHUNKS = 32
"""Twice as many as any agent reads side by side (the bound of MEM_PARALLEL)."""
_BUDGETS = ("MEM_CHUNK_TOKENS", "MEM_MAX_MEMORY", "MEM_MAX_QUESTION", "MEM_MAX_FINAL", "MEM_PARALLEL")


def longest_turn(config: Config, vocabulary: Vocabulary) -> int:
    """Its tokens.

    Raises:
        ConfigError: the agent cannot work under these settings, or with this model's chat template.
    """
    agent = build_agent(config, vocabulary, {}, models=False)
    # Replies differ from each other and from the memory: an agent may leave out what is said twice.
    full, *others = (vocabulary.encode_text(letter)[-1] for letter in ascii_lowercase)
    letters = cycle(others)
    count = min(max(config.mem_max_chunks, config.eval_max_chunks or _CHUNKS), _CHUNKS)
    chunks = ([full] * config.mem_chunk_tokens,) * count
    state = agent.start(Reading([full] * config.mem_max_question, Chunks(chunks, dropped=0)))
    thought = vocabulary.encode_markup("</think>")  # where a template opens it, all before this is no memory
    longest = 0
    while requests := agent.requests(state):
        fullest = agent.requests(agent.filled(state, [full] * config.mem_max_memory))
        longest = max(longest, *(len(r.prompt_ids) + r.max_new_tokens for r in fullest))
        replies = [[*thought, *[next(letters)] * r.max_new_tokens] for r in requests]
        state = agent.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.LENGTH) for ids in replies])
    return longest


def shortening(config: Config, vocabulary: Vocabulary) -> Sequence[str]:
    """The settings whose lowering makes the longest turn shorter, as ``NAME=value``, the most effective first."""
    longest, settings = longest_turn(config, vocabulary), config.to_mapping()
    lowered = {name: Config.from_mapping(settings | {name: 1}) for name in _BUDGETS}
    saved = {name: longest - longest_turn(least, vocabulary) for name, least in lowered.items()}
    names = sorted((name for name in _BUDGETS if saved[name] > 0), key=saved.__getitem__, reverse=True)
    return [f"{name}={settings[name]}" for name in names]
