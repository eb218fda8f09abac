"""Python that comes with a model, which only runs where the user has said so (TRUST_REMOTE_CODE).

Transformers names it in a file of settings: ``"auto_map": {"AutoConfig": "configuration_mine.Mine"}``. The pack's own
loading asks transformers to leave it alone, and takes the class that transformers has where it has one. slime, vime
and their engines run it without being asked, so a model that has any is refused before they see it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from ..config import ConfigError

REMEDY = "look at its code, and set TRUST_REMOTE_CODE=1 to run it"


def refuse_foreign_code(folder: Path, trusted: bool) -> None:
    """Raises ConfigError where a model's settings name Python, unless that is ``trusted``."""
    for file in [] if trusted else sorted(folder.glob("*config.json")):
        if _has_key(_content(file), "auto_map"):
            raise ConfigError(f"{file} names Python that comes with the model (auto_map); {REMEDY}")


def _content(file: Path) -> Any:
    try:
        return orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None


def _has_key(content: Any, key: str) -> bool:
    rest = [content]
    while rest:
        here = rest.pop()
        if isinstance(here, dict):
            if here.get(key):
                return True
            rest += here.values()
        elif isinstance(here, list):
            rest += here
    return False
