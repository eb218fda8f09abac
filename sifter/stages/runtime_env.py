"""The variables of a Ray runtime environment, the YAML file RUNTIME_ENV, for the scripts of the stages.

::

    env_vars: {BASE_URL: "http://host/v1", TEMPERATURE: 0.6}      BASE_URL=http://host/v1\\0TEMPERATURE=0.6\\0

Values are texts as they are written, also numbers and dates; an empty one is no text. The file may be somebody else's:
what is written has a bound, and no value can end in another variable. Which names it may not set is said by
``_recipe.sh``, as of a recipe.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ...system.errors import MemAgentError
from ...system.one_line_errors import one_line_errors
from ...system.plain_yaml import NotYaml, YamlBound, read_plain_yaml

LONGEST = 2**16
"""Characters of all names and values; the system gives a process 2**17 in one variable."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NoRuntimeEnv(MemAgentError):
    """The file is no runtime environment: one line with the file and what is wrong."""


def read_runtime_env(path: Path) -> dict[str, str]:
    """Raises NoRuntimeEnv, OSError."""
    try:
        held = read_plain_yaml(path, as_written=True)
    except YamlBound as error:
        raise NoRuntimeEnv(f"RUNTIME_ENV='{path}': {error}") from None
    except (NotYaml, UnicodeDecodeError):  # whose text may repeat the file's, and a key in it
        raise _no_mapping(path) from None
    found = held.get("env_vars") if isinstance(held, dict) else held
    if not isinstance(found or {}, dict):
        raise _no_mapping(path)
    variables: dict[str, str] = {}
    length = 0
    for name, value in (found or {}).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise NoRuntimeEnv(f"RUNTIME_ENV='{path}': {str(name)[:80]!r} is no name of a variable")
        if not isinstance(value, str | None) or not _is_text(value or ""):
            raise NoRuntimeEnv(f"RUNTIME_ENV='{path}': {name[:80]} is no text; write a text, a number or nothing")
        variables[name] = value or ""
        length += len(name) + len(variables[name])
        if length > LONGEST:
            raise NoRuntimeEnv(f"RUNTIME_ENV='{path}': env_vars of more than {LONGEST} characters")
    return variables


def _no_mapping(path: Path) -> NoRuntimeEnv:
    return NoRuntimeEnv(f"RUNTIME_ENV='{path}': no YAML file with env_vars, a mapping of names to values")


def _is_text(value: str) -> bool:
    """Of an environment: without the byte that ends a variable, and without half of a character."""
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


@one_line_errors("nothing was begun")
def main(path: str) -> int:
    for name, value in read_runtime_env(Path(path)).items():
        sys.stdout.buffer.write(f"{name}={value}\0".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
