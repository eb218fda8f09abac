"""What the pack adds to a vLLM worker: ``--worker-extension-cls mem_agent.serving.engine_extension.PolicyReload``.

vLLM reloads the checkpoint's tensors in place. A model with tied embeddings has no tensor for its output layer, and on
CPU that layer multiplies with a packed COPY of the embedding made when the engine started; a reload leaves the copy as
it was, and the engine then samples from old output weights without a word (vLLM 0.32). So the copy is made anew.
"""

from __future__ import annotations

from typing import Any


class PolicyReload:
    """Mixed into vLLM's worker, whose ``model_runner`` it uses."""

    model_runner: Any

    def reload_policy(self, weights_path: str) -> None:
        """Load the folder's safetensors, the output layer included."""
        self.model_runner.reload_weights(weights_path=weights_path)
        repack_output_layer(self.model_runner.get_model())


def repack_output_layer(model: Any) -> None:
    """Make the packed copy of ``model``'s output layer anew, if it has one."""
    head = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)
