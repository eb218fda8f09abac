"""The longest prompt with its reply of a run, measured on the agent itself with the model's own template."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from string import ascii_lowercase

from ..checkpoints.hf_model import load_vocabulary
from ..config import Config, ConfigError
from . import build_agent
from .chunking import Chunks
from .interface import Reading
from .records import Generation, StopReason


def longest_turn(config: Config, folder: Path) -> int:
    """Its tokens, for the tokenizer and chat template in ``folder``.

    Raises:
        ConfigError: they cannot be used.
    """
    vocabulary = load_vocabulary(folder)
    agent = build_agent(config, vocabulary, {})
    # Replies that differ, as an agent may leave out what is said twice; two rounds of chunks, as memories grow.
    letters = cycle(vocabulary.encode_text(letter)[0] for letter in ascii_lowercase)
    letter = next(letters)
    chunks = ([letter] * config.mem_chunk_tokens,) * (2 * config.mem_parallel)
    state = agent.start(Reading([letter] * config.mem_max_question, Chunks(chunks, dropped=0)))
    longest = 0
    while requests := agent.requests(state):
        longest = max(longest, *(len(r.prompt_ids) + r.max_new_tokens for r in requests))
        replies = [[next(letters)] * r.max_new_tokens for r in requests]
        state = agent.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.LENGTH) for ids in replies])
    # An agent that keeps tagged parts only has kept nothing of these replies.
    return longest + max(0, config.mem_max_memory - len(agent.memory(state)))


def check_length(config: Config, longest: int) -> None:
    if longest > config.engine_max_len:
        raise ConfigError(
            f"the longest turn has {longest} tokens (MEM_MAX_QUESTION={config.mem_max_question}, "
            f"MEM_CHUNK_TOKENS, memories of MEM_MAX_MEMORY={config.mem_max_memory}, template), the "
            f"engine holds {config.engine_max_len}; lower one of them or raise ENGINE_MAX_LEN"
        )
