"""The metrics that slime and vime write into their job's log, one line each::

    [...] rollout_metrics.py:268 - perf 0: {'rollout/memory/reward': 0.156, ...}
    [...] model.py:918 - step 0: {'train/loss': 0.13, 'train/grad_norm': 1.92}
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

GAP = "train/train_rollout_logprob_abs_diff"
"""Mean difference of the log-probs that trainer and engine give to the same tokens."""
_LOGGED = re.compile(r"\b(step|rollout|perf|eval) (\d+): (\{.*\})\s*$", re.MULTILINE)
_NUMBER = re.compile(r"'([^']+)': (-?(?:\d[\d.e+-]*|inf|nan))[,}]")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_SUMMARY = re.compile(r"\b(rollout|eval) [0-9]+\b[^{]*: [0-9]+ trajectories \| .*")
"""Of this pack."""
_ERROR = re.compile(r"^(\(\w+ pid=\d+\) )*(ERROR [\d-]+ \S+ \S+ )?[\w.]*(Error|Exception): |\[(ERROR|CRITICAL)\]")
_STEP = ("train/loss", "train/grad_norm", "train/kl_loss", GAP)

Metrics = dict[int, dict[str, float]]


def read_log(path: Path, start: int = 0) -> dict[str, Metrics]:
    """The metrics in the file from byte ``start`` on; none where there is no file."""
    return read_metrics(path.read_bytes()[start:].decode(errors="replace") if path.is_file() else "")


def read_metrics(text: str) -> dict[str, Metrics]:
    """``{"rollout" | "step" | "eval": {number: metrics}}``; what was logged last of a number stands."""
    found: dict[str, Metrics] = {kind: defaultdict(dict) for kind in ("rollout", "step", "eval")}
    for kind, number, values in _LOGGED.findall(_COLOUR.sub("", text)):
        found["rollout" if kind == "perf" else kind][int(number)].update(_numbers(values))
    return found


def _numbers(text: str) -> dict[str, float]:
    """The numbers of a printed dict."""
    return {name: float(value) for name, value in _NUMBER.findall(text)}


def progress_of(line: str) -> str:
    """What a person wants to see of a line while it runs: this pack's summaries, steps, errors; else nothing."""
    plain = _COLOUR.sub("", line).rstrip()
    if ours := _SUMMARY.search(plain):
        return ours[0]
    if (logged := _LOGGED.search(plain)) and logged[1] == "step":
        values = _numbers(logged[3])
        named = [f"{name.partition('/')[2]} {values[name]:.3g}" for name in _STEP if name in values]
        return f"step {logged[2]}: {' | '.join(named)}"
    return plain if _ERROR.search(plain) else ""
