"""vLLM's API server, whose engine process is forked instead of spawned: ``python -m mem_agent.serving.engine_server``.

A server is two processes, and a spawned engine process imports all of vLLM again, which is nearly half of a start. A
fork has it. vLLM spawns on CPU because a forked process inherits OpenMP's threads by name only; here the fork comes
before any were started: a server has one OpenMP thread (``engine.engine_environment``), and one is no team.

For engines on CPU alone: CUDA cannot be used after a fork.
"""

from __future__ import annotations

import gc
import multiprocessing
import os


def fork_engines() -> None:
    """Have vLLM fork its engine processes. Raises AssertionError where that is not safe."""
    from vllm.platforms import current_platform
    from vllm.v1.engine import utils

    assert current_platform.is_cpu(), "engines on CUDA cannot be forked"
    assert os.environ.get("OMP_NUM_THREADS") == "1", "a forked engine would wait for OpenMP threads that are gone"
    assert hasattr(utils, "get_mp_context"), "vLLM starts its engine processes in another way"
    # VLLM_WORKER_MULTIPROC_METHOD does not do: vLLM's CPU platform sets it to spawn.
    utils.get_mp_context = lambda: multiprocessing.get_context("fork")


def main() -> None:
    from vllm.entrypoints.launchers.api_server import entry

    fork_engines()
    gc.freeze()  # what is imported lives for good; a collection in either process would copy its pages
    entry.main()


if __name__ == "__main__":
    main()
