"""The gate: ratios of this run against those of a committed baseline, ``baseline.json``.

Only ratios between alternatives that were measured in turns are held, never seconds: another machine has others. A
ratio fails where its median is more than TOLERANCE worse than the baseline's, or where a benchmark that ran has not
measured it. Ratios of benchmarks that were not asked for are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from ..system.atomic_file import write_atomically
from .outcome import BenchmarkError, Outcome

BASELINE = Path(__file__).with_name("baseline.json")
TOLERANCE = 0.15


def failures(outcomes: Sequence[Outcome], baseline: Mapping[str, Any], ran: Collection[str]) -> list[str]:
    """One line for each ratio that is too much worse than the baseline, or that is not there.

    At least 8.0 times: 6.8 passes, 6.7 fails. At most 1.05 times: 1.20 passes, 1.21 fails.
    """
    now = {o.key: o.spread.median for o in outcomes if o.gated and o.spread}
    lines = []
    for key, before in baseline["ratios"].items():
        if before["benchmark"] not in ran:
            continue
        if key not in now:
            lines.append(f"{key}: not measured; the baseline has {before['ratio']:.3g}")
            continue
        worse = now[key] / before["ratio"] - 1 if before["at_most"] else 1 - now[key] / before["ratio"]
        if worse > TOLERANCE:
            lines.append(f"{key}: {now[key]:.3g}, {worse:.0%} worse than the baseline's {before['ratio']:.3g}")
    return lines


def read_baseline(path: Path) -> dict[str, Any]:
    """Raises BenchmarkError: no such file, or it holds no ratios."""
    try:
        content = orjson.loads(path.read_bytes())
        if isinstance(content["ratios"], dict):
            return content
    except FileNotFoundError:
        raise BenchmarkError(f"there is no baseline {path}; write one with --write-baseline") from None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        pass
    raise BenchmarkError(f"{path} is no baseline: no object `ratios`; write a new one with --write-baseline")


def write_baseline(path: Path, outcomes: Sequence[Outcome], machine: Mapping[str, Any], ran: Collection[str]) -> int:
    """Put this run's ratios in the place of what the file has of the same benchmarks; the number written."""
    ratios = read_baseline(path)["ratios"] if path.exists() else {}
    fresh = {
        o.key: {"benchmark": o.benchmark, "ratio": round(o.spread.median, 4), "at_most": o.at_most,
                "machine": machine["cpu"], "commit": machine["commit"]}
        for o in outcomes
        if o.gated and o.spread
    }
    kept = {key: entry for key, entry in ratios.items() if entry["benchmark"] not in ran}
    content = {"tolerance": TOLERANCE, "ratios": dict(sorted((kept | fresh).items()))}
    write_atomically(path, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    return len(fresh)
