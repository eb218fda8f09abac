"""What runs inside an engine: the server that is started on CPU, and what any vLLM server of the pack loads.

``python -m mem_agent.serving.engine_server`` is vLLM's API server, whose engine process is forked instead of spawned.
A server is two processes, and a spawned engine process imports all of vLLM again, which is nearly half of a start; a
forked one has it already. vLLM spawns on CPU because a forked process inherits OpenMP's threads by name only; here the
fork comes before any were started, since a server has one OpenMP thread (``servers.engine_environment``). On CUDA,
which cannot be used after a fork, vLLM's own server is started.

``--worker-extension-cls mem_agent.serving.engine_server.PolicyReload`` reloads all weights.
"""

from __future__ import annotations

import gc
import multiprocessing
from typing import Any


class PolicyReload:
    """Mixed into vLLM's worker, whose ``model_runner`` it uses."""

    model_runner: Any

    def reload_policy(self, weights_path: str) -> None:
        """Load the folder's safetensors, the output layer included."""
        self.model_runner.reload_weights(weights_path=weights_path)
        repack_output_layer(self.model_runner.get_model())


def repack_output_layer(model: Any) -> None:
    """Make the packed copy of ``model``'s output layer again, if it has one.

    vLLM reloads the checkpoint's tensors in place. A model with tied embeddings has no tensor for its output layer,
    and on CPU that layer multiplies with a packed copy of the embedding made when the engine started; a reload leaves
    the copy as it was, and the engine then samples from old output weights without a word (vLLM 0.32).
    """
    head = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)


def main() -> None:
    from vllm.entrypoints.launchers.api_server import entry
    from vllm.v1.engine import utils

    # VLLM_WORKER_MULTIPROC_METHOD does not do: vLLM's CPU platform sets it to spawn.
    utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    gc.freeze()  # what is imported lives for good; a collection in either process would copy its pages
    entry.main()


if __name__ == "__main__":
    main()
