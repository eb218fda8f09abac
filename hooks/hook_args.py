"""The namespace that hooks see in the embedded host, for training and evaluation alike."""

from __future__ import annotations

from types import SimpleNamespace

from ..config import Config


def hook_args(config: Config, host: str | None, port: int | None) -> SimpleNamespace:
    """The names slime and vime use, as far as the hooks read them; the router listens at ``host``, ``port``."""
    return SimpleNamespace(
        hf_checkpoint=config.hf_ckpt,
        vllm_router_ip=host,
        vllm_router_port=port,
        vllm_max_model_len=config.engine_max_len,
        prompt_data=config.train_data,
        global_batch_size=config.step_trajectories,
        mem_agent=config,
    )
