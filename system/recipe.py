"""Recipes: files of ``NAME=value`` lines, in which ``${NAME}`` and ``${NAME:-text}`` are replaced. Nothing is run.

A variable that has a value in the environment keeps it, and ``${NAME}`` then stands for that; ``${PACK_DIR}`` is the
pack's folder.
"""

from __future__ import annotations

import os
import sys
from io import StringIO
from pathlib import Path

from .errors import ConfigError

PACK = Path(__file__).resolve().parents[1]


def load_recipe(path: str) -> dict[str, str]:
    """The variables that the recipe adds to the environment. Raises ConfigError."""
    os.environ.setdefault("PACK_DIR", str(PACK))
    try:
        from dotenv.main import DotEnv
        from dotenv.parser import parse_stream
    except ImportError:  # a host's Python, in which the pack need not be installed
        raise ConfigError(f"{sys.executable} needs python-dotenv to read RECIPE: pip install python-dotenv") from None
    try:
        text = Path(path).read_text()
    except (OSError, ValueError) as error:
        raise ConfigError(f"RECIPE={path!r} cannot be read: {error}; {PACK / 'recipes'} has some") from None
    for line in parse_stream(StringIO(text)):
        if line.error or (line.key and (line.value is None or not line.key.isidentifier())):
            raise ConfigError(f"RECIPE={path!r}: {line.original.string.strip()!r} is not a line NAME=value")
    recipe = DotEnv(None, stream=StringIO(text), override=False).dict()
    return {name: value for name, value in recipe.items() if value is not None and not os.environ.get(name)}


def use_recipe() -> None:
    """Add the variables of RECIPE to the environment, once. Raises ConfigError."""
    if path := os.environ.get("RECIPE"):
        os.environ.update(load_recipe(path))
        os.environ["RECIPE"] = os.devnull  # what this process starts has the variables, and may unset one
