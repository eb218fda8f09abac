"""Every sentence that a model reads besides the haystack.

The sentences say what RULER's say, in words of this project. Scores move with wording, so for figures to set beside
published ones give RULER's own sentences as a YAML file (``--wording FILE``): any of the fields below, each a text
with the same names in braces. ``{kind}`` and ``{kinds}`` are the singular and plural of number or uuid. ``example`` is
what vt and cwe show before the document, up to where that begins::

    needle: "A magic {kind} of {key} is {value}."
    niah_one: "Which magic {kind} of {keys} does the text state?"

The ``_document`` texts are what stands around the document, as RULER has words before it::

    cwe_document: "A list of words follows.\n{document}"

Invariant: every text has the names it needs and no others, so that formatting cannot fail later.
"""

from __future__ import annotations

import hashlib
import string
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

from ..system.errors import MemAgentError, reason_of

_OPTIONAL = frozenset({"kind", "kinds", "count", "prefix"})


class WordingError(MemAgentError):
    """A wording file is absent, damaged, or has a text that cannot be filled in."""


@dataclass(frozen=True, slots=True)
class Sentences:
    noise: str = "The river is calm. The bread is warm. The lamp is bright. Off we walk. Then home once more."
    needle: str = "A magic {kind} of {key} is {value}."
    niah_one: str = "Which magic {kind} of {keys} does the text state?"
    niah_one_prefix: str = "The magic {kind} of {keys} in the text is"
    niah_many: str = "Which magic {kinds} of {keys} does the text state? Name every one of them."
    niah_many_prefix: str = "The magic {kinds} of {keys} in the text are"
    vt: str = (
        "The text assigns values to variables in lines that begin with VAR. Which variables have the value {value}, "
        "be it directly or through other variables?"
    )
    vt_prefix: str = "The {count} variables with the value {value} are:"
    cwe: str = "Which {count} words occur most often in the numbered list?"
    cwe_prefix: str = "The {count} most frequent words of the list are:"
    fwe: str = "Which {count} coded words occur most often in the text? The dots ... do not count. Do not explain."
    fwe_prefix: str = "The {count} most frequent coded words are:"
    qa: str = "{question}"
    qa_prefix: str = "Answer:"
    niah_one_document: str = "{document}"
    niah_many_document: str = "{document}"
    vt_document: str = "{document}"
    cwe_document: str = "{document}"
    fwe_document: str = "{document}"
    qa_document: str = "{document}"
    example: str = (
        "An example of another text, with question and answer:\n\n{context}\n\n{question}\n{prefix} {answers}\n\n"
        "Here the text of the question begins:\n\n"
    )
    name: str = "built in"


_NAMES: dict[str, set[str]] = {
    "noise": set(),
    "needle": {"kind", "kinds", "key", "value"},
    **{name: {"kind", "kinds", "keys"} for name in ("niah_one", "niah_one_prefix", "niah_many", "niah_many_prefix")},
    **{name: {"value", "count"} for name in ("vt", "vt_prefix")},
    **{name: {"count"} for name in ("cwe", "cwe_prefix", "fwe", "fwe_prefix")},
    "qa": {"question"},
    "qa_prefix": set(),
    **{f"{name}_document": {"document", "kind", "kinds"} for name in ("niah_one", "niah_many")},
    **{f"{name}_document": {"document"} for name in ("vt", "cwe", "fwe", "qa")},
    "example": {"context", "question", "prefix", "answers"},
}
assert set(_NAMES) | {"name"} == {field.name for field in fields(Sentences)}


def load_wording(path: Path) -> Sentences:
    """The built-in wording with the texts of a YAML file in place of its own.

    Raises:
        WordingError: the file cannot be read, has other keys, or a text lacks a name or has an unknown one.
    """
    try:
        content = path.read_bytes()
        texts = yaml.safe_load(content.decode())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise WordingError(f"--wording {path}: cannot be read: {reason_of(error)}") from None
    if not isinstance(texts, dict) or not texts or not set(texts) <= set(_NAMES):
        raise WordingError(f"--wording {path}: allowed: a mapping of {', '.join(_NAMES)} to texts")
    for key, text in texts.items():
        _check(path, key, text)
    return Sentences(**texts, name=f"{path.name} sha256:{hashlib.sha256(content).hexdigest()[:16]}")


def _check(path: Path, key: str, text: object) -> None:
    needed = set() if key.endswith("_prefix") else _NAMES[key] - _OPTIONAL
    try:
        if not isinstance(text, str):
            raise ValueError
        found = [field for field in string.Formatter().parse(text) if field[1] is not None]
        if any(form or conversion for _, _, form, conversion in found):
            raise ValueError
        names = {name for _, name, _, _ in found}
    except ValueError:
        raise WordingError(f"--wording {path}: {key} is not a text with names in braces: {text!r}") from None
    if (not text.strip() and not key.endswith("_prefix")) or not needed <= names <= _NAMES[key]:
        allowed = ", ".join(f"{{{name}}}" for name in sorted(_NAMES[key])) or "none"
        raise WordingError(f"--wording {path}: {key} must hold {sorted(needed) or 'a text'}; names allowed: {allowed}")
