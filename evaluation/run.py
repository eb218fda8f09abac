"""One evaluation from data to rows: what is there already is kept, the rest is asked.

    check   data, settings and output folder fit together; nothing is asked
    run     the same, then every (question, sample) without a good row is answered
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .. import rollout
from ..agents import agent_class, answer_settings
from ..checkpoints.hf_model import load_vocabulary, with_serving_length
from ..client.rollout_client import close_clients
from ..config import Config, ConfigError
from ..hooks.host import embedded_args
from ..hooks.plugins import check_plugins
from ..hooks.sample import Sample
from ..hooks.task_row import task_by_name
from ..system.signals import run_stoppable
from ..tasks import Task
from .connect import connect
from .endpoint import Api, EvalEndpoint, gone_line
from .identity import check_same_run, model_hash
from .keep_trajectories import KeptTrajectories
from .one_prompt import OnePromptMode
from .questions import Entry, EvalError, EvalQuestion, data_hash, data_path, load_questions
from .reading import as_asked
from .results import RowWriter, Run, answered, lock_results, read_rows, write_run
from .retrieval import retriever_for
from .sweep import Answer, Job, sweep


def engine_config(config: Config, model: Path) -> Config:
    """The config with the engine's context settled, as the server for it is started; left to a foreign server to say.

    Raises:
        ConfigError: the model cannot hold what the settings ask for.
    """
    if config.base_url:
        return config
    return with_serving_length(config, model, load_vocabulary(model, config.trust_remote_code))


def check(
    data_root: Path, lengths: Sequence[str], model: Path, config: Config, output: Path | None, weights: str = ""
) -> int:
    """How many answers ``output`` lacks; None lacks all.

    Raises EvalError where data and output folder are of no use for this run, ConfigError where settings are not.
    """
    check_plugins(config, training=False)
    names = {length: [entry.question.id for entry in _entries(data_root, length, config)] for length in lengths}
    counts = {length: len(questions) for length, questions in names.items()}
    if output is None:
        return sum(counts.values()) * config.eval_samples
    with lock_results(output):
        run = _run_of(data_root, counts, _name_of(model, weights), model, config)
        write_run(output, check_same_run(output, run))
        done = {length: answered(read_rows(output, length)) for length in lengths}
    return sum(
        (name, sample) not in done[length]
        for length in lengths for name in names[length] for sample in range(config.eval_samples)
    )


def run(
    data_root: Path, lengths: Sequence[str], model: Path, url: str, config: Config, output: Path, quiet: bool = False,
    weights: str = "",
) -> None:
    """Evaluate what is missing in ``output``; ``url`` is that of an own router, or empty for ``BASE_URL``.

    ``weights`` names those of the server, where they are not the ones in the folder ``model``.

    Raises:
        EvalError: data, endpoint or folder are of no use, or the server went away and stayed away.
    """
    run_stoppable(_run(data_root, lengths, model, url, replace(config, hf_ckpt=str(model)), output, quiet, weights))


async def _run(
    data_root: Path, lengths: Sequence[str], model: Path, url: str, config: Config, output: Path, quiet: bool,
    weights: str,
) -> None:
    check_plugins(config, training=False)
    endpoint = await connect(url, model, config)
    if config.eval_mode == "direct":
        config = replace(config, engine_max_len=endpoint.max_tokens)
    with lock_results(output):
        await _fill(data_root, lengths, model, config, output, endpoint, own=bool(url), quiet=quiet, weights=weights)


async def _fill(
    data_root: Path, lengths: Sequence[str], model: Path, config: Config, output: Path, endpoint: EvalEndpoint,
    *, own: bool, quiet: bool, weights: str,
) -> None:
    """Get the answers that ``output`` lacks."""
    if config.eval_mode == "recurrent" and endpoint.api is Api.CHAT and agent_class(config).shows_messages:
        raise EvalError(
            f"{endpoint.base_url} takes one message at a time (EVAL_API=chat), AGENT={config.agent} shows "
            "conversations; ask a server of token ids or completions"
        )
    thinks = config.mem_thinking or endpoint.thinking_is_open
    jobs, counts = _jobs(data_root, lengths, config, output, thinks)
    name = _name_of(model, weights) + f" {endpoint.api} {endpoint.model}" * (not own)
    write_run(output, check_same_run(output, _run_of(data_root, counts, name, model, config)))
    total = sum(counts.values()) * config.eval_samples
    print(f"{len(jobs)} of {total} answers to get, {total - len(jobs)} already in {output}", flush=True)
    try:
        args = embedded_args(config, endpoint)
        asked = [(job.question.length, job.question.id, job.sample) for job in jobs]
        with RowWriter(output) as rows, KeptTrajectories(output, asked, endpoint.vocabulary, config) as kept:
            mode = _mode(args, endpoint)
            await sweep(jobs, mode, config, rows, kept, lambda: endpoint.server.gone, quiet=quiet)
        if endpoint.server.gone:
            raise EvalError(gone_line(endpoint))
    finally:
        await close_clients()


def _jobs(
    data_root: Path, lengths: Sequence[str], config: Config, output: Path, thinks: bool
) -> tuple[list[Job], dict[str, int]]:
    """What is to be answered, and the questions of each length."""
    jobs: list[Job] = []
    counts: dict[str, int] = {}
    for length in lengths:
        done = answered(read_rows(output, length))
        counts[length] = 0
        for entry in _entries(data_root, length, config):
            counts[length] += 1
            samples = [s for s in range(config.eval_samples) if (entry.question.id, s) not in done]
            if samples:
                question = as_asked(entry.question, _task_of(entry.question, config), config, thinks=thinks)
                jobs += [Job(question, entry.context, sample) for sample in samples]
    return jobs, counts


def _entries(data_root: Path, length: str, config: Config) -> Iterator[Entry]:
    """The entries of a file, whose own tasks are there, with a document where one is read. Raises EvalError."""
    path = data_path(data_root, length)
    one_prompt = config.eval_mode != "recurrent"
    reads = agent_class(config).needs_document
    for entry in load_questions(data_root, length, _raw_file(config)):
        where = f"{path}: the entry with the index {entry.question.id}"
        try:
            task = _task_of(entry.question, config)
        except ConfigError as error:
            raise EvalError(f"{where} names its task: {error}") from None
        if not entry.context and (one_prompt or (reads and task.needs_document)):
            raise EvalError(f"{where} has no usable `context`")
        yield entry


def _task_of(question: EvalQuestion, config: Config) -> Task:
    """Raises ConfigError where the question names one that is not there."""
    return task_by_name(question.metadata.get("task") or config.tasks[0], config)


def _mode(args: SimpleNamespace, endpoint: EvalEndpoint) -> Answer:
    config: Config = args.mem_agent
    if config.eval_mode != "recurrent":
        retriever = retriever_for(config) if config.eval_mode == "rag" else None
        return OnePromptMode(args, endpoint.vocabulary, retriever)

    async def recurrent(question: EvalQuestion, context: str, sampling: dict[str, Any]) -> Sample:
        metadata = question.metadata | {"context": question.example + context}
        sample = Sample(prompt=question.prompt, metadata=metadata)
        return await rollout.generate(args, sample, sampling, evaluation=True)

    return recurrent


def _name_of(model: Path, weights: str) -> str:
    return f"{model_hash(model)} {weights}".strip()


def _run_of(data_root: Path, counts: dict[str, int], name: str, model: Path, config: Config) -> Run:
    return Run(
        model=name, model_name=str(model.absolute()), mode=config.eval_mode, settings=answer_settings(config),
        samples=config.eval_samples,
        data={length: data_hash(data_root, length, _raw_file(config)) for length in counts}, questions=counts,
    )


def _raw_file(config: Config) -> Path | None:
    return Path(config.eval_raw) if config.eval_raw else None
