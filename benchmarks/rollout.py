"""Prefill of rollouts: ``python -m mem_agent.benchmarks.rollout FOLDER`` starts engines, samples, and prints a table.

A small random model behind the real router, through the project's own hook; nothing is trained. Each case is a number
of documents, of siblings and of memory turns; its variants run one after another, in turns, with empty caches:

    chunk       section_first: the pack's prompts; siblings meet at each chunk
    memory      memory_first: siblings share the question alone and stay at one engine
    trajectory  memory_first, each trajectory a group of its own: what routing by conversation gives
    longest     as chunk, but MEM_CONCURRENCY is what the engines sample at once: the longest are sent first

With ``--ragged`` documents have from one chunk up to the case's, in an order of its own in each repetition, and with
``--seqs`` engines sample few at once. ``p90_steps`` and ``steps`` are those of the busiest engine until 90% and all of
the trajectories had ended: unlike seconds, they do not depend on what else the machine does.

``computed`` are prompt tokens that the engines' caches did not have, by vLLM's own counters, what went
ahead included; ``ideal`` is what whole blocks allow for the same prompts (``ideal_prefill``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import psutil
import torch
import yaml
from transformers import Qwen3Config, Qwen3ForCausalLM

from .. import rollout as hooks
from ..config import Config
from ..hooks.host import embedded_args
from ..hooks.sample import Record, Sample, TurnRecord
from ..rollout_client import Dialect, Endpoint, close_clients
from ..serving.fleet import Fleet
from ..serving.servers import BLOCK_TOKENS, SEQUENCES
from ..training.rollouts import training_sampling

POCKET = Path(__file__).parents[1] / "pocket" / "start"
Shape = dict[str, Any]
SMALL: Shape = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
                "intermediate_size": 768}
LARGE: Shape = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
                "intermediate_size": 1536}
COUNTERS = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:iteration_tokens_total_count")
LINE_TOKENS = 4
"""Two words of the pocket's tokenizer, a full stop and the newline."""
WORDS = ("apple", "pear", "plum", "grape", "lemon", "cat", "dog", "horse", "sheep", "goat", "red", "blue", "green")
FINAL_TOKENS = 16
LONGEST = 1408


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of a rollout."""

    documents: int
    siblings: int
    turns: int
    chunk: int = 1024
    memory: int = 64
    ragged: bool = False
    """Documents of 1, 2, ... ``turns`` chunks, shuffled by ``order``; else ``turns`` each."""
    order: int = 0

    def chunks(self) -> list[int]:
        """Of each document."""
        lengths = [number % self.turns + 1 if self.ragged else self.turns for number in range(self.documents)]
        return random.Random(self.order).sample(lengths, len(lengths))


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    layout: str
    grouped: bool = True
    queues: bool = True
    """More requests are sent than the engines sample at once, and wait there."""


VARIANTS = (
    Variant("chunk", "section_first"),
    Variant("memory", "memory_first"),
    Variant("trajectory", "memory_first", grouped=False),
    Variant("longest", "section_first", queues=False),
)


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
        prefix, found, chain = 0, 0, True
        for end in range(block, len(tokens) + 1, block):
            prefix = hash((prefix, *tokens[end - block : end]))
            chain = chain and prefix in known and end < len(prompt)
            found = end if chain else found
            known.add(prefix)
        computed += len(prompt) - found
    return computed


# --- what is sampled ------------------------------------------------------------------------------------------------

_FINAL = "Answer the question in \\boxed{}.\nQuestion:\n{problem}\nMemory:\n{memory}"
_MEMORY = "Update the memory for the question.\nQuestion:\n{problem}\n"
_ORDERS = {
    "section_first": _MEMORY + "Text:\n{section}\nMemory:\n{memory}",
    "memory_first": _MEMORY + "Memory:\n{memory}\nText:\n{section}",
}


def make_model(folder: Path, shape: Shape) -> Path:
    """Random weights with the pocket's tokenizer."""
    if not (folder / "config.json").exists():
        torch.manual_seed(0)
        Qwen3ForCausalLM(Qwen3Config(
            **shape, vocab_size=768, head_dim=64, tie_word_embeddings=True, max_position_embeddings=4096,
            bos_token_id=None, eos_token_id=2, pad_token_id=0, dtype="float32",
        )).save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(POCKET / name, folder / name)
    return folder


def make_prompts(folder: Path, layout: str) -> str:
    """A prompt file, short: the pocket's tokenizer spells out most words."""
    path = folder / f"{layout}.yaml"
    path.write_text(yaml.safe_dump({"memory": _ORDERS[layout], "final": _FINAL, "empty_memory": "none"}))
    return str(path)


def document(number: int, tokens: int) -> str:
    """Lines of two words, which are four tokens."""
    draw = random.Random(number)
    return "".join(f"{draw.choice(WORDS)} {draw.choice(WORDS)}.\n" for _ in range(tokens // LINE_TOKENS))


def samples_of(case: Case, grouped: bool) -> list[Sample]:
    texts = [document(number, case.chunk * chunks) for number, chunks in enumerate(case.chunks())]
    return [
        Sample(
            prompt="Which fruit?", label="fig",
            metadata={"ground_truth": ["fig"], "context": texts[i // case.siblings]},
            group_index=i // case.siblings if grouped else i, index=i,
        )
        for i in range(case.documents * case.siblings)
    ]


# --- what is measured -----------------------------------------------------------------------------------------------


def _counters(url: str) -> list[float]:
    """Prompt tokens that an engine was asked for, those found in its cache, and its steps, since it started."""
    text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    lines = [line.rsplit(maxsplit=1) for line in text.splitlines() if not line.startswith("#")]
    return [sum(float(value) for name, value in lines if name.startswith(counter + "{")) for counter in COUNTERS]


def _cpu_seconds(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(sum(p.cpu_times()[:2]) for p in (process, *process.children(recursive=True)))


async def measure(
    fleet: Fleet, folder: Path, case: Case, variant: Variant, seqs: int = SEQUENCES
) -> dict[str, Any]:
    """One rollout of ``case``, all trajectories at once, with caches that were just emptied."""
    config = fleet.config.replace(
        mem_chunk_tokens=case.chunk, mem_max_memory=case.memory, mem_max_final=FINAL_TOKENS,
        n_samples_per_prompt=case.siblings if variant.grouped else 1, mem_prompts=make_prompts(folder, variant.layout),
    )
    if not variant.queues:
        config = config.replace(mem_concurrency=config.num_engines * seqs)
    args = embedded_args(config, Endpoint(Dialect.VLLM, fleet.url, LONGEST))
    samples = samples_of(case, variant.grouped)
    for engine in fleet.engines:
        await engine.client.reset_prefix_cache()
    urls, pids = [engine.client.url for engine in fleet.engines], [engine.process.pid for engine in fleet.engines]
    counters, cpu = [_counters(url) for url in urls], [_cpu_seconds(pid) for pid in pids]
    ended: list[float] = []
    most = len(samples) - len(samples) // 10
    steps: list[float] = []
    began = time.monotonic()

    async def run(sample: Sample) -> None:
        await hooks.generate(args, sample, training_sampling(config, sample))
        assert sample.status.value in ("completed", "truncated"), sample.train_metadata
        ended.append(time.monotonic() - began)
        if len(ended) in (most, len(samples)):
            steps.append(max(_counters(url)[2] - was[2] for url, was in zip(urls, counters, strict=True)))

    await asyncio.gather(*(run(sample) for sample in samples))
    cpu = [_cpu_seconds(pid) - before for pid, before in zip(pids, cpu, strict=True)]
    used = [[b - a for a, b in zip(was, _counters(url), strict=True)] for was, url in zip(counters, urls, strict=True)]
    return _figures(samples, [one[:2] for one in used], BLOCK_TOKENS) | {
        "cpu_s": sum(cpu), "busiest_cpu_s": max(cpu), "wall_s": ended[-1],
        "p90_s": ended[most - 1], "p90_steps": steps[0], "steps": steps[-1],
    }


def _figures(samples: Sequence[Sample], used: Sequence[Sequence[float]], block: int) -> dict[str, Any]:
    turns = [record.turns for sample in samples if (record := Record.of(sample))]
    rounds = [[turn for turn in one if turn] for one in zip_longest(*turns)]
    asked = [(t.tokens[: t.prompt_tokens], t.tokens[t.prompt_tokens :]) for one in rounds for t in one]
    return {
        "sent": sum(len(prompt) for prompt, _ in asked),
        "replies": sum(len(reply) for _, reply in asked),
        "ideal": ideal_prefill(asked, block),
        "computed": sum(queries - hits for queries, hits in used),
        "by_engine": [queries - hits for queries, hits in used],
        "computed_by_turn": [sum(t.prompt_tokens - (t.cached_tokens or 0) for t in one) for one in rounds],
        "ideal_by_turn": _by_turn(rounds, block),
    }


def _by_turn(rounds: Sequence[Sequence[TurnRecord]], block: int) -> list[int]:
    asked: list[tuple[list[int], list[int]]] = []
    sums = [0]
    for one in rounds:
        asked += [(t.tokens[: t.prompt_tokens], t.tokens[t.prompt_tokens :]) for t in one]
        sums.append(ideal_prefill(asked, block))
    return [after - before for before, after in pairwise(sums)]


async def run(
    folder: Path, cases: Sequence[Case], shape: Shape, engines: int, repeat: int,
    variants: Sequence[Variant], seqs: int = SEQUENCES,
) -> list[dict[str, Any]]:
    """All variants of all cases, ``repeat`` times in turns, on a fleet of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    model = make_model(folder / f"model-{shape['hidden_size']}", shape)
    config = Config.from_env({}).replace(
        hf_ckpt=str(model), num_engines=engines, save_path=str(folder), engine_max_len=LONGEST,
        mem_max_question=64, engine_args=f"--max-num-seqs {seqs}",
    )
    rows = []
    async with Fleet(config, model, run_folder=folder) as fleet:
        await measure(fleet, folder, Case(1, 2, 1), VARIANTS[0])  # an engine's first requests are slow
        try:
            for case in cases:
                for order in range(repeat):
                    ordered = replace(case, order=order)
                    for variant in variants:
                        rows.append(asdict(ordered) | {"engines": engines, "variant": variant.name}
                                    | await measure(fleet, folder, ordered, variant, seqs))
                        print(json.dumps(rows[-1]), flush=True)
        finally:
            await close_clients()
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each measurement; ratios are against the first variant of its case."""
    columns = ("engines", "documents", "siblings", "turns", "variant", "sent", "computed", "ideal", "p90_s", "wall_s",
               "p90_steps", "steps", "cpu_s")
    lines = ["| " + " | ".join(columns) + " | computed / ideal |", "|" + "--:|" * (len(columns) + 1)]
    for row in rows:
        values = [f"{row[c]:.1f}" if isinstance(row[c], float) else str(row[c]) for c in columns]
        lines.append("| " + " | ".join(values) + f" | {row['computed'] / row['ideal']:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", type=int, nargs=3, action="append", metavar=("DOCUMENTS", "SIBLINGS", "TURNS"))
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--large", action="store_true", help="the model of 27 million weights instead of 5")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--variants", nargs="*")
    parser.add_argument("--ragged", action="store_true", help="documents of different lengths")
    parser.add_argument("--seqs", type=int, default=SEQUENCES, help="sequences an engine samples at once")
    args = parser.parse_args()
    cases = [Case(*case, ragged=args.ragged) for case in args.case or [(4, 8, 2)]]
    variants = [v for v in VARIANTS if not args.variants or v.name in args.variants]
    shape = LARGE if args.large else SMALL
    print(table(asyncio.run(run(args.folder, cases, shape, args.engines, args.repeat, variants, args.seqs))))


if __name__ == "__main__":
    main()
