"""What a long reply pays before it is cut: DAPO's soft over-long punishment (arXiv 2503.14476, equation 13).

    share = clip((tokens - (most - buffer)) / buffer, 0, 1)

With at most 16,384 tokens and a buffer of 4,096::

    tokens   12,288 and less    14,336    16,384
    share    0                  0.5       1
"""

from __future__ import annotations


def overlong_share(tokens: int, most: int, buffer: int) -> float:
    """The share of the penalty for a reply of ``tokens``, of ``most`` at most; 0 without a buffer."""
    if buffer <= 0:
        return 0.0
    return min(1.0, max(0.0, (tokens - (most - buffer)) / buffer))
