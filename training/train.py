"""The embedded host's training loop.

    mem-agent train

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
also answer the evaluations of HF_CKPT before its first rollout, and of that folder (``evaluate.py``).

Every process runs this file; rank 0 alone owns engines, data, journal and logs, the others get each rollout by
broadcast. A run that was killed continues from its newest whole checkpoint and replays the journal up to where it was;
the journal reaches back to the oldest checkpoint that is kept, so a run may also go back to that one.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

from ..checkpoints.folders import latest, newest_of_run, number_of
from ..checkpoints.hf_model import (
    left_settings,
    load_vocabulary,
    local_folder,
    with_engine_length,
)
from ..checkpoints.precision import with_train_dtype
from ..config import Config, ConfigError, load_yaml, write_settings
from ..data.training_file import DataSource
from ..hooks.plugins import check_evaluations, check_own_tasks, check_plugins, check_tracker, refuse_ignored
from ..system.errors import MemAgentError
from ..system.files import folder_lock
from ..system.logging_setup import start_logging
from ..system.one_line_errors import one_line_errors
from ..system.process_environment import share_cores
from ..system.signals import stop_if_asked, stop_on_signals
from .evaluate import check_before, rows_of
from .log import RunLog
from .ranks import broadcast, is_rank_zero, leave, other_ranks, with_train_procs
from .resume import Rollout, resume, save
from .rollouts import Rollouts
from .rows import TrainRow, optimizer_steps, rows_from_train_data
from .tries import trie_tokens

logger = logging.getLogger("mem_agent")


NOTHING_TO_TRAIN = 4
"""Exit code where the run had already ended, so nothing was converted or evaluated; the caller does that."""


# --- the run --------------------------------------------------------------------------------------------------------


def train(config: Config, *, evaluate: bool = False, convert: bool = False) -> bool:
    """Run or continue the training run in ``config.save_path``; False where it had ended before.

    With ``convert`` and ``evaluate`` as the options of the command.
    """
    newest = newest_of_run(config.save_path)
    first = number_of(newest) + 1 if newest is not None else 0
    if first >= config.num_rollout:
        logger.info("%s already holds %d rollouts; raise NUM_ROLLOUT to go on", newest, config.num_rollout)
        return False
    if evaluate and is_rank_zero():
        check_before(config)
    with ExitStack() as ending:
        log = ending.enter_context(closing(RunLog(config, first, silent=not is_rank_zero())))
        source = None
        if is_rank_zero():
            source = ending.enter_context(closing(Rollouts(config, evaluate=evaluate)))
        ending.callback(log.enter, "ending")
        train_rollouts(config, source, log)
        if source is not None and (convert or evaluate):
            from ..checkpoints.convert import convert as convert_checkpoint

            log.enter("converting")
            last = latest(config.save_path)
            assert last is not None, "a run that has ended has a checkpoint"
            model = Path(config.save_path) / "hf" / last.name
            convert_checkpoint(last, config.hf_ckpt, model, force=True)  # one that is there is of a run set back since
            logger.info("converted %s", model)
            if evaluate:
                stop_if_asked()
                log.enter("evaluating")
                source.evaluate(f"after-{model.name}", model)
    return True


def train_rollouts(config: Config, source: Rollouts | None, log: RunLog) -> None:
    """The rollouts that are left; ``source`` is rank 0's."""
    from .trainer import Trainer  # not before the engines start: these imports take seconds

    trainer = Trainer(config)
    start, next_group = resume(config, trainer)
    if source is not None:
        write_settings(config)  # not before it is clear that the run goes on under them
        source.begin()
    log.begin(start)
    sync(source, trainer, start)
    for number in range(start, config.num_rollout):
        stop_if_asked()
        log.enter("sampling")
        began = time.monotonic()
        rollout = broadcast(source.rollout(number, next_group) if source is not None else None)
        assert rollout is not None, "rank 0 gives it"
        next_group = rollout.next_group
        stop_if_asked()
        metrics = rollout.metrics | {"seconds/rollout": time.monotonic() - began}
        metrics |= source.speed if source is not None else {}
        log.enter("learning")
        metrics |= learn(config, trainer, rollout)
        log.enter("sending weights")
        evaluates = config.eval_interval > 0 and (number + 1) % config.eval_interval == 0
        metrics["seconds/sync"] = sync(source, trainer, number + 1, evaluates=evaluates)
        if evaluates and source is not None:
            log.enter("evaluating")
            metrics |= source.evaluate_policy(number)
        metrics["seconds"] = time.monotonic() - began
        # Before the checkpoint: a resumed run drops lines it writes again, but could not make up a lost one.
        log.finish(number, metrics)
        if (number + 1) % config.save_interval == 0 or number + 1 == config.num_rollout:
            log.enter("saving")
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
        reference: Sequence[Any] = [None] * len(steps)
        if config.compares_with_reference:
            reference = scores(trainer.reference_log_probs, steps)
        old = [None, *scores(trainer.log_probs, steps[1:])]
        scored = time.monotonic()
        results = [trainer.train_step(*step) for step in zip(steps, old, reference, strict=True)]
    updated = time.monotonic()
    metrics = {name: sum(result[name] for result in results) / len(results) for name in results[0]}
    if not all(math.isfinite(metrics[name]) for name in ("loss", "grad_norm")):
        raise MemAgentError(
            f"loss {metrics['loss']} and gradient norm {metrics['grad_norm']} are not finite; lower LR and continue "
            f"from the newest checkpoint in {config.save_path}"
        )
    return metrics | {
        "rows": len(rows),
        "row_tokens": sum(len(row.tokens) for row in rows),
        "trie_tokens": trie_tokens([row.inputs for row in rows]),
        "seconds/log_probs": scored - began,
        "seconds/update": updated - scored,
    }


def scores(
    log_probs: Callable[[list[TrainRow]], list[list[float]]], steps: Sequence[Sequence[TrainRow]]
) -> list[list[list[float]]]:
    """For each step the log-probs of its rows; zeros for rows that are masked as a whole, which nothing counts."""
    found = iter(log_probs([row for step in steps for row in step if any(row.loss_mask)]))
    return [[next(found) if any(row.loss_mask) else [0.0] * row.response_length for row in step] for step in steps]


# --- before anything is started -------------------------------------------------------------------------------------


def checked(config: Config) -> Config:
    """The config with a local model folder, TRAIN_PROCS, TRAIN_DTYPE and the engines' length.

    Raises:
        MemAgentError: it cannot be trained.
    """
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    refuse_ignored(config, "local")
    check_tracker(config)
    check_evaluations(config)
    if config.lora_rank and config.trainer_tp > 1:
        raise ConfigError(f"LORA_RANK={config.lora_rank}: adapters are trained on whole matrices, not with "
                          f"TP={config.tp}; set TP=1, where TRAIN_PROCS gives copies that share the rows")
    if config.supervised and config.n_samples_per_prompt > 1:
        logger.info("LOSS=sft: a row has one reply, N_SAMPLES_PER_PROMPT=%d is not read", config.n_samples_per_prompt)
    check_plugins(config)
    check_own_tasks(DataSource(config.train_data, config.seed), config)
    for file in config.eval_files:
        check_own_tasks(rows_of(config, file)[0], config)
    folder = local_folder(config.hf_ckpt)
    began = left_settings(config.save_path)
    config = with_train_procs(config.replace(hf_ckpt=str(folder)), folder, began.get("TRAIN_PROCS", 0))
    if is_rank_zero():  # the others hear it from this one
        config = with_train_dtype(config, folder, began.get("TRAIN_DTYPE", "auto"))
    copies = config.train_procs // config.trainer_tp
    if config.step_trajectories < copies:
        raise ConfigError(f"GLOBAL_BATCH_SIZE={config.step_trajectories} is below the {copies} data-parallel copies")
    vocabulary = load_vocabulary(folder, config.trust_remote_code)
    sized = with_engine_length(config, folder, vocabulary)
    if config.eval_mode != "direct":
        return sized
    served = with_engine_length(config, folder, vocabulary, config.eval_mode)  # it shows more than a turn of training
    return max(sized, served, key=lambda one: one.engine_max_len)


# --- command line ---------------------------------------------------------------------------------------------------


@one_line_errors("the same command continues from the newest checkpoint")
def main(argv: Sequence[str] | None = None) -> int:
    description = "Train a memory agent with the embedded host. Settings come from the environment: mem-agent config."
    parser = argparse.ArgumentParser(prog="mem-agent train", description=description)
    parser.add_argument("--config", type=Path, help="YAML written by Config.to_yaml; default: the environment")
    parser.add_argument("--check", action="store_true", help="only check settings and training file")
    parser.add_argument("--convert", action="store_true", help="convert the last checkpoint into SAVE_PATH/hf")
    parser.add_argument("--evaluate", action="store_true",
                        help="convert, and evaluate DATA_ROOT before and after, into SAVE_PATH/eval; exit code "
                        f"{NOTHING_TO_TRAIN} where the run had ended before")
    options = parser.parse_args(argv)
    start_logging()
    stop_on_signals()
    config = checked(load_yaml(options.config) if options.config else Config.from_env())
    if options.check:
        return 0
    if config.train_procs > 1:
        logger.info("%d trainer processes", config.train_procs)
    share_cores(config.train_procs)
    busy = "is in use by another run; wait for it or set another SAVE_PATH"
    lock = folder_lock(Path(config.save_path), busy=busy) if is_rank_zero() else nullcontext()
    with lock, other_ranks(config, sys.argv[1:] if argv is None else argv):
        trained = train(config, evaluate=options.evaluate, convert=options.convert)
    return 0 if trained or not (options.evaluate or options.convert) else NOTHING_TO_TRAIN


if __name__ == "__main__":
    sys.exit(main())
