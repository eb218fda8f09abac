"""How high the ids of a tokenizer go, looked at before a library reads it.

The tokenizers library keeps a list of all numbers that no token has: one id of 2**31 in a file of 7 KB takes 16 GB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .bounded_json import loads
from .errors import ConfigError

HIGHEST = 2**24
"""With what no vocabulary comes near."""
_IDS_BY_TOKEN = ("vocab.json", "added_tokens.json")


def check_ids(folder: Path) -> None:
    """Of the tokenizer in ``folder``. Raises ConfigError; what is no JSON is told by whoever reads all of it."""
    for name in ("tokenizer.json", "tokenizer_config.json", *_IDS_BY_TOKEN):
        try:
            content = loads((folder / name).read_bytes())
        except (OSError, ValueError):
            continue
        for found in _ids(name, content):
            if isinstance(found, int | float) and not 0 <= found <= HIGHEST:
                raise ConfigError(f"{folder / name}: a token has the id {found!r:.40}, not one up to {HIGHEST}")


def _ids(name: str, content: Any) -> Iterator[Any]:
    if name in _IDS_BY_TOKEN:
        yield from _values(content)
    elif name == "tokenizer.json":
        yield from _values(_of(_of(content, "model"), "vocab"))
        added = _of(content, "added_tokens")
        yield from (_of(token, "id") for token in (added if isinstance(added, list) else []))
    else:
        tokens = _of(content, "added_tokens_decoder")
        yield from (int(key[:20]) for key in (tokens if isinstance(tokens, dict) else {}) if key.isdecimal())


def _of(content: Any, key: str) -> Any:
    return content.get(key) if isinstance(content, dict) else None


def _values(content: Any) -> Iterator[Any]:
    return iter(content.values() if isinstance(content, dict) else ())
