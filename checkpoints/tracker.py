"""The file by which a folder of checkpoints says which of them is the newest; without torch, for those that only look.

Megatron's own name and content: an iteration's number, or ``release`` for a model that no training has written. It is
written last: a folder without it holds no complete checkpoint.
"""

from __future__ import annotations

TRACKER = "latest_checkpointed_iteration.txt"
