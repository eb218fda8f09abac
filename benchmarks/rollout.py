"""Rollouts on real engines: what is prefilled against what whole blocks allow, and against memory first.

Qwen3 models of random weights on two engines behind the router, through the pack's own hooks (``rollout.py``); nothing
is trained. Each rollout begins with empty caches, all trajectories at once, with the templates in one of two orders::

    section_first   the pack's prompts; siblings meet at each chunk
    memory_first    siblings share the question alone and stay at one engine; in the timed rollouts each trajectory is
                    a group of its own, which is what routing by conversation gives

Computed are prompt tokens that the engines' caches did not have, by vLLM's own counters, what went ahead included;
the ideal is what whole blocks allow for the same prompts (``ideal_prefill``). Counts do not depend on the model's
size.
"""

import asyncio
import random
import re
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from types import SimpleNamespace

import yaml

from .. import rollout as hooks
from ..config import Config
from ..hooks.host import embedded_args
from ..hooks.sample import Record, Sample
from ..rollout_client import Dialect, Endpoint, close_clients
from ..serving.fleet import Fleet
from ..serving.servers import BLOCK_TOKENS
from ..training.rollouts import training_sampling
from .outcome import Outcome
from .trainer import POCKET, random_model

CHUNK, MEMORY, TURNS, LONGEST = 1024, 64, 6, 1408
SHAPES = ((2, 8, True, 5.0, None), (1, 16, True, 9.0, None), (4, 8, False, None, 2.5), (4, 8, False, None, 2.5))
"""Documents, siblings, whether they are a group in memory first, and the targets against it: prefill and wall."""
WORDS = ("apple", "pear", "plum", "grape", "lemon", "cat", "dog", "horse", "sheep", "goat", "red", "blue", "green")
_MEMORY = "Update the memory for the question.\nQuestion:\n{problem}\n"
ORDERS = {
    "section_first": _MEMORY + "Text:\n{section}\nMemory:\n{memory}",
    "memory_first": _MEMORY + "Memory:\n{memory}\nText:\n{section}",
}


async def measure(quick: bool = False) -> list[Outcome]:
    lines: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name:
        async with _fleet(Path(name)) as fleet:
            for documents, siblings, grouped, target, target_of_wall in SHAPES[: 1 if quick else None]:
                own = await rollout(fleet, documents, siblings, "section_first")
                other = await rollout(fleet, documents, siblings, "memory_first", grouped)
                what = f"{documents} documents, G {siblings}, {TURNS} turns, {CHUNK}/{MEMORY}"
                against = "memory first" if grouped else "memory first with a key for each trajectory"
                lines += [
                    Outcome(f"{what}: computed prefill against whole blocks' ideal", (own.computed / own.ideal,),
                            "times", 1.05, True, f"sent {own.sent:,}, computed {own.computed:,.0f} tokens"),
                    Outcome(f"{what}: {against} computes", (other.computed / own.computed,), target=target),
                    Outcome(f"{what}: wall of {against}", (other.seconds / own.seconds,), target=target_of_wall),
                ]
        await close_clients()
    return lines


def ideal_prefill(requests: Iterable[tuple[Sequence[int], Sequence[int]]], block: int) -> int:
    """Prompt tokens that a perfect cache of whole blocks computes for (prompt, reply) in this order.

    It is endless and knows a block from the moment it is asked for. As in vLLM, a reply's blocks are kept but for its
    last token, which was never fed, and of a prompt at least the last token is computed. Example, blocks of 2:
    ``abcd`` and then ``abce`` cost 4 + 2; ``abcd`` twice the same.
    """
    known, computed = set[int](), 0
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


async def rollout(fleet: Fleet, documents: int, siblings: int, order: str, grouped: bool = True) -> SimpleNamespace:
    """All trajectories at once, with caches that were just emptied: prompt tokens sent, computed, ideal; seconds
    of the wall."""
    config = fleet.config.model_copy(update={  # not validated: a group of one cannot train
        "n_samples_per_prompt": siblings if grouped else 1, "mem_prompts": f"{fleet.config.save_path}/{order}.yaml"})
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
    records = [Record.of(sample).turns for sample in samples]
    asked = [(turn.prompt_ids, turn.response_ids) for turn in chain.from_iterable(zip_longest(*records)) if turn]
    return SimpleNamespace(
        sent=sum(len(prompt) for prompt, _ in asked), computed=_computed(fleet) - before, seconds=seconds,
        ideal=ideal_prefill(asked, BLOCK_TOKENS))


def _fleet(folder: Path) -> Fleet:
    """Two engines with 27M random weights, the pocket's tokenizer and short prompts: it spells out most words."""
    final = "Answer the question in \\boxed{}.\nQuestion:\n{problem}\nMemory:\n{memory}"
    for order, memory in ORDERS.items():
        prompts = yaml.safe_dump({"memory": memory, "final": final, "empty_memory": "none"})
        (folder / f"{order}.yaml").write_text(prompts)
    model = folder / "model"
    random_model(model, 768)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(POCKET / name, model / name)
    config = Config.from_env({}).replace(
        hf_ckpt=str(model), num_engines=2, save_path=str(folder), engine_max_len=LONGEST, mem_max_question=64,
        mem_chunk_tokens=CHUNK, mem_max_memory=MEMORY, mem_max_final=16,
    )
    return Fleet(config, model, run_folder=folder)


def _document(number: int) -> str:
    """Lines of two words, a full stop and the newline, which are four tokens."""
    words = random.Random(number).choices(WORDS, k=TURNS * CHUNK // 2)
    return "".join(f"{first} {second}.\n" for first, second in zip(words[::2], words[1::2], strict=True))


def _computed(fleet: Fleet) -> float:
    """Prompt tokens that the engines' caches did not have, since they started."""
    said = "".join(urllib.request.urlopen(f"{engine.client.url}/metrics").read().decode() for engine in fleet.engines)
    found = re.findall(r"^vllm:prefix_cache_(queries|hits)_total\S* (\S+)$", said, re.MULTILINE)
    return sum(float(value) if name == "queries" else -float(value) for name, value in found)
