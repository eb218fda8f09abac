"""EVAL_INTERVAL in the embedded host: the policy is evaluated by the engines that it trains with, every N rollouts.

What is asked, and what the line of that rollout in ``metrics.jsonl`` then holds, as shares of 1:

    EVAL_DATA given      its rows, through the hooks of training    eval/<name of the file>/reward, .../accuracy ...
    else DATA_ROOT's     eval_<n>.json for each n of LENGTH         eval/<n>/sub_em, .../turns ...

The second is ``mem-agent eval`` as a process of its own, whose results stay in ``SAVE_PATH/eval/during-iter_<r>``.
VAL_SAMPLES, VAL_TEMPERATURE and VAL_TOP_P count in both.

Invariants:
- training is the same with it as without: every request has a seed of its own, and all that the engines have cached is
  dropped behind it;
- a run that is killed amid an evaluation comes to the same weights and asks what is missing. Answers of other weights
  (a run that was set back) are put aside, never mixed in: ``weights_mark`` tells;
- an evaluation in which a server had to be replaced is asked again, as a rollout is sampled again, so that what it
  measured does not hang on that; ``_of_questions`` asks for what failed alone;
- an evaluation that fails is a warning and ``eval_failed``; the run goes on. Engines that cannot be kept alive end it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from ..config import Config, ConfigError
from ..data.document_store import without_slice
from ..serving.fleet import Fleet
from ..system.files import write_atomically
from .ask_rows import ask_rows
from .evaluation import Check, Evaluation, EvaluationFailed, kept_alive

logger = logging.getLogger("mem_agent")

_MARK = "weights"
Found = dict[str, dict[str, float]]


def evaluates_after(config: Config, number: int) -> bool:
    return config.eval_interval > 0 and (number + 1) % config.eval_interval == 0


def check_evaluations(config: Config) -> None:
    """Raises ConfigError where what EVAL_INTERVAL asks for is not there."""
    files = config.eval_files
    if files and not config.eval_interval:
        raise ConfigError(f"EVAL_DATA={config.eval_data!r} is never used with EVAL_INTERVAL=0; set EVAL_INTERVAL to a "
                          "number of rollouts, or unset EVAL_DATA")
    if config.eval_interval and not files and not config.data_root:
        raise ConfigError(f"EVAL_INTERVAL={config.eval_interval} needs EVAL_DATA, files of prepare_data.py, or "
                          "DATA_ROOT, a folder of eval_<length>.json")
    if len({Path(file).stem for file in files}) < len(files):
        raise ConfigError(f"EVAL_DATA={config.eval_data!r}: two files have the same name; metrics go by it")
    for file in files:
        if not without_slice(file).is_file():
            raise ConfigError(f"EVAL_DATA: {file}: no such file; make it with prepare_data.py")


def check_of_questions(config: Config) -> Check | None:
    """Of DATA_ROOT's files and the engines' length, where they are asked between rollouts; else None."""
    if not config.eval_interval or config.eval_files:
        return None
    return Check(_evaluation(config, config, 0).command_without_output, _settings(config, config))


async def evaluate_between(config: Config, fleet: Fleet, number: int, tensors: Mapping[str, Any]) -> dict[str, float]:
    """Metrics of the engines' weights, which are ``tensors``, after rollout ``number``."""
    began = time.monotonic()
    try:
        found = await _whole(config, fleet, number, tensors)
    except EvaluationFailed as error:
        logger.warning("%s; the run goes on", error)
        return {"eval_failed": 1.0, "seconds/evaluation": time.monotonic() - began}
    seconds = time.monotonic() - began
    logger.info("evaluation after rollout %d/%d | %s | %.1f s", number + 1, config.num_rollout, _line(found), seconds)
    metrics = {f"eval/{name}/{metric}": value for name, values in found.items() for metric, value in values.items()}
    return metrics | {"seconds/evaluation": seconds}


async def _whole(config: Config, fleet: Fleet, number: int, tensors: Mapping[str, Any]) -> Found:
    """What engines measured of which none had to be replaced; they have forgotten all of it."""
    while True:
        restarts = fleet.restarts
        found = await (_of_files if config.eval_files else _of_questions)(config, fleet, number, tensors)
        await fleet.ensure_alive(config.mem_request_timeout)
        await fleet.start_over()
        if fleet.restarts == restarts:
            return found
        logger.warning("the evaluation after rollout %d is asked again: a server had to be replaced", number + 1)


def weights_mark(tensors: Mapping[str, Any]) -> str:
    """Tells weights apart by the first numbers of each tensor, of which an optimizer step leaves none as it was."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].flatten()[:256].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


async def _of_files(config: Config, fleet: Fleet, number: int, tensors: Mapping[str, Any]) -> Found:
    async with kept_alive(fleet):
        return {Path(file).stem: await ask_rows(config, fleet, file, number) for file in config.eval_files}


async def _of_questions(config: Config, fleet: Fleet, number: int, tensors: Mapping[str, Any]) -> Found:
    evaluation, mark = _evaluation(config, fleet.config, number), weights_mark(tensors)
    _put_aside_of_others(evaluation.output, mark)
    summary = evaluation.output / "means.json"
    evaluation.command += ["--weights", mark, "--means", str(summary)]
    await evaluation.run(fleet)
    found: Found = orjson.loads(summary.read_bytes())
    return found


def _evaluation(config: Config, served: Config, number: int) -> Evaluation:
    made = Evaluation(config, f"during-iter_{number:07d}", config.hf_ckpt)
    made.settings = _settings(config, served)
    return made


def _settings(config: Config, served: Config) -> dict[str, str]:
    """The run's, for the client's environment, where a model's own settings do not reach them."""
    temperature = config.eval_temperature if config.val_temperature < 0 else config.val_temperature
    asked = replace(
        config, eval_samples=config.val_samples, eval_temperature=temperature,
        eval_top_p=config.val_top_p or config.eval_top_p, engine_max_len=served.engine_max_len, base_url="",
        keep_trajectories_mb=max(1, config.keep_trajectories_mb // config.evaluations),
    )
    return {name: str(value) for name, value in asked.to_mapping().items()}


def _put_aside_of_others(output: Path, mark: str) -> None:
    file = output / _MARK
    if output.is_dir() and (not file.is_file() or file.read_bytes() != mark.encode()):
        aside = next(path for n in count(1) if not (path := output.with_name(f"{output.name}.{n}")).exists())
        logger.warning("%s is of other weights; it is now %s", output, aside)
        output.rename(aside)
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(file, mark.encode())


def _line(found: Found) -> str:
    """``50: sub_em 0.412, 200: sub_em 0.398``: of each, what it is judged by."""
    return ", ".join(f"{name}: {metric} {values[metric]:.3f}" for name, values in found.items()
                     if (metric := next(iter(values), "")))
