"""Variables that are no settings and look like one: a misspelled setting has no effect, and nobody says so.

``MEM_CHUNK_TOKEN=16`` is one letter away from ``MEM_CHUNK_TOKENS``. It may be another program's, so it is told and not
refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

_SEVERAL_WORDS = re.compile("[A-Z0-9]+(_[A-Z0-9]+)+")
_NEAR = 0.9
"""``difflib.SequenceMatcher.ratio``: one letter of 10 that is missing, twice or another one."""


def near_misses(names: Iterable[str], settings: Collection[str]) -> list[tuple[str, str]]:
    """Each of ``names`` that is nearly a setting, with that setting; names as they come."""
    # LENGTHS, METHOD: one word is anybody's
    others = [name for name in names if name not in settings and _SEVERAL_WORDS.fullmatch(name)]
    return [(name, near) for name in others for near in get_close_matches(name, settings, 1, _NEAR)]
