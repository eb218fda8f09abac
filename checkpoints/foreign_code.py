"""Python that comes with a model, which only runs where the user has said so (TRUST_REMOTE_CODE).

Transformers names it in a file of settings: ``"auto_map": {"AutoConfig": "configuration_mine.Mine"}``, or finds it by
its own name (``custom_generate/generate.py``). The pack's own loading asks transformers to leave it alone, and takes
the class that transformers has where it has one. slime, vime and their engines run it without being asked, so a model
that has any is refused before they see it.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..config import ConfigError
from ..system.model_json import objects_in, read_json

_GENERATES = "custom_generate/generate.py"
"""Which transformers runs, where it trusts a model, as soon as it has loaded the weights."""
REMEDY = "look at its code, and set TRUST_REMOTE_CODE=1 to run it"


def refuse_foreign_code(folder: Path, trusted: bool) -> None:
    """Raises ConfigError where a model has Python, or its settings name some, unless that is ``trusted``."""
    if trusted:
        return
    if os.path.lexists(folder / _GENERATES):
        raise ConfigError(f"{folder / _GENERATES} is Python that comes with the model; {REMEDY}")
    for file in sorted(folder.glob("*config.json")):
        if file.is_file() and any(here.get("auto_map") for here in objects_in(read_json(file))):
            raise ConfigError(f"{file} names Python that comes with the model (auto_map); {REMEDY}")
