"""Record real rollouts: ``python -m mem_agent.benchmarks.simulation.record FOLDER --engines 2 --plan check``.

A random Qwen3 of 4.9 million weights answers through the pack's own hooks, router and engines; one trace is written
for each case (``traces``). Engines start once and forget their prefix caches before each case. Which engine answered a
turn is known because each is told another name for its weights.

``check`` varies prompt order, group, chunk, memory and routing key; ``calibrate`` varies prompts, replies and
requests in flight, so that the costs of an engine can be told apart; ``small`` is for engines with little room
(``--kv-bytes``), whose prefix caches forget.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ...config import Config
from ...system.one_line_errors import one_line_errors
from ...training.rollout_side import (
    Dialect,
    Endpoint,
    Fleet,
    Sample,
    embedded_args,
    hooks,
    training_sampling,
)
from ...training.side import close_clients
from .traces import Trace, Turn, shared_lengths, write_trace

POCKET = Path(__file__).parents[2] / "pocket" / "start"
WORDS = ("apple", "pear", "plum", "grape", "lemon", "cat", "dog", "horse", "red", "blue", "green", "gold", "iron")
"""Of the pocket tokenizer, which the random model has."""
WORDING = {
    "memory": {
        "section_first": "Update the memory.\nQuestion:\n{problem}\nText:\n{section}\nMemory:\n{memory}",
        "memory_first": "Update the memory.\nQuestion:\n{problem}\nMemory:\n{memory}\nText:\n{section}",
    },
    "final": "Answer in \\boxed{}.\nQuestion:\n{problem}\nMemory:\n{memory}",
}


@dataclass(frozen=True)
class Case:
    """One rollout: ``documents`` x ``group`` trajectories; document i has ``chunks[i % len(chunks)]`` chunks."""

    documents: int = 4
    group: int = 8
    chunk: int = 640
    memory: int = 64
    final: int = 16
    chunks: tuple[int, ...] = (2, 3)
    layout: str = "section_first"
    key: str = "group"

    @property
    def name(self) -> str:
        order = self.layout.removesuffix("_first")
        return f"{order}-{self.key}-{self.documents}x{self.group}-c{self.chunk}-m{self.memory}"


def plans() -> dict[str, list[Case]]:
    sizes = ((4, 8, 1024, 64), (4, 8, 640, 128), (2, 16, 640, 128), (4, 16, 1024, 64))
    check = [
        Case(documents, group, chunk, memory, layout=layout, key=key)
        for documents, group, chunk, memory in sizes
        for layout, key in (("section_first", "group"), ("memory_first", "group"), ("memory_first", "sample"))
    ]
    loads = ((1, 1, 1024, 1), (1, 1, 64, 128), (4, 1, 1024, 16), (1, 4, 64, 128), (16, 1, 1024, 1), (2, 8, 64, 128),
             (8, 1, 512, 64), (1, 16, 1024, 64), (32, 1, 128, 1), (2, 16, 640, 64))
    calibrate = [Case(d, g, chunk, memory, 4, (2,), "memory_first") for d, g, chunk, memory in loads]
    small = [case for case in check if (case.documents, case.group, case.chunk) == (4, 8, 640)]
    return {"check": check, "calibrate": calibrate, "small": small}


# --- what a request leaves ----------------------------------------------------------------------------------------

_trajectory: ContextVar[Sample] = ContextVar("trajectory")


@dataclass(frozen=True)
class RecordingEndpoint(Endpoint):
    """Notes of every request when it was sent and answered, and by whom."""

    began: float = 0.0
    """Makes endpoints of two cases differ, and so their clients."""
    open: dict[Any, tuple[list[int], float]] = field(default_factory=dict, compare=False)
    calls: list[tuple[list[int], dict[str, Any]]] = field(default_factory=list, compare=False)

    def build_request(
        self, prompt_ids: list[int], max_new_tokens: int, sampling: Mapping[str, Any], routing_key: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        self.open[asyncio.current_task()] = (prompt_ids, time.monotonic() - self.began)
        return super().build_request(prompt_ids, max_new_tokens, sampling, routing_key)

    def parse_response(self, answer: Any) -> Any:
        generation = super().parse_response(answer)
        prompt, start = self.open.pop(asyncio.current_task())
        sample = _trajectory.get()
        assert generation.cached_tokens is not None, "the engine does not tell what it found in its cache"
        call = {
            "trajectory": sample.index, "group": sample.group_index, "prompt": len(prompt),
            "reply": len(generation.token_ids), "cached": generation.cached_tokens,
            "start_ms": round(1000 * start), "end_ms": round(1000 * (time.monotonic() - self.began)),
            "engine": int(generation.weight_version.removeprefix("engine-")),
        }
        self.calls.append((prompt, call))
        return generation


# --- counters -----------------------------------------------------------------------------------------------------

COUNTERS = {
    "sent": "vllm:prefix_cache_queries_total", "cached": "vllm:prefix_cache_hits_total",
    "generated": "vllm:generation_tokens_total", "steps": "vllm:iteration_tokens_total_count",
    "preemptions": "vllm:num_preemptions_total",
}


def counters(url: str, pid: int) -> dict[str, float]:
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    values = {
        name: sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(metric + "{"))
        for name, metric in COUNTERS.items()
    }
    processes = family(pid)
    core = [one for one in processes if Path(f"/proc/{one}/comm").read_text().startswith("VLLM::Engine")]
    return values | {"cpu_s": sum(map(cpu_seconds, processes)), "core_cpu_s": sum(map(cpu_seconds, core))}


def kv_blocks(url: str) -> int:
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    found = re.search(r'num_gpu_blocks="(\d+)"', text)
    assert found, "the engine does not tell its number of blocks"
    return int(found[1])


def family(pid: int) -> list[int]:
    """``pid`` and all its descendants."""
    children = " ".join((task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return [pid, *(one for child in children.split() for one in family(int(child)))]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- a run --------------------------------------------------------------------------------------------------------


def make_model(folder: Path) -> Path:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=768, hidden_size=256, intermediate_size=768, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, tie_word_embeddings=True, max_position_embeddings=4096, eos_token_id=2,
        pad_token_id=0, bos_token_id=None,
    )
    Qwen3ForCausalLM(shape).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(POCKET / name, folder / name)
    return folder


def document(number: int, tokens: int, tokenizer: Tokenizer) -> str:
    """A text of exactly ``tokens`` tokens, a multiple of four."""
    draw = random.Random(number)
    lines = [f"{a} {b}.\n" for a in WORDS for b in WORDS if a != b]
    lines = [line for line in lines if len(tokenizer.encode(line).ids) == 4]
    return "".join(draw.choice(lines) for _ in range(tokens // 4))


def prompts_file(folder: Path, layout: str) -> str:
    import yaml

    file = folder / f"{layout}.yaml"
    wording = {"memory": WORDING["memory"][layout], "final": WORDING["final"], "empty_memory": "none"}
    file.write_text(yaml.safe_dump(wording))
    return str(file)


async def record(fleet: Fleet, case: Case, folder: Path) -> Trace:
    config = replace(
        fleet.config, mem_chunk_tokens=case.chunk, mem_max_memory=case.memory, mem_max_final=case.final,
        mem_prompts=prompts_file(folder, case.layout), n_samples_per_prompt=case.group,
    )
    tokenizer = Tokenizer.from_file(str(POCKET / "tokenizer.json"))
    texts = [document(i, case.chunk * case.chunks[i % len(case.chunks)], tokenizer) for i in range(case.documents)]
    for number, engine in enumerate(fleet.engine_clients):
        await engine.reset_prefix_cache()
        await engine.update_weight_version(f"engine-{number}")
    before = [counters(*engine) for engine in zip(fleet.engine_urls, fleet.engine_pids, strict=True)]

    async def read(index: int) -> None:
        group = index // case.group
        # A key per trajectory is that of groups of one.
        metadata = {"ground_truth": ["fig"], "context": texts[group]}
        key = group if case.key == "group" else index
        sample = Sample(prompt="Which fruit?", label="fig", metadata=metadata, group_index=key, index=index)
        _trajectory.set(sample)
        await hooks.generate(args, sample, training_sampling(config, sample))
        assert sample.status.value in ("completed", "truncated"), sample.train_metadata

    began = time.monotonic()
    endpoint = RecordingEndpoint(Dialect.VLLM, fleet.url, config.engine_max_len, began=began)
    args = embedded_args(config, endpoint)
    await asyncio.gather(*(read(i) for i in range(case.documents * case.group)))
    wall = time.monotonic() - began
    after = [counters(*engine) for engine in zip(fleet.engine_urls, fleet.engine_pids, strict=True)]
    spent = [{k: round(b[k] - a[k], 3) for k in a} for a, b in zip(before, after, strict=True)]
    settings = asdict(case) | {
        "name": case.name, "engines": len(spent), "block": config.engine_block_size,
        "kv_blocks": [kv_blocks(url) for url in fleet.engine_urls], "max_sequences": config.engine_max_seqs,
        "step_tokens": max(4096, config.engine_max_len), "wall_s": round(wall, 3),
        "load": round(os.getloadavg()[0], 1),
    }
    return Trace(settings, spent, turns_of(endpoint.calls, case.group))


def turns_of(calls: Sequence[tuple[list[int], dict[str, Any]]], group: int) -> list[Turn]:
    """In the order of sending; a key per trajectory is undone."""
    ranks, shared = shared_lengths([prompt for prompt, _ in calls])
    numbered = [
        Turn(**call | {"group": call["trajectory"] // group}, rank=rank, shared=common)
        for (_, call), rank, common in zip(calls, ranks, shared, strict=True)
    ]
    return sorted(numbered, key=lambda turn: (turn.start_ms, turn.trajectory))


async def record_all(options: argparse.Namespace, work: Path) -> None:
    config = replace(
        Config(), hf_ckpt=str(make_model(work / "model")), engine_max_len=1408, engine_kv_bytes=options.kv_bytes,
        num_engines=options.engines, save_path=str(work / "run"), mem_max_question=64, engine_start_timeout=900,
    )
    options.output.mkdir(parents=True, exist_ok=True)
    async with Fleet(config, work / "model", run_folder=work / "run") as fleet:
        await record(fleet, Case(1, 4, 128, 16), work)  # the first requests of an engine are slow
        for repeat in range(options.repeats):
            for case in plans()[options.plan]:
                trace = await record(fleet, case, work)
                file = options.output / f"{options.plan}-{options.engines}-{case.name}-{repeat}.json.gz"
                write_trace(file, trace)
                print(f"{file.name}: {len(trace.turns)} turns, {trace.settings['wall_s']} s", flush=True)
        await close_clients()


@one_line_errors("the traces written so far are whole")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record real rollouts for the simulation.")
    parser.add_argument("output", type=Path, help="folder for the traces")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--plan", choices=list(plans()), default="check")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--kv-bytes", type=int, default=600 * 2**20, help="room of an engine for keys and values")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as work:
        asyncio.run(record_all(options, Path(work)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
