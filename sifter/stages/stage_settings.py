"""The settings of stages 2 and 3: the environment's, with what the stages take for granted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...config import Config
from ...sessions import wording

FINISHED_WITH_FAILURES = 3
"""Exit code where every row has its line, but some have no reply; the same command asks for those again."""
_TEMPERATURE = 0.6


def stage_config(defaults: Mapping[str, Any] | None = None, env: Mapping[str, str] = os.environ) -> Config:
    """TEMPERATURE, which is that of training elsewhere, is here the name of EVAL_TEMPERATURE; 0.6 unless set.

    Raises ConfigError.
    """
    own = {name: value for name, value in env.items() if name != "TEMPERATURE"}
    if env.get("TEMPERATURE") and not env.get("EVAL_TEMPERATURE"):
        own["EVAL_TEMPERATURE"] = env["TEMPERATURE"]
    return Config.from_env(own, {"EVAL_TEMPERATURE": _TEMPERATURE, **(defaults or {})})


def identity(config: Config, names: Sequence[str], **own: object) -> str:
    """What two runs must share for their rows to belong together, in one line: the fields ``names`` and ``own``."""
    known = {f.name for f in fields(Config)}
    assert known >= set(names), set(names) - known
    values = {name: getattr(config, name) for name in names} | own
    return " ".join(f"{name}={value}" for name, value in values.items()) + f" wording={_wording(config)}"


def _wording(config: Config) -> str:
    wording.load_wording(config.sifter_prompts)  # says what is wrong with it
    texts = [wording.OWN, *([Path(config.sifter_prompts)] if config.sifter_prompts else [])]
    return hashlib.sha256(b"\n".join(path.read_bytes() for path in texts)).hexdigest()[:12]
