"""Memory agents as an environment of ``verifiers`` (0.4, its v1): rows of the pack as a taskset, agents as a harness.

::

    vf-eval mem-agent -m MODEL --env.taskset.rows data/train.jsonl --env.agent.harness.id mem-agent \\
        --env.agent.harness.tokenizer MODEL_FOLDER --env.agent.harness.settings "AGENT=gated MEM_CHUNK_TOKENS=1024"

verifiers finds both by the name of this package, and whatever consumes its environments (prime-rl, its own
evaluation) drives the agent. The harness runs the pack's one loop in its own process; every turn is one chat request
to the address that verifiers gives it, so turns are branches of verifiers' trace, each a conversation of its own, with
the tokens that verifiers itself has seen. Rewards are the task's, metrics those of the trajectory and of the task.

What a chat server is asked is text, with the local chat template taken off (``evaluation.endpoint``). Sampling
parameters are verifiers' own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from . import rollout
from .checkpoints.hf_model import config_for_model, local_folder
from .config import Config, ConfigError
from .data.training_file import DataSource
from .evaluation.endpoint import Api, endpoint_at
from .hooks.host import embedded_args
from .hooks.reader import question_of, reader_for, row_of, task_of
from .hooks.sample import Record, Sample
from .rollout_client import close_clients
from .system.plugins import shell_words

__all__ = ["MemoryHarness", "MemoryTaskset"]


class MemoryData(vf.TaskData):
    """One row without its document, which stays in its file."""

    rows: str = ""
    row: int = 0


class MemoryTaskConfig(vf.TaskConfig):
    settings: str = ""
    """The pack's settings for scoring, words NAME=value quoted as in a shell: TASK and TASK_ARGS."""


class MemoryTask(vf.Task[MemoryData, vf.State, MemoryTaskConfig]):
    """Scores the final reply as training does (``Task.reward``), and measures it as evaluation does."""

    @vf.reward
    async def reward(self, trace: Any) -> dict[str, float]:
        task, row = self._scored()
        return dict(task.reward(trace.last_reply, row))

    @vf.metric
    async def measured(self, trace: Any) -> dict[str, float]:
        task, row = self._scored()
        measured = task.metrics(task.read_answer(trace.last_reply), trace.last_reply, row)
        return {name: float(value) for name, value in measured.items()}

    def _scored(self) -> tuple[Any, Any]:
        sample = sample_at(self.data.rows, self.data.row)
        return task_of(Config.from_mapping(words(self.config.settings)), sample), row_of(sample)


class MemoryTasksetConfig(vf.TasksetConfig):
    rows: Path | None = None
    """Required. Training rows, as ``mem-agent prepare`` and its siblings write them: a file, or shards."""
    task: MemoryTaskConfig = MemoryTaskConfig()


class MemoryTaskset(vf.Taskset[MemoryTask, MemoryTasksetConfig]):
    def load(self) -> Iterable[MemoryTask]:
        if self.config.rows is None:
            raise ConfigError("no rows: give --env.taskset.rows FILE, as mem-agent prepare writes it")
        path = str(self.config.rows.expanduser().absolute())
        for number in range(len(rows_of(path))):
            question = question_of(sample_at(path, number))
            yield MemoryTask(MemoryData(prompt=question, rows=path, row=number), self.config.task)


class MemoryHarnessConfig(vf.HarnessConfig):
    id: str = "mem-agent"
    tokenizer: str = ""
    """Hugging Face folder or id whose tokenizer cuts documents into chunks; empty: the model's name."""
    settings: str = ""
    """The pack's settings, words NAME=value quoted as in a shell: AGENT, MEM_CHUNK_TOKENS and so on; the
    others are the model's own, if it has some beside its weights, or the defaults."""


class MemoryHarness(vf.Harness[MemoryHarnessConfig]):
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Mapping[str, str], data: Any
    ) -> Any:
        folder = local_folder(self.config.tokenizer or ctx.model, "the harness' tokenizer", weights=False)
        config, _ = config_for_model(folder, words(self.config.settings))  # the model's own, where these say nothing
        config = config.replace(hf_ckpt=str(folder), train_data=data.rows)
        vocabulary = reader_for(config.hf_ckpt, config, "{}").vocabulary
        url = endpoint.rstrip("/").removesuffix("/v1")  # verifiers watches what is asked there
        server = endpoint_at(url, vocabulary, config, api=Api.CHAT, model=ctx.model, key=secret)
        sample = sample_at(data.rows, data.row)
        try:
            await rollout.generate(embedded_args(config, server), sample, {}, evaluation=True)
        finally:
            await close_clients(server)
        record = Record.of(sample)
        assert record is not None, "generate writes its trajectory into the sample"
        trace.root_reply = sample.response
        trace.record_metrics({name: float(value) for name, value in record.counts.items()})
        failure = f"{record.failure}: {record.failure_message}" if record.failure else ""
        return vf.ProgramResult(exit_code=int(bool(failure)), stdout=sample.response, stderr=failure)


def words(settings: str) -> dict[str, str]:
    """``A=1 B='two words'`` by name. Raises ConfigError."""
    parts = [word.partition("=") for word in shell_words("settings", settings)]
    if wrong := [name for name, equals, _ in parts if not equals]:
        raise ConfigError(f"settings {settings!r}: {wrong[0]!r} is no NAME=value")
    return {name: value for name, _, value in parts}


@cache
def rows_of(path: str) -> DataSource:
    """In the file's order; opened and checked once. Raises DataError."""
    return DataSource(path, seed=0, shuffle=False)


def sample_at(path: str, number: int) -> Sample:
    row = rows_of(path).row(number)
    return Sample(prompt=row.prompt, label=row.label, metadata=row.metadata)
