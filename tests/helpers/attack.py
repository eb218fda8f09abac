"""What a hostile file pickles: an object that runs a command when it is unpickled."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any


class Attack:
    """Unpickled without a guard, it makes the file ``victim``."""

    def __init__(self, victim: Path) -> None:
        self._victim = victim

    def __reduce__(self) -> Any:
        return subprocess.getoutput, (f"touch {self._victim}",)
