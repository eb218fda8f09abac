"""Rollouts on real engines: what is prefilled against what whole blocks allow, and against memory first.

Qwen3 models of random weights on two engines behind the router, through the pack's own hooks (``rollout.py``); nothing
is trained. Each rollout begins with empty caches, all trajectories at once, with the templates in one of two orders::

    section_first   the pack's prompts; siblings meet at each chunk
    memory_first    siblings share the question alone and stay at one engine; in the timed rollouts each trajectory is
                    a group of its own, which is what routing by conversation gives

Computed are prompt tokens that the engines' caches did not have, by vLLM's own counters, what went ahead included;
the ideal is what whole blocks allow for the same prompts (``ideal_prefill``). Counts do not depend on the model's
size, so the small one gives them; wall seconds are the large one's.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

import torch
import yaml
from transformers import Qwen3Config, Qwen3ForCausalLM

from .. import rollout as hooks
from ..config import Config
from ..hooks.host import embedded_args
from ..hooks.sample import Record, Sample
from ..rollout_client import Dialect, Endpoint, close_clients
from ..serving.fleet import Fleet
from ..serving.servers import BLOCK_TOKENS
from ..training.rollouts import training_sampling
from .outcome import Outcome
from .trainer import POCKET

NAME = "rollout"
SMALL = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 768}
LARGE = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
         "intermediate_size": 1536}
"""4.9M and 27M weights."""
CHUNK, MEMORY, TURNS, LONGEST = 1024, 64, 6, 1408
COUNTED = ((2, 8, 5.0), (1, 16, 9.0))
"""Documents, siblings, and the target against memory first."""
TIMED = (4, 8)
WORDS = ("apple", "pear", "plum", "grape", "lemon", "cat", "dog", "horse", "sheep", "goat", "red", "blue", "green")
_MEMORY = "Update the memory for the question.\nQuestion:\n{problem}\n"
ORDERS = {
    "section_first": _MEMORY + "Text:\n{section}\nMemory:\n{memory}",
    "memory_first": _MEMORY + "Memory:\n{memory}\nText:\n{section}",
}


class Rollout(NamedTuple):
    """Prompt tokens sent, computed, ideal; reply tokens; seconds of the wall."""

    sent: int
    computed: float
    ideal: int
    replies: int
    seconds: float


def measure(quick: bool = False) -> list[Outcome]:
    return asyncio.run(_measure(quick))


async def _measure(quick: bool) -> list[Outcome]:
    lines: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with _fleet(folder, SMALL) as fleet:
            for documents, siblings, target in COUNTED[:1] if quick else COUNTED:
                own = await rollout(fleet, folder, documents, siblings, "section_first")
                other = await rollout(fleet, folder, documents, siblings, "memory_first")
                shape = f"G {siblings}, {TURNS} turns, {CHUNK}/{MEMORY}"
                note = f"sent {own.sent:,}, computed {own.computed:,.0f}, ideal {own.ideal:,} tokens"
                lines += [
                    Outcome(NAME, f"computed prefill against whole blocks' ideal, {shape}",
                            (own.computed / own.ideal,), target=1.05, at_most=True, note=note),
                    Outcome(NAME, f"memory first computes, {shape}", (other.computed / own.computed,), target=target,
                            note="times the prefill"),
                ]
        if not quick:
            async with _fleet(folder, LARGE) as fleet:
                pairs = [(await rollout(fleet, folder, *TIMED, "section_first"),
                          await rollout(fleet, folder, *TIMED, "memory_first", grouped=False)) for _ in range(2)]
            shape = f"G {TIMED[1]}, {TURNS} turns, {CHUNK}/{MEMORY}, 27M"
            lines += [
                Outcome(NAME, f"wall against memory first with a key for each trajectory, {shape}", target=2.5,
                        values=tuple(other.seconds / own.seconds for own, other in pairs)),
                Outcome(NAME, f"prompt and reply tokens, {shape}", unit="tokens/s",
                        values=tuple((own.sent + own.replies) / own.seconds for own, _ in pairs)),
            ]
        await close_clients()
    return lines


def ideal_prefill(requests: Iterable[tuple[Sequence[int], Sequence[int]]], block: int) -> int:
    """Prompt tokens that a perfect cache of whole blocks computes for (prompt, reply) in this order.

    It is endless and knows a block from the moment it is asked for. As in vLLM, a reply's blocks are kept but for its
    last token, which was never fed, and of a prompt at least the last token is computed. Example, blocks of 2:
    ``abcd`` and then ``abce`` cost 4 + 2; ``abcd`` twice the same.
    """
    known: set[int] = set()
    computed = 0
    for prompt, reply in requests:
        tokens = [*prompt, *reply[:-1]]
        prefix, found, unbroken = 0, 0, True
        for end in range(block, len(tokens) + 1, block):
            prefix = hash((prefix, *tokens[end - block : end]))
            unbroken = unbroken and prefix in known and end < len(prompt)
            found = end if unbroken else found
            known.add(prefix)
        computed += len(prompt) - found
    return computed


async def rollout(
    fleet: Fleet, folder: Path, documents: int, siblings: int, order: str, *, grouped: bool = True
) -> Rollout:
    """All trajectories at once, with caches that were just emptied."""
    prompts = folder / f"{order}.yaml"  # short: the pocket's tokenizer spells out most words
    final = "Answer the question in \\boxed{}.\nQuestion:\n{problem}\nMemory:\n{memory}"
    prompts.write_text(yaml.safe_dump({"memory": ORDERS[order], "final": final, "empty_memory": "none"}))
    config = fleet.config.replace(n_samples_per_prompt=siblings if grouped else 1, mem_prompts=str(prompts))
    args = embedded_args(config, Endpoint(Dialect.VLLM, fleet.url, LONGEST))
    samples = [
        Sample(prompt="Which fruit?", label="fig", group_index=index // siblings if grouped else index, index=index,
               metadata={"ground_truth": ["fig"], "context": _document(index // siblings)})
        for index in range(documents * siblings)
    ]
    for engine in fleet.engines:
        await engine.client.reset_prefix_cache()
    before, began = _computed(fleet), time.monotonic()
    await asyncio.gather(*(hooks.generate(args, sample, training_sampling(config, sample)) for sample in samples))
    seconds = time.monotonic() - began
    assert all(sample.status.value in ("completed", "truncated") for sample in samples)
    records = [record.turns for sample in samples if (record := Record.of(sample))]
    asked = [(turn.prompt_ids, turn.response_ids) for turn in chain.from_iterable(zip_longest(*records)) if turn]
    return Rollout(sum(len(prompt) for prompt, _ in asked), _computed(fleet) - before,
                   ideal_prefill(asked, BLOCK_TOKENS), sum(len(reply) for _, reply in asked), seconds)


def _fleet(folder: Path, shape: dict[str, int]) -> Fleet:
    """Two engines with random weights and the pocket's tokenizer."""
    model = folder / f"model-{shape['hidden_size']}"
    torch.manual_seed(0)
    Qwen3ForCausalLM(Qwen3Config(
        **shape, vocab_size=768, head_dim=64, tie_word_embeddings=True, max_position_embeddings=4096,
        bos_token_id=None, eos_token_id=2, pad_token_id=0, dtype="float32",
    )).save_pretrained(model)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(POCKET / name, model / name)
    config = Config.from_env({}).replace(
        hf_ckpt=str(model), num_engines=2, save_path=str(folder), engine_max_len=LONGEST, mem_max_question=64,
        mem_chunk_tokens=CHUNK, mem_max_memory=MEMORY, mem_max_final=16,
    )
    return Fleet(config, model, run_folder=folder)


def _document(number: int) -> str:
    """Lines of two words, a full stop and the newline, which are four tokens."""
    draw = random.Random(number)
    return "".join(f"{draw.choice(WORDS)} {draw.choice(WORDS)}.\n" for _ in range(TURNS * CHUNK // 4))


def _computed(fleet: Fleet) -> float:
    """Prompt tokens that the engines' caches did not have, since they started."""
    signs = {"vllm:prefix_cache_queries_total": 1, "vllm:prefix_cache_hits_total": -1}
    lines = [line for engine in fleet.engines
             for line in urllib.request.urlopen(f"{engine.client.url}/metrics").read().decode().splitlines()]
    return sum(signs.get(line.partition("{")[0], 0) * float(line.rsplit(maxsplit=1)[1])
               for line in lines if line.startswith("vllm:prefix_cache"))
