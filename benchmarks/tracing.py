"""What it costs to keep trajectories (KEEP_TRAJECTORIES), as a share of a rollout.

A rollout of 64 trajectories, 4 documents of 7 chunks of 1,024 tokens, through the hooks that every host calls, against
a server that answers at once with 256 tokens: CPU seconds of the client with what is kept (the default, so all of this
newest rollout) less those with KEEP_TRAJECTORIES=0, in turns. The rollout is what 8 replies, one after the other, take
at the 50 tokens a second that an engine gives each of 64 sequences: 41 seconds. Most of the cost is paid by a thread
while the trainer trains; here all of it counts.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from .. import rollout
from ..client.engine_api import Dialect, Endpoint
from ..client.rollout_client import close_clients
from ..config import Config
from ..custom_convert import custom_convert
from ..hooks import keep_trajectories
from ..hooks.host import HostArgs, embedded_args
from ..hooks.sample import Sample as HostSample
from ..traces.rollout_files import rollout_path
from .evaluation import server, text, tokens_in
from .outcome import Outcome, print_alone
from .rows import POCKET
from .stopwatch import Sample, interleaved, timed

NAME = "tracing"
DOCUMENTS, SIBLINGS, CHUNKS, CHUNK, REPLY = 4, 16, 7, 1024, 256
TOKENS_PER_SECOND = 50.0
SHARE = 0.02


def measure(quick: bool = False, documents: int = DOCUMENTS, reply: int = REPLY) -> list[Outcome]:
    words = int((CHUNKS - 0.5) * CHUNK * 5000 / tokens_in(POCKET, text(5000, 0)))
    contexts = [text(words, seed) for seed in range(documents)]
    with tempfile.TemporaryDirectory() as name, server(0.0, reply) as url:
        runs = {kept: run(Path(name), url, contexts, kept) for kept in (0, 2)}
        runs[2]()  # tokenizer and connections
        taken = interleaved(
            {"without": lambda: timed(runs[0]), "kept": lambda: timed(runs[2])}, 1 if quick else 7
        )
    return [line(taken, documents * SIBLINGS * (CHUNKS + 1) * reply, (CHUNKS + 1) * reply / TOKENS_PER_SECOND)]


def line(taken: dict[str, list[Sample]], tokens: int, rollout_s: float) -> Outcome:
    more = [kept.cpu - without.cpu for kept, without in zip(taken["kept"], taken["without"], strict=True)]
    return Outcome(
        NAME, "what keeping trajectories adds to a rollout", tuple(one / rollout_s for one in more), unit="share",
        target=SHARE, at_most=True, samples=taken,
        note=f"CPU seconds; {tokens:,} sampled tokens in {rollout_s:.0f} s",
    )


def run(folder: Path, url: str, contexts: list[str], kept: int) -> Callable[[], None]:
    """One rollout from first request to the last line on disk."""
    config = Config(
        hf_ckpt=str(POCKET), save_path=str(folder / str(kept)), mem_chunk_tokens=CHUNK, mem_max_memory=REPLY,
        mem_max_question=64, keep_trajectories=kept,
    )
    args = embedded_args(config, Endpoint(Dialect.VLLM, url))
    host = HostArgs.of(args)

    async def one(group: int, number: int) -> HostSample:
        metadata = {"context": contexts[group], "ground_truth": ["red"]}
        sample = HostSample("key?", metadata=metadata, group_index=group, index=group * SIBLINGS + number)
        done = await rollout.generate(args, sample, {"temperature": 1.0, "sampling_seed": 1})
        done.reward = await rollout.reward_func(args, done)
        assert done.status is HostSample.Status.COMPLETED, done.train_metadata
        return done

    async def sampled() -> list[HostSample]:
        numbers = [(group, number) for group in range(len(contexts)) for number in range(SIBLINGS)]
        try:
            return await asyncio.gather(*(one(*both) for both in numbers))
        finally:
            await close_clients()

    def whole() -> None:
        samples = asyncio.run(sampled())
        keep_trajectories.begin(host, 0)
        custom_convert(args, samples)
        assert not keep_trajectories.take(host), "the temporary folder can be written"
        assert rollout_path(Path(host.save), 0).is_file() == (kept > 0)

    return whole


if __name__ == "__main__":
    print_alone(measure)
