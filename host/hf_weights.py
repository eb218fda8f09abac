"""Whether a folder's safetensors are the weights of its config: names and shapes, from the file headers alone.

Loading would otherwise fail deep inside a library, or, with fewer layers in the config than in the files, not at all.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from .bridge import LocalBridge, UnsupportedModel, hf_shapes

_IGNORED = ("rotary_emb.inv_freq",)


def check_weights(bridge: LocalBridge, folder: str | Path) -> None:
    """Raise UnsupportedModel, naming the first tensor that is missing, too much or of another shape."""
    wanted = hf_shapes(bridge)
    found = _stored_shapes(Path(folder))
    if bridge.hf_config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    for name, shape in wanted.items():
        if name not in found:
            raise UnsupportedModel(f"{folder}: no tensor {name}, which its config.json asks for with shape {shape}")
        if found[name] != shape:
            raise UnsupportedModel(f"{folder}: {name} has shape {found[name]}, its config.json asks for {shape}")
    extra = sorted(set(found) - set(wanted))
    if extra:
        raise UnsupportedModel(f"{folder}: {len(extra)} tensors its config.json has no place for, e.g. {extra[0]}")


def _stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UnsupportedModel(f"{folder}: no *.safetensors weights")
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            with safe_open(file, "pt") as tensors:
                shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}
        except (SafetensorError, OSError) as error:
            raise UnsupportedModel(f"{file}: not readable as safetensors: {error}") from None
    return {name: shape for name, shape in shapes.items() if not name.endswith(_IGNORED)}
