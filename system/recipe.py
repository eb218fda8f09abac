"""Recipes: files of ``NAME=value`` lines, in which ``${NAME}`` and ``${NAME:-text}`` are replaced. Nothing is run.

A variable that has a value in the environment keeps it, and ``${NAME}`` then stands for that; ``${PACK_DIR}`` is the
pack's folder. Shell scripts run this file by itself::

    eval "$(python system/recipe.py RECIPE)"
"""

from __future__ import annotations

import os
import shlex
import sys
from io import StringIO
from pathlib import Path

PACK = Path(__file__).resolve().parents[1]


def load_recipe(path: str) -> dict[str, str]:
    """The variables that the recipe adds to the environment. Raises ValueError, with one line that names the file."""
    os.environ.setdefault("PACK_DIR", str(PACK))
    try:
        from dotenv.main import DotEnv
        from dotenv.parser import parse_stream

        text = Path(path).read_text()
    except (OSError, ValueError) as error:
        raise ValueError(f"RECIPE={path!r} cannot be read: {error}; {PACK / 'recipes'} has some") from None
    except ImportError:
        raise ValueError(f"{sys.executable} needs python-dotenv to read a recipe: pip install python-dotenv") from None
    for line in parse_stream(StringIO(text)):
        if line.error or (line.key and (line.value is None or not line.key.isidentifier())):
            raise ValueError(f"RECIPE={path!r}: {line.original.string.strip()!r} is not a line NAME=value")
    recipe = DotEnv(None, stream=StringIO(text), override=False).dict()
    return {name: value for name, value in recipe.items() if value is not None and not os.environ.get(name)}


def use_recipe() -> None:
    """Add the variables of RECIPE to the environment; a second call changes nothing. Raises ConfigError."""
    from .errors import ConfigError  # as a script this file is in no package

    if path := os.environ.get("RECIPE"):
        try:
            os.environ.update(load_recipe(path))
        except ValueError as error:
            raise ConfigError(str(error)) from None


if __name__ == "__main__":
    try:
        for variable, text in load_recipe(sys.argv[1]).items():
            print(f"export {variable}={shlex.quote(text)}")
    except ValueError as problem:
        sys.exit(f"error: {problem}")
