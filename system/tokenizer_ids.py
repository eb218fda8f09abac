"""How high the ids of a tokenizer go, and how long it makes a text, looked at before a library reads it.

The tokenizers library keeps a list of all numbers that no token has: one id of 2**31 in a file of 7 KB takes 16 GB.
Transformers makes as many tokens as ``extra_ids`` says. What rules do to a text is in ``tokenizer_growth.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .bounded_json import TooDeep, loads
from .errors import ConfigError
from .tokenizer_growth import GrowsTooMuch, check_growth

HIGHEST = 2**24
"""With what no vocabulary comes near."""
MOST_MADE = 2**16
_MADE = ("extra_ids", "offset", "num_madeup_words", "init_inputs")
"""Settings that say how many tokens are to be made; ``init_inputs`` has them by place."""


class _TooMany(ValueError):
    """Tokens that are to be made."""


def check_tokenizer(folder: Path) -> None:
    """Of the tokenizer in ``folder``, in whatever file a library may look for it.

    Raises ConfigError; what is no tokenizer is told by whoever reads all of it.
    """
    for file in sorted(folder.glob("*")):
        ids_of = next((read for pattern, read in _READERS.items() if fnmatch(file.name, pattern)), None)
        if ids_of is not None and file.is_file():
            _check(file, ids_of)


def check_tokenizer_file(file: Path) -> None:
    """Of a ``tokenizer.json`` with whatever name. Raises ConfigError as ``check_tokenizer`` does."""
    _check(file, _of_tokenizer)


def _check(file: Path, ids_of: Callable[[bytes], Iterator[Any]]) -> None:
    try:
        found = list(ids_of(file.read_bytes()))
    except (TooDeep, GrowsTooMuch, _TooMany) as error:  # for some library it is not
        raise ConfigError(f"{file}: {error}") from None
    except (OSError, ValueError):
        return
    for one in found:
        if isinstance(one, int | float) and not 0 <= one <= HIGHEST:
            raise ConfigError(f"{file}: a token has the id {one!r:.40}, not one up to {HIGHEST}")


def _of_tokenizer(content: bytes) -> Iterator[Any]:
    read = loads(content)
    check_growth(read)
    yield from _values(_of(_of(read, "model"), "vocab"))
    yield from _of_each(_of(read, "added_tokens"), "id")


def _of_settings(content: bytes) -> Iterator[Any]:
    read = loads(content)
    for name in _MADE:
        for number in said if isinstance(said := _of(read, name), list) else [said]:
            if isinstance(number, int | float) and number > MOST_MADE:
                raise _TooMany(f"{name} is {number!r:.40}, not a number up to {MOST_MADE}")
    tokens = _of(read, "added_tokens_decoder")
    yield from (int(key[:20]) for key in (tokens if isinstance(tokens, dict) else {}) if key.isdecimal())


def _by_token(content: bytes) -> Iterator[Any]:
    return _values(loads(content))


def _of_tekken(content: bytes) -> Iterator[Any]:
    """Mistral's."""
    read = loads(content)
    yield from _of_each(_of(read, "vocab"), "rank")
    yield from _of_each(_of(read, "special_tokens"), "rank")


def _of_ranks(content: bytes) -> Iterator[Any]:
    """tiktoken's lines of a token in base64 and its rank; none where one line is something else, as in SentencePiece's
    files of the same name."""
    lines = [line.split() for line in content.splitlines() if line]
    if all(len(line) == 2 for line in lines):
        for _, rank in lines:
            with suppress(ValueError):
                yield int(rank[:20])


def _of(content: Any, key: str) -> Any:
    return content.get(key) if isinstance(content, dict) else None


def _of_each(content: Any, key: str) -> Iterator[Any]:
    return (_of(token, key) for token in (content if isinstance(content, list) else []))


def _values(content: Any) -> Iterator[Any]:
    return iter(content.values() if isinstance(content, dict) else ())


_READERS: Mapping[str, Callable[[bytes], Iterator[Any]]] = {
    "tokenizer_config.json": _of_settings, "vocab.json": _by_token, "added_tokens.json": _by_token,
    "*tekken*.json": _of_tekken, "tokenizer*.json": _of_tokenizer, "*.model": _of_ranks, "*.tiktoken": _of_ranks,
}
"""By name of file; the first that fits."""
