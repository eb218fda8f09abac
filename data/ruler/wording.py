"""Every sentence that a model reads besides the haystack.

The built-in sentences (``wording.yaml``) say what RULER's say, in words of this project. Scores move with wording, so
for figures to set beside published ones give RULER's own sentences as a YAML file (``--wording FILE``): any of the
built-in names, each a text with the same slots in braces. ``{kind}`` and ``{kinds}`` are the singular and plural of
number or uuid. ``example`` is what vt and cwe show before the document, up to where that begins::

    needle: "A magic {kind} of {key} is {value}."
    niah_one: "Which magic {kind} of {keys} does the text state?"

The ``_document`` texts are what stands around the document, as RULER has words before it::

    cwe_document: "A list of words follows.\n{document}"
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ...system.errors import MemAgentError, reason_of

TEXTS: Mapping[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_OPTIONAL = ("kind", "kinds", "count", "prefix")
"""Slots that a text may have and may lack."""
_DOCUMENT_MARK = "\0"


class WordingError(MemAgentError):
    """A wording file is absent, damaged, or has a text that cannot be filled in."""


@dataclass(frozen=True, slots=True)
class Wording:
    texts: Mapping[str, str] = field(default_factory=lambda: TEXTS)
    name: str = "built in"

    def text(self, name: str, **values: object) -> str:
        return self.texts[name].format(**values)

    def around(self, name: str, kind: str) -> tuple[str, str]:
        """What stands before and behind a document of ``name``, such as niah_one, whose values are of ``kind``: part
        of what the model reads, so of the length. ``cwe_document`` being ``"Words:\\n{document}"``::

            around("cwe", "")  ->  "Words:\\n", ""
        """
        document = self.text(f"{name}_document", document=_DOCUMENT_MARK, kind=kind, kinds=f"{kind}s")
        before, _, behind = document.partition(_DOCUMENT_MARK)
        return before, behind


def load_wording(path: Path) -> Wording:
    """The built-in wording with the texts of a YAML file in place of its own.

    Raises:
        WordingError: the file cannot be read, has other names, or a text lacks a slot or has an unknown one.
    """
    try:
        content = path.read_bytes()
        texts = dict(yaml.safe_load(content))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise WordingError(f"--wording {path}: is no mapping of names to texts ({reason_of(error)})") from None
    if unknown := texts.keys() - TEXTS.keys():
        raise WordingError(f"--wording {path}: {min(unknown)!r} is no name; allowed: {', '.join(TEXTS)}")
    for name, text in texts.items():
        slots = {slot for _, slot, _, _ in string.Formatter().parse(TEXTS[name]) if slot}
        needed = set() if name.endswith("_prefix") else slots.difference(_OPTIONAL)
        try:
            shown = text.format(**{slot: f"\0{slot}" for slot in slots.union(_OPTIONAL)})
        except (LookupError, ValueError, AttributeError):
            shown = None
        if shown is None or any(f"\0{slot}" not in shown for slot in needed):
            raise WordingError(f"--wording {path}: {name} is {text!r}; it must be a text with the slots "
                               f"{sorted(needed)} in braces, and may have {sorted(slots.union(_OPTIONAL) - needed)}")
    return Wording({**TEXTS, **texts}, f"{path.name} sha256:{hashlib.sha256(content).hexdigest()[:16]}")
