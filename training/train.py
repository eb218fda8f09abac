"""The embedded host's training loop.

    mem-agent train

Settings come from the environment (see ``config.py``); with TRAIN_PROCS=2 this process starts a second rank. One turn
of the loop, for rollout r:

    1. engines serve weights of version r; documents are read through the hooks (rank 0)
    2. the converter hook makes training rows; they go to the journal, then to every rank
    3. reference log-probs of all rows, and the old policy's where more than one step follows
    4. one optimizer step per GLOBAL_BATCH_SIZE trajectories
    5. weights of version r+1 into every engine, confirmed by each
    6. a checkpoint every SAVE_INTERVAL rollouts: ``iter_<r>``

LOSS=sft is the same loop on the replies that rows give: without 3 and 5, and with engines for evaluations alone.

With ``--convert`` the last checkpoint is written as a Hugging Face folder. With ``--evaluate`` the engines of the run
also answer the evaluations of HF_CKPT before its first rollout, and of that folder (``evaluation.py``).

Every process runs this file; rank 0 alone owns engines, data, journal and logs, the others get each rollout by
broadcast. A run that was killed continues from its newest checkpoint and replays the journal up to where it was;
the journal reaches back to the oldest checkpoint that is kept, so a run may also be set back to that one.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints.folders import latest, number_of, numbered, prune
from ..checkpoints.hf_model import load_vocabulary, local_folder, with_engine_length
from ..config import Config, ConfigError, load_yaml, write_settings
from ..data.training_file import DataSource
from ..hooks.plugins import check_own_tasks, check_plugins
from ..system.logging_setup import start_logging
from ..system.one_line_errors import one_line_errors
from ..system.process_environment import share_cores
from ..system.save_lock import save_lock
from ..system.signals import stop_if_asked, stop_on_signals
from .evaluation import Evaluation
from .journal import Rollout, fingerprint
from .process_count import with_train_procs
from .ranks import other_ranks
from .run_log import RunLog, progress_line

if TYPE_CHECKING:
    from .side import Side

logger = logging.getLogger("mem_agent")


NOTHING_TO_TRAIN = 4
"""Exit code of a run that had ended before, and was to be converted or evaluated: whoever called does that."""


def train(config: Config, *, evaluate: bool = False, convert: bool = False) -> bool:
    """Run or continue the training run in ``config.save_path``; False where it had ended before.

    With ``convert`` and ``evaluate`` as the options of the command.
    """
    newest = latest(config.save_path)
    if newest is not None and number_of(newest) + 1 >= config.num_rollout:
        logger.info("%s already holds %d rollouts; raise NUM_ROLLOUT to go on", newest, config.num_rollout)
        return False
    side = make_side(config, evaluate) if is_rank_zero() else None
    try:
        from .learning import learn  # not before the engines start: these imports take seconds
        from .trainer import Trainer

        trainer = Trainer(config)
        start, next_group = resume(config, trainer)
        if side is not None:
            write_settings(config)  # not before it is clear that the run goes on under them
            side.wait_until_ready()
        log = RunLog(config.save_path, start) if side is not None else None
        sync(side, trainer, start)
        for number in range(start, config.num_rollout):
            stop_if_asked()
            began = time.monotonic()
            rollout = broadcast(side.rollout(number, next_group) if side is not None else None)
            next_group = rollout.next_group
            stop_if_asked()
            metrics = rollout.metrics | {"seconds/rollout": time.monotonic() - began}
            metrics |= learn(config, trainer, rollout, number)
            metrics["seconds/sync"] = sync(side, trainer, number + 1)
            metrics["seconds"] = time.monotonic() - began
            if log is not None:
                # Before the checkpoint: a resumed run drops lines it writes again, but could not make up a lost one.
                log.write(number, metrics)
                logger.info(progress_line(number, config.num_rollout, metrics))
            if (number + 1) % config.save_interval == 0 or number + 1 == config.num_rollout:
                save(config, trainer, number, next_group)
                if side is not None:
                    side.journal.forget(absorbed(config, number))
        if side is not None and (convert or evaluate):
            model = convert_last(config)
            if evaluate:
                stop_if_asked()
                side.evaluate(Evaluation(config, f"after-{model.name}", model), model)
    finally:
        if side is not None:
            side.close()
    return True


def make_side(config: Config, evaluate: bool) -> Side:
    """Rank 0's; with ``evaluate`` its engines are long enough to answer both, and first evaluate HF_CKPT."""
    before = Evaluation(config, "before", config.hf_ckpt)
    check = before.start_check() if evaluate else None
    side = side_of(config, evaluate)  # whose imports take seconds, while the check runs
    if check is None:
        return side(config)
    engine_len, missing = check.result()
    if not missing:
        logger.info("%s has all answers of the evaluation before", before.output)
    return side(config, before if missing else None, engine_len)


def side_of(config: Config, evaluate: bool) -> Callable[..., Side]:
    if config.supervised:
        from .supervised_side import SupervisedSide

        return partial(SupervisedSide, engines=evaluate)
    from .rollout_side import RolloutSide

    return RolloutSide


def convert_last(config: Config) -> Path:
    """The newest checkpoint as the Hugging Face folder that convert-to-hf.sh writes; it appears when it is whole."""
    from ..checkpoints.convert import convert

    newest = latest(config.save_path)
    assert newest is not None
    folder = Path(config.save_path) / "hf" / newest.name
    convert(newest, config.hf_ckpt, folder, force=True)  # one that is there is of a run that was set back since
    logger.info("converted %s", folder)
    return folder


def is_rank_zero() -> bool:
    return os.environ.get("RANK", "0") == "0"


def broadcast(rollout: Rollout | None) -> Rollout:
    """Rank 0's rollout on every rank."""
    from torch import distributed

    box = [rollout]
    distributed.broadcast_object_list(box, src=0)
    assert box[0] is not None
    return box[0]


def sync(side: Side | None, trainer: Any, version: int) -> float:
    """The policy's weights into every engine, under ``version``; seconds. Collective. LOSS=sft samples from none."""
    if trainer.config.supervised:
        return 0.0
    tensors = trainer.export_hf()
    return side.sync(tensors, version) if side is not None else 0.0


def resume(config: Config, trainer: Any) -> tuple[int, int]:
    """Load the newest checkpoint, if any: (first rollout to do, next group of the data order)."""
    from ..checkpoints import checkpoint

    folder = latest(config.save_path)
    if folder is None:
        return 0, 0
    state = checkpoint.load(folder, trainer)
    if state["start"] != start_of(config):
        raise ConfigError(
            f"{config.save_path} holds a run that started from {state['start']}, not from {start_of(config)}; "
            "set another SAVE_PATH, or HF_CKPT and TORCH_DIST as they were"
        )
    if state.get("loss", "grpo") != config.loss:
        raise ConfigError(
            f"{config.save_path} holds a run of LOSS={state.get('loss', 'grpo')}, not of LOSS={config.loss}; set "
            "another SAVE_PATH, and to go on from its weights HF_CKPT to a folder that convert-to-hf.sh has written"
        )
    if state["fingerprint"] != fingerprint(config):
        logger.warning("settings have changed since %s was written; its run continues under the new ones", folder)
    logger.info("continuing after rollout %d from %s", state["rollout"] + 1, folder)
    return state["rollout"] + 1, state["next_group"]


def start_of(config: Config) -> str:
    """Where the policy and the reference model come from: a run keeps both for life."""
    return os.path.realpath(config.torch_dist or config.hf_ckpt)


def save(config: Config, trainer: Any, number: int, next_group: int) -> None:
    from ..checkpoints import checkpoint

    state: dict[str, Any] = {"rollout": number, "next_group": next_group}
    state |= {"fingerprint": fingerprint(config), "start": start_of(config), "loss": config.loss}
    path = checkpoint.save(config.save_path, number, trainer, state)
    if is_rank_zero():
        prune(config.save_path, config.keep_checkpoints)
    logger.info("checkpoint %s", path)


def absorbed(config: Config, number: int) -> int:
    """The last rollout that no kept checkpoint needs: whoever goes back to the oldest replays what came after it."""
    return number_of(numbered(config.save_path)[0]) if config.keep_checkpoints else number


# --- command line -------------------------------------------------------------------------------------------------

_NOT_HERE = {
    "TRACKER": "this host writes metrics to SAVE_PATH/metrics.jsonl alone; set TRACKER=none",
    "EVAL_INTERVAL": "this host does not evaluate while it trains; set EVAL_INTERVAL=0, and DATA_ROOT for an "
    "evaluation before and after",
    "EVAL_DATA": "this host does not evaluate while it trains; unset EVAL_DATA, and set DATA_ROOT for an evaluation "
    "before and after",
}
"""Settings of slime and vime that look as if they did something here, and the remedy."""


def refuse_what_is_not_done_here(config: Config) -> None:
    given, default = config.to_mapping(), Config().to_mapping()
    for name, remedy in _NOT_HERE.items():
        if given[name] != default[name]:
            raise ConfigError(f"{name}={given[name]!r}: {remedy}")


def refuse_split_adapters(config: Config) -> None:
    if config.lora_rank and config.trainer_tp > 1:
        raise ConfigError(f"LORA_RANK={config.lora_rank}: adapters are trained on whole matrices, not with "
                          f"TP={config.tp}; set TP=1, where TRAIN_PROCS gives copies that share the rows")


def checked(config: Config) -> Config:
    """The config with a local model folder, or the reason why it cannot be trained, before anything is started."""
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    refuse_what_is_not_done_here(config)
    refuse_split_adapters(config)
    if config.supervised and config.n_samples_per_prompt > 1:
        logger.info("LOSS=sft: a row has one reply, N_SAMPLES_PER_PROMPT=%d is not read", config.n_samples_per_prompt)
    check_plugins(config)
    check_own_tasks(DataSource(config.train_data, config.seed), config)
    folder = local_folder(config.hf_ckpt)
    config = with_train_procs(replace(config, hf_ckpt=str(folder)), folder)
    copies = config.train_procs // config.trainer_tp
    if config.step_trajectories < copies:
        raise ConfigError(f"GLOBAL_BATCH_SIZE={config.step_trajectories} is below the {copies} data-parallel copies")
    return with_engine_length(config, folder, load_vocabulary(folder))


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
    if options.config and options.evaluate:
        parser.error("--evaluate takes its settings from the environment, where --config does not look")
    start_logging()
    stop_on_signals()
    config = checked(load_yaml(options.config) if options.config else Config.from_env())
    if options.check:
        return 0
    if config.train_procs > 1:
        logger.info("%d trainer processes", config.train_procs)
    share_cores(config.train_procs)
    with save_lock(config.save_path), other_ranks(config, sys.argv[1:] if argv is None else argv):
        trained = train(config, evaluate=options.evaluate, convert=options.convert)
    return 0 if trained or not (options.evaluate or options.convert) else NOTHING_TO_TRAIN


if __name__ == "__main__":
    sys.exit(main())
