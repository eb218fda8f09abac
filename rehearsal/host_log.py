"""The metrics that slime and vime write into their job's log, one line each::

    [...] rollout_metrics.py:268 - perf 0: {'rollout/memory/reward': 0.156, ...}
    [...] model.py:918 - step 0: {'train/loss': 0.13, 'train/grad_norm': 1.92}
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from pathlib import Path

_LINE = re.compile(r"\b(step|rollout|perf|eval) ([0-9]{1,18}): (?=\{)")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_NOT_FINITE = re.compile(r"-?\b(nan|inf)\b")

Metrics = dict[int, dict[str, float]]


def read_metrics(text: str) -> dict[str, Metrics]:
    """``{"rollout" | "step" | "eval": {number: metrics}}``; what was logged last of a number stands."""
    found: dict[str, Metrics] = defaultdict(lambda: defaultdict(dict))
    for line in _COLOUR.sub("", text).splitlines():
        logged = _logged(line.rpartition("\r")[2])
        if logged is None:
            continue
        kind, number, text = logged
        found["rollout" if kind == "perf" else kind][number].update(_numbers(text))
    return {kind: {number: dict(values) for number, values in sorted(of.items())} for kind, of in found.items()}


def _logged(line: str) -> tuple[str, int, str] | None:
    """(kind, number, printed dict) of a line of metrics."""
    line = line.rstrip()
    match = _LINE.search(line) if line.endswith("}") else None
    return match and (match[1], int(match[2]), line[match.end():])


def _numbers(text: str) -> dict[str, float]:
    """The numbers of a printed dict; nothing if it is not one."""
    try:
        content = ast.literal_eval(_NOT_FINITE.sub("None", text))
        values = {str(name): math.nan if value is None else value for name, value in content.items()}
        return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    except (ValueError, SyntaxError, TypeError, AttributeError):
        return {}


def read_log(path: Path, start: int = 0) -> dict[str, Metrics]:
    """The metrics in the file from byte ``start`` on; none where there is no file."""
    return read_metrics(path.read_bytes()[start:].decode(errors="replace")) if path.is_file() else {}


_SUMMARY = re.compile(r"\b(rollout|eval) [0-9]+\b[^{]*: [0-9]+ trajectories \| ")
"""Of this pack."""
_ENGINE_ERROR = re.compile(r"\bERROR [\d-]+ [\d:]+ \[\S+\] (([\w.]+\.)?\w*(Error|Exception): .*)")
_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception)\b: .*|.*\[(ERROR|CRITICAL)\].*")


def progress_of(line: str) -> str:
    """What a person wants to see of a line while it runs: this pack's summaries, steps, errors; else nothing."""
    plain = _COLOUR.sub("", line).rstrip().rpartition("\r")[2]
    if ours := _SUMMARY.search(plain):
        return plain[ours.start():]
    kind, number, text = _logged(plain) or ("", 0, "")
    if kind == "step":
        values = _numbers(text)
        named = ((name.partition("/")[2], values[name]) for name in _STEP if name in values)
        return f"step {number}: " + " | ".join(f"{name} {value:.3g}" for name, value in named)
    if engine := _ENGINE_ERROR.search(plain):
        return f"engine: {engine[1]}"
    return plain if _ERROR.match(_RAY_PREFIX.sub("", plain)) else ""


_STEP = ("train/loss", "train/grad_norm", "train/kl_loss", "train/train_rollout_logprob_abs_diff")
_RAY_PREFIX = re.compile(r"^\(\w+ pid=\d+\) ")
