"""How long a server asks to be left alone: ``Retry-After: 7``, or a date.

    7                                  7 s
    Wed, 21 Oct 2015 07:28:00 GMT      until then
    a day                              LONGEST_WAIT_S: whoever means a day is asked again, and says so again
    anything else                      0: it does not say
"""

from __future__ import annotations

import re
import time
from email.utils import mktime_tz, parsedate_tz

LONGEST_WAIT_S = 60.0
_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")


def seconds_asked(header: str | None, now: float | None = None) -> float:
    """From 0 to LONGEST_WAIT_S; ``now`` is a Unix time."""
    text = (header or "").strip()[:64]
    if text.isascii() and text.isdigit():
        return min(LONGEST_WAIT_S, float(text))
    date = parsedate_tz(text) if _DATE.fullmatch(text) else None
    if date is None:
        return 0.0
    return min(LONGEST_WAIT_S, max(0.0, mktime_tz(date) - (time.time() if now is None else now)))
