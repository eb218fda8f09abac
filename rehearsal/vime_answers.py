"""What vime asks for beyond ``torch.cuda``."""

from __future__ import annotations


def install() -> None: ...
