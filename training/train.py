"""The embedded host's training loop, and what stands before and behind it.

    mem-agent train                          what `bash run-train.sh` runs, with --evaluate or --convert

Settings come from the environment (see ``config.py``); with TRAIN_PROCS=2 this process starts a second rank. One turn
of the loop, for rollout r:

    1. engines serve weights of version r; documents are read through the hooks (rank 0)
    2. the converter hook makes training rows; they go to the journal, then to every rank
    3. reference log-probs of all rows, and the old policy's where more than one step follows
    4. one optimizer step per GLOBAL_BATCH_SIZE trajectories
    5. weights of version r+1 into every engine, confirmed by each
    6. an evaluation on these engines every EVAL_INTERVAL rollouts (``evaluate.py``)
    7. a checkpoint every SAVE_INTERVAL rollouts: ``iter_<r>``

Steps 3 and 4 are read in three files: ``learn`` below, ``trainer.py`` and ``loss.py``.

LOSS=sft is the same loop on the replies that rows give: without 3 and 5, and with engines for evaluations alone.

With ``--convert`` the last checkpoint is written as a Hugging Face folder. With ``--evaluate`` the engines of the run
also answer the evaluations of HF_CKPT before its first rollout, and of that folder; the table of both is printed and
goes into the model's card. Where the run had ended before, the same command does what is missing of that.

Every process runs this file; rank 0 alone owns engines, data, journal and logs, the others get each rollout by
broadcast. A run that was killed continues from its newest whole checkpoint and replays the journal up to where it was;
the journal reaches back to the oldest checkpoint that is kept, so a run may also go back to that one.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from ..checkpoints import hf_model
from ..checkpoints.folders import newest_of_run, number_of
from ..checkpoints.model_card import add_push_arguments, push
from ..checkpoints.precision import with_train_dtype
from ..config import Config, ConfigError, load_yaml, write_settings
from ..data.training_file import DataSource
from ..eval_ruler_hqa import missing_answers
from ..evaluation.card_table import add_evaluation
from ..evaluation.summary import tables
from ..system.cli import one_line_errors, python_module, run_stoppable, start_logging, stop_if_asked
from ..system.errors import MemAgentError
from ..system.files import folder_lock
from .dry_run import check_model, checks, dry_run
from .evaluate import evaluate_alone, output_of
from .log import run_log
from .ranks import broadcast, is_rank_zero, leave, other_ranks, with_train_procs
from .resume import Rollout, resume, save
from .rollouts import Rollouts
from .rows import TrainRow, optimizer_steps, rows_from_train_data
from .tries import trie_tokens

logger = logging.getLogger("mem_agent")

# --- the run --------------------------------------------------------------------------------------------------------


def train(config: Config, *, evaluate: bool = False, convert: bool = False) -> Path | None:
    """Run or continue the training run in ``config.save_path``; the converted model, if one is asked for.

    With ``convert`` and ``evaluate`` as the options of the command.
    """
    newest = newest_of_run(config.save_path)
    first = number_of(newest) + 1 if newest is not None else 0
    source = None
    with ExitStack() as ending:
        if first < config.num_rollout:
            if is_rank_zero():
                if evaluate:  # other data, or results of an earlier run, must not come to light in the end
                    missing_answers(config, Path(config.hf_ckpt), output_of(config, "before"))
                source = ending.enter_context(closing(Rollouts(config, evaluate=evaluate)))
            train_rollouts(config, source)
        else:
            logger.info("%s already holds %d rollouts of NUM_ROLLOUT=%d; raise it to go on", newest, first,
                        config.num_rollout)
        if not is_rank_zero() or not (convert or evaluate):
            return None
        from ..checkpoints.convert import convert as convert_checkpoint

        newest = newest_of_run(config.save_path)
        assert newest is not None
        model = Path(config.save_path) / "hf" / newest.name
        convert_checkpoint(newest, config.hf_ckpt, model, force=True)  # one that is there is of a run set back since
        logger.info("converted %s", model)
        if not evaluate:
            return model
        stop_if_asked()
        name = f"after-{model.name}"
        if source is not None:
            source.evaluate(name, model)
        else:
            run_stoppable(evaluate_alone(config, {"before": Path(config.hf_ckpt), name: model}))
        results = [output_of(config, "before"), output_of(config, name)]
        print(tables(results))
        add_evaluation(model, results)
    return model


def train_rollouts(config: Config, source: Rollouts | None) -> None:
    """The rollouts that are left; ``source`` is rank 0's."""
    from .trainer import Trainer  # not before the engines start: these imports take seconds

    trainer = Trainer(config)
    start, next_group = resume(config, trainer)
    if source is not None:
        write_settings(config)  # not before it is clear that the run goes on under them
        source.begin()
    with run_log(config, start) if source is not None else nullcontext() as finish:
        sync(source, trainer, start)
        for number in range(start, config.num_rollout):
            stop_if_asked()
            began = time.monotonic()
            rollout: Rollout = broadcast(source.rollout(number, next_group) if source is not None else None)
            next_group = rollout.next_group
            stop_if_asked()
            metrics = rollout.metrics | {"seconds/rollout": time.monotonic() - began}
            metrics |= learn(config, trainer, rollout)
            evaluates = config.eval_interval > 0 and (number + 1) % config.eval_interval == 0
            metrics["seconds/sync"] = sync(source, trainer, number + 1, evaluates=evaluates)
            if evaluates and source is not None:
                metrics |= source.evaluate_policy(number)
            metrics["seconds"] = time.monotonic() - began
            # Before the checkpoint: a resumed run drops lines it writes again, but could not make up a lost one.
            if finish is not None:
                finish(number, metrics)
            if (number + 1) % config.save_interval == 0 or number + 1 == config.num_rollout:
                save(config, trainer, number, next_group)
    if config.train_procs > 1:
        leave()


def sync(source: Rollouts | None, trainer: Any, version: int, *, evaluates: bool = False) -> float:
    """The policy's weights into every engine, under ``version``; seconds. Collective. LOSS=sft only evaluates them."""
    if trainer.config.supervised and not evaluates:
        return 0.0
    tensors = trainer.export_hf()
    return source.sync(tensors, version) if source is not None else 0.0


# --- one rollout ----------------------------------------------------------------------------------------------------


def learn(config: Config, trainer: Any, rollout: Rollout) -> dict[str, float]:
    """Log-probs under the old and the reference policy, then the steps of the rollout; metrics are means.

    The first step needs no old log-probs: its own are those. A rollout of two steps scores the rows of the second.
    LOSS=sft needs none at all.
    """
    rows = rows_from_train_data(rollout.train_data)
    steps = optimizer_steps(rows, config.step_trajectories)
    began = scored = time.monotonic()
    if config.supervised:
        results = [trainer.sft_step(step) for step in steps]
    else:
        compares = config.compares_with_reference
        reference = scores(trainer.reference_log_probs, steps) if compares else [None] * len(steps)
        old = [None, *scores(trainer.log_probs, steps[1:])]
        scored = time.monotonic()
        results = [trainer.train_step(*step) for step in zip(steps, old, reference, strict=True)]
    updated = time.monotonic()
    metrics = {name: sum(result[name] for result in results) / len(results) for name in results[0]}
    loss, norm = metrics["loss"], metrics["grad_norm"]
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise MemAgentError(f"loss {loss} and gradient norm {norm} are not finite; lower LR and continue from the "
                            f"newest checkpoint in {config.save_path}")
    tokens, shared = sum(len(row.tokens) for row in rows), trie_tokens([row.inputs for row in rows])
    seconds = {"seconds/log_probs": scored - began, "seconds/update": updated - scored}
    return metrics | {"rows": len(rows), "row_tokens": tokens, "trie_tokens": shared} | seconds


def scores(log_probs: Callable[[list[TrainRow]], list[Any]], steps: Sequence[Sequence[TrainRow]]) -> list[Any]:
    """For each step the log-probs of its rows, all packed together."""
    found = iter(log_probs([row for step in steps for row in step]))
    return [[next(found) for _ in step] for step in steps]


# --- before anything is started -------------------------------------------------------------------------------------


def checked(config: Config) -> Config:
    """The config with a local model folder, TRAIN_PROCS and the engines' length.

    Raises:
        MemAgentError: it cannot be trained.
    """
    if config.host not in ("auto", "local"):
        raise ConfigError(f"HOST={config.host}: run-train.sh and `mem-agent launch` train there")
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    for check in checks(config):  # a damaged evaluation file must not come to light hours later
        check()
    DataSource(config.train_data, config.seed)
    folder = hf_model.local_folder(config.hf_ckpt)
    check_model(folder)
    config = with_train_procs(config.replace(hf_ckpt=str(folder)), folder)
    if is_rank_zero():  # the others hear it from this one
        if unlike := hf_model.unlike_settings(folder, config):
            logger.warning("the agent reads otherwise than %s was made to: %s", config.hf_ckpt, unlike)
        config = with_train_dtype(config, folder, hf_model.left_settings(config.save_path).get("TRAIN_DTYPE", "auto"))
    vocabulary = hf_model.load_vocabulary(folder, config.trust_remote_code)
    sized = served = hf_model.with_engine_length(config, folder, vocabulary)
    if config.eval_mode == "direct":  # which shows more than a turn of training
        served = hf_model.with_engine_length(config, folder, vocabulary, "direct")
    return max(sized, served, key=lambda one: one.engine_max_len)


def pocket_profile() -> None:
    """The data of POCKET_TASK in POCKET_DATA, and the frozen chat model at POCKET_CHAT_PORT while this process lives.

    Does nothing if neither is set. Raises MemAgentError where the port is taken.
    """
    if folder := os.environ.get("POCKET_DATA"):
        seed, task = os.environ.get("SEED") or "1", os.environ.get("POCKET_TASK") or "look-up"
        writing = python_module("mem_agent", "pocket", "--output", folder, "--seed", seed, "--task", task)
        subprocess.run(writing, check=True)
    if port := os.environ.get("POCKET_CHAT_PORT"):
        try:  # by name: the pocket profile stands above the trainer that makes its starts
            resolve_name("mem_agent.pocket.frozen_chat:serve")(int(port))
        except OSError as error:
            raise MemAgentError(f"POCKET_CHAT_PORT={port}: no chat model can answer there: {error.strerror}") from None


# --- command line ---------------------------------------------------------------------------------------------------


@one_line_errors("the same command continues, from the newest checkpoint if there is one")
def main(argv: Sequence[str] | None = None) -> int:
    description = "Train a memory agent with the embedded host. Settings come from the environment: mem-agent config."
    parser = argparse.ArgumentParser(prog="mem-agent train", description=description)
    parser.add_argument("--config", type=Path, help="YAML written by Config.to_yaml; default: the environment")
    parser.add_argument("--check", action="store_true", help="only check settings and training file")
    parser.add_argument("--dry-run", action="store_true", help="print what would start, and every problem")
    parser.add_argument("--convert", action="store_true", help="convert the last checkpoint into SAVE_PATH/hf")
    parser.add_argument("--evaluate", action="store_true",
                        help="convert, and evaluate DATA_ROOT before and after, into SAVE_PATH/eval")
    add_push_arguments(parser)
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = parser.parse_args(arguments)
    start_logging()
    if options.dry_run:
        config = load_yaml(options.config) if options.config else Config.from_env()
        problems = dry_run(config, evaluate=options.evaluate)
        print(*(f"error: {line}" for line in problems), sep="\n", end="\n" if problems else "", file=sys.stderr)
        return 1 if problems else 0
    if is_rank_zero():
        pocket_profile()
    config = checked(load_yaml(options.config) if options.config else Config.from_env())
    if options.check:
        return 0
    evaluates = bool(options.evaluate and config.data_root)
    if options.evaluate and not evaluates:
        logger.info("DATA_ROOT is not set: no evaluation before and after training")
    busy = "is in use by another run; wait for it or set another SAVE_PATH"
    lock = folder_lock(Path(config.save_path), busy=busy) if is_rank_zero() else nullcontext()
    with lock, other_ranks(config, arguments):
        model = train(config, evaluate=evaluates, convert=bool(options.convert or options.push_to_hub))
    if model is not None and options.push_to_hub:
        logger.info("pushed to %s", push(model, options.push_to_hub, private=options.private))
    return 0
