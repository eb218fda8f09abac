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

LOSS=sft is the same loop on the replies that rows give: without 3 and 5, and with engines for evaluations alone.

What people see of it is in ``watch.py``.

With ``--convert`` the last checkpoint is written as a Hugging Face folder. With ``--evaluate`` the engines of the run
also answer the evaluations of HF_CKPT before its first rollout, and of that folder (``evaluate.py``).

Every process runs this file; rank 0 alone owns engines, data, journal and logs, the others get each rollout by
broadcast. A run that was killed continues from its newest whole checkpoint and replays the journal up to where it was;
the journal reaches back to the oldest checkpoint that is kept, so a run may also go back to that one.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints.folders import latest, newest_of_run, number_of
from ..config import Config, load_yaml, write_settings
from ..system.files import folder_lock
from ..system.logging_setup import start_logging
from ..system.one_line_errors import one_line_errors
from ..system.process_environment import share_cores
from ..system.signals import stop_if_asked, stop_on_signals
from .checks import checked
from .continuing import absorbed, resume, save
from .evaluate import check_before, evaluates_after
from .journal import Rollout
from .progress import Phase
from .ranks import is_rank_zero, other_ranks
from .watch import Unwatched, Watch, Watcher

if TYPE_CHECKING:
    from .side import Side

logger = logging.getLogger("mem_agent")


NOTHING_TO_TRAIN = 4
"""Exit code of a run that had already ended when --convert or --evaluate was asked for; the caller does that."""


def train(config: Config, *, evaluate: bool = False, convert: bool = False) -> bool:
    """Run or continue the training run in ``config.save_path``; False where it had ended before.

    With ``convert`` and ``evaluate`` as the options of the command.
    """
    newest = newest_of_run(config.save_path)
    first = number_of(newest) + 1 if newest is not None else 0
    if first >= config.num_rollout:
        logger.info("%s already holds %d rollouts; raise NUM_ROLLOUT to go on", newest, config.num_rollout)
        return False
    watch = Watch(config, first) if is_rank_zero() else Unwatched()
    side: Side | None = None
    try:
        side = make_side(config, evaluate) if is_rank_zero() else None
        _train(config, side, watch)
        watch.enter(Phase.ENDING)
        if side is not None and (convert or evaluate):
            model = convert_last(config)
            if evaluate:
                stop_if_asked()
                watch.enter(Phase.EVALUATING)
                side.evaluate(f"after-{model.name}", model)
    finally:
        watch.enter(Phase.ENDING)  # an interrupted run too: the turn counter goes away with the side
        if side is not None:
            side.close()
        watch.close()
    return True


def _train(config: Config, side: Side | None, watch: Watcher) -> None:
    """The rollouts that are left."""
    from . import process_group  # not before the engines start: these imports take seconds
    from .learning import learn
    from .trainer import Trainer

    trainer = Trainer(config)
    start, next_group = resume(config, trainer)
    if side is not None:
        write_settings(config)  # not before it is clear that the run goes on under them
        side.wait_until_ready()
        watch.begin(start, side.counts)
    sync(side, trainer, start)
    for number in range(start, config.num_rollout):
        stop_if_asked()
        watch.enter(Phase.SAMPLING, number)
        began = time.monotonic()
        rollout = broadcast(side.rollout(number, next_group) if side is not None else None)
        next_group = rollout.next_group
        stop_if_asked()
        metrics = rollout.metrics | {"seconds/rollout": time.monotonic() - began}
        metrics |= side.speed if side is not None else {}
        watch.enter(Phase.LEARNING)
        metrics |= learn(config, trainer, rollout)
        watch.enter(Phase.SENDING)
        evaluates = evaluates_after(config, number)
        metrics["seconds/sync"] = sync(side, trainer, number + 1, evaluates=evaluates)
        if evaluates:
            watch.enter(Phase.EVALUATING)
            metrics |= side.evaluate_policy(number) if side is not None else {}
        metrics["seconds"] = time.monotonic() - began
        # Before the checkpoint: a resumed run drops lines it writes again, but could not make up a lost one.
        watch.finish(number, metrics)
        if (number + 1) % config.save_interval == 0 or number + 1 == config.num_rollout:
            watch.enter(Phase.SAVING)
            save(config, trainer, number, next_group)
            if side is not None:
                side.journal.forget(absorbed(config, number))
    if config.train_procs > 1:
        process_group.stop()  # a process that ends while gloo's threads run may abort


def make_side(config: Config, evaluate: bool) -> Side:
    """Rank 0's. With ``evaluate`` its engines evaluate HF_CKPT first."""
    if evaluate:
        check_before(config)
    if config.supervised:
        from .supervised_side import SupervisedSide

        return SupervisedSide(config, evaluate=evaluate)
    from .rollout_side import RolloutSide

    return RolloutSide(config, evaluate=evaluate)


def convert_last(config: Config) -> Path:
    """The newest checkpoint as the Hugging Face folder that convert-to-hf.sh writes; it appears when it is whole."""
    from ..checkpoints.convert import convert

    newest = latest(config.save_path)
    assert newest is not None
    folder = Path(config.save_path) / "hf" / newest.name
    convert(newest, config.hf_ckpt, folder, force=True)  # one that is there is of a run that was set back since
    logger.info("converted %s", folder)
    return folder


def broadcast(rollout: Rollout | None) -> Rollout:
    """Rank 0's rollout on every rank."""
    from torch import distributed

    box = [rollout]
    distributed.broadcast_object_list(box, src=0)
    assert box[0] is not None
    return box[0]


def sync(side: Side | None, trainer: Any, version: int, *, evaluates: bool = False) -> float:
    """The policy's weights into every engine, under ``version``; seconds. Collective. LOSS=sft only evaluates them."""
    if trainer.config.supervised and not evaluates:
        return 0.0
    tensors = trainer.export_hf()
    return side.sync(tensors, version) if side is not None else 0.0


# --- command line -------------------------------------------------------------------------------------------------

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
