"""Whether the installed vLLM has what this version of vime imports from it.

vime follows one version of vLLM closely; a name that has moved ends a trainer or an engine minutes after the start.
Both sides are read, not run: importing vLLM takes longer than all other checks together.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from ..config import ConfigError
from .checkout import Checkout

PACKAGE = "vllm"


def check_engine_imports(checkout: Checkout) -> None:
    """Raise ConfigError if a file of the host imports, whenever it is loaded, what the installed vLLM lacks."""
    imports = list(_imports(checkout)) if checkout.name == "vime" else []
    if not imports:
        return
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"this Python has no module {PACKAGE}; set PYTHON to the Python of the host's environment")
    installed = Path(next(iter(spec.submodule_search_locations)))
    missing = [
        f"{module}.{name} ({file.relative_to(checkout.root)})"
        for file, module, name in imports if not _has(installed, module, name)
    ]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ConfigError(f"the installed {PACKAGE} in {installed} lacks what this vime imports: {missing[0]}{more}; "
                          f"install the version of {PACKAGE} that {checkout.root} asks for")


def _imports(checkout: Checkout) -> Iterator[tuple[Path, str, str]]:
    """(file, module, name) of each ``from vllm.module import name`` outside functions, conditions and ``try``."""
    for file in sorted((checkout.root / checkout.name).rglob("*.py")):
        text = file.read_text()
        if f"from {PACKAGE}" not in text:
            continue
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == PACKAGE:
                yield from ((file, str(statement.module), alias.name) for alias in statement.names)


def _has(installed: Path, module: str, name: str) -> bool:
    path = installed.joinpath(*module.split(".")[1:])
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.is_file():
        return path.with_suffix(".so").exists()
    if (path / name).is_dir() or (path / f"{name}.py").is_file():
        return True
    # A name anywhere at all counts: modules fill themselves under conditions, by tables and on demand.
    nodes = list(ast.walk(ast.parse(source.read_text())))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)}
    defined |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)
                for alias in node.names}
    defined |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return bool(defined & {name, "*"})
