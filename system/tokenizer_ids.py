"""How high the ids of a tokenizer go, and how long it makes a text, looked at before a library reads it.

The tokenizers library keeps a list of all numbers that no token has: one id of 2**31 in a file of 7 KB takes 16 GB.
Transformers makes as many tokens as ``extra_ids`` says. What rules do to a text is in ``tokenizer_growth.py``.

All that is worth as long as the library reads what was looked at. So settings that put another file, or a vocabulary
of their own, in its place are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .bounded_json import TooDeep, loads_as_python
from .errors import ConfigError
from .tokenizer_growth import check_growth
from .tokenizer_parts import GrowsTooMuch
from .tokenizer_words import check_tokens

HIGHEST = 2**24
"""With what no vocabulary comes near."""
MOST_MADE = 2**16
MOST_SPECIAL = 2**11
"""Special tokens by their names, which transformers searches for each; those of models are up to some hundred."""
_MADE = ("extra_ids", "offset", "num_madeup_words", "init_inputs")
"""Settings that say how many tokens are to be made; ``init_inputs`` has them by place."""
_SPECIAL = ("extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens")
_ELSEWHERE = ("vocab", "merges", "tokenizer_object")
_WHERE_FROM = ("name_or_path", "is_local", "local_files_only")
_LEFT_ALONE = ("tokenizer_file", "special_tokens_map_file", "added_tokens_file")
"""Where a tokenizer lay when it was saved: transformers takes those in the folder instead."""
_OF_SPLITTERS = (("mecab_kwargs", "mecab_option"), ("sudachi_kwargs", "sudachi_config_path"),
                 ("sudachi_kwargs", "sudachi_resource_dir"))
"""Of a Japanese tokenizer: with them the library that splits its words reads files from anywhere."""
_VERSION_OF_FILE = re.compile(r"tokenizer(\.\d[\d.]*)?\.json")


class _Refused(ValueError):
    """Tokens that are to be made, or looked for elsewhere."""


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
    except (TooDeep, GrowsTooMuch, _Refused) as error:  # for some library it is not
        raise ConfigError(f"{file}: {error}") from None
    except (OSError, ValueError):
        return
    for one in found:
        if isinstance(one, int | float) and not 0 <= one <= HIGHEST:
            raise ConfigError(f"{file}: a token has the id {one!r:.40}, not one up to {HIGHEST}")


def _of_tokenizer(content: bytes) -> Iterator[Any]:
    read = loads_as_python(content)
    check_growth(read)
    yield from _values(_of(_of(read, "model"), "vocab"))
    yield from _of_each(_of(read, "added_tokens"), "id")


def _of_settings(content: bytes) -> Iterator[Any]:
    read = loads_as_python(content)
    _check_counts(read)
    _check_places(read, _LEFT_ALONE)
    tokens = _of(read, "added_tokens_decoder")
    yield from (int(key[:20]) for key in (tokens if isinstance(tokens, dict) else {}) if key.isdecimal())


def _of_special_tokens(content: bytes) -> Iterator[Any]:
    """Which transformers takes for settings as well, and before those of ``tokenizer_config.json``."""
    read = loads_as_python(content)
    _check_counts(read)
    _check_places(read, ())
    for name in _WHERE_FROM:
        if _of(read, name) is not None:
            raise _Refused(f"{name} is {_of(read, name)!r:.80}, which is no special token")
    return iter(())


def _check_counts(read: Any) -> None:
    for name in _MADE:
        for number in said if isinstance(said := _of(read, name), list) else [said]:
            if isinstance(number, int | float) and number > MOST_MADE:
                raise _Refused(f"{name} is {number!r:.40}, not a number up to {MOST_MADE}")
    named = sum(key.endswith("_token") for key in (read if isinstance(read, dict) else ()))
    special = sum(len(tokens) for name in _SPECIAL if isinstance(tokens := _of(read, name), list | dict))
    if named + special > MOST_SPECIAL:
        raise _Refused(f"has {named + special} special tokens, more than {MOST_SPECIAL}")
    if isinstance(read, dict):
        check_tokens((text for key, value in read.items() if key in _SPECIAL or "token" in key
                      for text in _texts(value)), "these settings")


def _check_places(read: Any, left_alone: tuple[str, ...]) -> None:
    """That the vocabulary is nowhere but in the files that are looked at."""
    for key, value in read.items() if isinstance(read, dict) else ():
        if value is not None and (key in _ELSEWHERE or (key.endswith("_file") and key not in left_alone)):
            raise _Refused(f"{key:.40} is {value!r:.80}; a tokenizer is read from its own folder's files alone")
    for name in _each(_of(read, "fast_tokenizer_files")):
        if not isinstance(name, str) or not _VERSION_OF_FILE.fullmatch(name):
            raise _Refused(f"fast_tokenizer_files has {name!r:.80}, which is no name like tokenizer.4.0.0.json")
    if str(_of(read, "tokenizer_class")).startswith("Rag"):
        raise _Refused("tokenizer_class is RagTokenizer's, which is two in folders of their own")
    for splitter, name in _OF_SPLITTERS:
        if (said := _of(_of(read, splitter), name)) is not None:
            raise _Refused(f"{splitter} has {name}={said!r:.60}; "
                           "a tokenizer is read from its own folder's files alone")
    for given in _each(_of(read, "init_inputs")):
        if isinstance(given, str | list | dict):
            raise _Refused(f"init_inputs has {given!r:.80}; a tokenizer is read from its own folder's files alone")


def _texts(value: Any) -> Iterator[Any]:
    """A token by its name, as an object, or in a list or an object of them."""
    left = [value]
    while left:
        here = left.pop()
        left += here if isinstance(here, list) else here.values() if isinstance(here, dict) else ()
        yield here


def _each(value: Any) -> list[Any]:
    """Of a list; what is no list is taken for its only item."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _by_token(content: bytes) -> Iterator[Any]:
    read = loads_as_python(content)
    check_tokens(read if isinstance(read, dict) else {}, "this vocabulary")
    return _values(read)


def _of_tekken(content: bytes) -> Iterator[Any]:
    """Mistral's."""
    read = loads_as_python(content)
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
    "tokenizer_config.json": _of_settings, "special_tokens_map.json": _of_special_tokens,
    "vocab.json": _by_token, "added_tokens.json": _by_token,
    "*tekken*.json": _of_tekken, "tokenizer*.json": _of_tokenizer, "*.model": _of_ranks, "*.tiktoken": _of_ranks,
}
"""By name of file; the first that fits."""
