"""The embedded host's training loop.

    python -m mem_agent.host.train

Settings come from the environment (see ``config.py``); with TRAIN_PROCS=2 this process starts a second rank. One turn
of the loop, for rollout r:

    1. engines serve weights of version r; documents are read through the hooks (rank 0)
    2. the converter hook makes training rows; they go to the journal, then to every rank
    3. old-policy and reference log-probs of all rows
    4. one optimizer step per GLOBAL_BATCH_SIZE trajectories
    5. weights of version r+1 into every engine, confirmed by each
    6. a checkpoint every SAVE_INTERVAL rollouts: ``iter_<r>``

Every process runs this file; rank 0 alone owns engines, data, journal and logs, the others get each rollout by
broadcast. A run that was killed continues from its newest checkpoint and replays the journal up to where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .. import rollout as hooks
from ..agents import check_agent
from ..config import Config, ConfigError, load_yaml
from ..custom_convert import custom_convert
from ..errors import MemAgentError
from ..rollout_client import close_clients
from ..rollout_filter import nonzero_std
from ..rollout_metrics import rollout_metrics
from .data_source import DataSource
from .group_rollout import Hooks, RolloutError, collect_batch
from .hf_model import local_folder, with_engine_length
from .journal import Journal, Rollout, fingerprint
from .processes import FleetError
from .ranks import other_ranks
from .run_log import RunLog, progress_line, start_logging
from .sample import Sample
from .save_lock import save_lock
from .signals import stop_on_signals

logger = logging.getLogger("mem_agent")


class Background:
    """An event loop in its own thread, so that engines start and answer while this thread trains."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollouts", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Result of ``coroutine``; an interrupt of this thread cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class RolloutSide:
    """What only rank 0 has: engines behind a router, the documents, the hooks."""

    def __init__(self, config: Config) -> None:
        from .fleet import Fleet

        self.config = config
        self.source = DataSource(config.train_data, config.seed, config.n_samples_per_prompt)
        self.journal = Journal(config.save_path, config)
        self.fleet = Fleet(config, config.hf_ckpt, run_folder=config.save_path)
        self.background = Background()
        self._starting = self.background.submit(self.fleet.start())

    def wait_until_ready(self) -> None:
        self._starting.result()

    def sync(self, tensors: dict[str, Any], version: int) -> float:
        return self.background.run(self.fleet.sync_weights(tensors, str(version)))

    def rollout(self, number: int, first_group: int) -> Rollout:
        """Rollout ``number`` from the journal, else sampled and journalled."""
        known = self.journal.read(number)
        if known is not None:
            logger.info("rollout %d is replayed from the journal", number + 1)
            return known
        self.background.run(self.fleet.ensure_alive())
        fresh = self.background.run(self._sample(number, first_group))
        self.journal.write(number, fresh)
        return fresh

    async def _sample(self, number: int, first_group: int) -> Rollout:
        config = self.config
        args = hook_args(config, self.fleet.host, self.fleet.port)
        keep = nonzero_std if config.dynamic_filter == "nonzero_std" else None
        batch = await collect_batch(
            Hooks(hooks.generate, hooks.reward_func, keep),
            args,
            self.source.group,
            first_group,
            config.rollout_batch_size,
            config.groups_in_flight,
            lambda sample: training_sampling(config, sample),
        )
        samples = batch.samples
        stale = mask_stale(samples, str(number))
        metrics = rollout_metrics(batch.sampled) | {"dropped_groups": len(batch.dropped), "stale": stale}
        return Rollout(custom_convert(args, samples), batch.next_group, metrics)

    def close(self) -> None:
        self._starting.cancel()
        self.background.run(self.fleet.stop())
        self.background.run(close_clients())
        self.background.close()


def hook_args(config: Config, host: str, port: int) -> SimpleNamespace:
    """The namespace that hooks see here: the names slime and vime use, as far as the hooks read them."""
    return SimpleNamespace(
        hf_checkpoint=config.hf_ckpt,
        vllm_router_ip=host,
        vllm_router_port=port,
        vllm_max_model_len=config.engine_max_len,
        prompt_data=config.train_data,
        global_batch_size=config.step_trajectories,
        mem_agent=config,
    )


def training_sampling(config: Config, sample: Sample) -> dict[str, Any]:
    """Sampling parameters of one trajectory. Its seed depends on the run's seed and its number only."""
    digest = hashlib.sha256(f"{config.seed}/{sample.index}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big") >> 1
    return {"temperature": config.temperature, "top_p": 1.0, "top_k": -1, "sampling_seed": seed}


def mask_stale(samples: list[Sample], version: str) -> int:
    """Take trajectories that any other weight version sampled out of training; returns how many there were."""
    stale = [s for s in samples if s.weight_versions and s.weight_versions != [version]]
    for sample in stale:
        sample.remove_sample = True
        logger.warning("trajectory %s has turns of weights %s, not %s", sample.index, sample.weight_versions, version)
    if stale and len(stale) == sum(bool(s.weight_versions) for s in samples):
        raise RolloutError(f"every trajectory came from other weights than version {version}; the engines are stale")
    return len(stale)


# --- the loop -----------------------------------------------------------------------------------------------------


def train(config: Config) -> None:
    """Run or continue the training run in ``config.save_path``."""
    from .trainer import Trainer

    rank_zero = os.environ.get("RANK", "0") == "0"
    side = RolloutSide(config) if rank_zero else None
    try:
        trainer = Trainer(config)
        start, next_group = resume(config, trainer)
        if start >= config.num_rollout:
            logger.info("%s already holds %d of %d rollouts", config.save_path, start, config.num_rollout)
            return
        if side is not None:
            side.wait_until_ready()
        log = RunLog(config.save_path, start) if rank_zero else None
        sync(side, trainer, start)
        for number in range(start, config.num_rollout):
            began = time.monotonic()
            rollout = broadcast(side.rollout(number, next_group) if side is not None else None)
            next_group = rollout.next_group
            metrics = rollout.metrics | {"seconds/rollout": time.monotonic() - began}
            metrics |= learn(config, trainer, rollout)
            metrics["seconds/sync"] = sync(side, trainer, number + 1)
            metrics["seconds"] = time.monotonic() - began
            if log is not None:
                # Before the checkpoint: a resumed run drops lines it writes again, but could not make up a lost one.
                log.write(number, metrics)
                logger.info(progress_line(number, config.num_rollout, metrics))
            if (number + 1) % config.save_interval == 0 or number + 1 == config.num_rollout:
                save(config, trainer, number, next_group)
                if side is not None:
                    side.journal.forget(number)
    finally:
        if side is not None:
            side.close()


def broadcast(rollout: Rollout | None) -> Rollout:
    """Rank 0's rollout on every rank."""
    from torch import distributed

    box = [rollout]
    distributed.broadcast_object_list(box, src=0)
    assert box[0] is not None
    return box[0]


def learn(config: Config, trainer: Any, rollout: Rollout) -> dict[str, float]:
    """Log-probs under the old and the reference policy, then the optimizer steps; metrics are means over steps."""
    from .rows import optimizer_steps, rows_from_train_data

    rows = rows_from_train_data(rollout.train_data)
    began = time.monotonic()
    old = trainer.log_probs(rows)
    reference = trainer.reference_log_probs(rows) if config.kl_coef > 0 else None
    scored = time.monotonic()
    steps = optimizer_steps(rows, config.step_trajectories)
    assert [row for step in steps for row in step] == rows, "the converter keeps a trajectory's rows together"
    results, first = [], 0
    for step in steps:
        part = slice(first, first + len(step))
        results.append(trainer.train_step(step, old[part], reference[part] if reference is not None else None))
        first += len(step)
    tokens = sum(len(row.tokens) for row in rows)
    metrics = {name: sum(r[name] for r in results) / len(results) for name in results[0]}
    if not all(math.isfinite(metrics[name]) for name in ("loss", "grad_norm")):
        raise RolloutError(
            f"loss {metrics['loss']} and gradient norm {metrics['grad_norm']} are not finite; lower LR and continue "
            f"from the newest checkpoint in {config.save_path}"
        )
    return metrics | {
        "rows": len(rows),
        "row_tokens": tokens,
        "seconds/log_probs": scored - began,
        "seconds/update": time.monotonic() - scored,
    }


def sync(side: RolloutSide | None, trainer: Any, version: int) -> float:
    """The policy's weights into every engine, under ``version``; seconds. Collective."""
    tensors = trainer.export_hf()
    return side.sync(tensors, version) if side is not None else 0.0


def resume(config: Config, trainer: Any) -> tuple[int, int]:
    """Load the newest checkpoint, if any: (first rollout to do, next group of the data order)."""
    from . import checkpoint

    folder = checkpoint.latest(config.save_path)
    if folder is None:
        return 0, 0
    state = checkpoint.load(folder, trainer)
    if state["start"] != start_of(config):
        raise ConfigError(
            f"{config.save_path} holds a run that started from {state['start']}, not from {start_of(config)}; "
            "set another SAVE_PATH, or HF_CKPT and TORCH_DIST as they were"
        )
    if state["fingerprint"] != fingerprint(config):
        logger.warning("settings have changed since %s was written; its run continues under the new ones", folder)
    logger.info("continuing after rollout %d from %s", state["rollout"] + 1, folder)
    return state["rollout"] + 1, state["next_group"]


def start_of(config: Config) -> str:
    """Where the policy and the reference model come from: a run keeps both for life."""
    return os.path.realpath(config.torch_dist or config.hf_ckpt)


def save(config: Config, trainer: Any, number: int, next_group: int) -> None:
    from . import checkpoint

    state: dict[str, Any] = {"rollout": number, "next_group": next_group}
    state |= {"fingerprint": fingerprint(config), "start": start_of(config)}
    path = checkpoint.save(config.save_path, number, trainer, state)
    checkpoint.prune(config.save_path, config.keep_checkpoints)
    logger.info("checkpoint %s", path)


# --- command line -------------------------------------------------------------------------------------------------


def checked(config: Config) -> Config:
    """The config with a local model folder, or the reason why it cannot be trained, before anything is started."""
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    check_agent(config)
    copies = config.train_procs // config.tp
    if config.step_trajectories < copies:
        raise ConfigError(f"GLOBAL_BATCH_SIZE={config.step_trajectories} is below the {copies} data-parallel copies")
    DataSource(config.train_data, config.seed, config.n_samples_per_prompt)
    folder = local_folder(config.hf_ckpt)
    return with_engine_length(replace(config, hf_ckpt=str(folder)), folder)


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a memory agent with the embedded host.")
    parser.add_argument("--config", type=Path, help="YAML written by Config.to_yaml; default: the environment")
    parser.add_argument("--check", action="store_true", help="only check settings and training file")
    options = parser.parse_args()
    start_logging()
    stop_on_signals()
    try:
        config = checked(load_yaml(options.config) if options.config else Config.from_env())
        if not options.check:
            with save_lock(config.save_path), other_ranks(config):
                train(config)
    except KeyboardInterrupt:
        print("interrupted; the same command continues from the newest checkpoint", file=sys.stderr)
        return 130
    except (MemAgentError, FleetError, OSError) as error:
        # OSError: a full disk or a folder without permission, anywhere; its text names the file.
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
