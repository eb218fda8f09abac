"""Unicode's normal forms in a time in proportion to a text's length, whatever marks somebody has piled on a letter.

Marks on one letter are put in order by exchanging neighbours, so 60,000 of them take seconds. Unicode's stream-safe
format allows 30; here a run of what is neither letter, digit nor blank is taken 64 characters at a time::

    e + acute                    one piece, the form is é
    e + 100 marks                the letter with the first 64, then 36: ordered within each piece alone
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Literal

_RUN = re.compile(r"[^\w\s\x00-\x7f]{64}")
"""All combining marks are among these characters."""


def normal_form(form: Literal["NFC", "NFKC"], text: str) -> str:
    """As ``unicodedata.normalize`` for every text without such a run."""
    cuts = [0, *(run.end() for run in _RUN.finditer(text)), len(text)]
    return "".join(unicodedata.normalize(form, text[start:end]) for start, end in pairwise(cuts))
