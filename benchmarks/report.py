"""A whole run of the suite: its JSON, and its table in a page."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..system.atomic_file import write_atomically
from .machine import line
from .outcome import SCHEMA, BenchmarkError, Outcome, from_json, table, to_json

BEGIN, END = "<!-- written by mem-agent bench --markdown -->", "<!-- until here -->"


@dataclass(frozen=True)
class Report:
    machine: Mapping[str, Any]
    names: Sequence[str]
    """The benchmarks that ran."""
    quick: bool
    began: float
    """Seconds since 1970."""
    seconds: float
    outcomes: Sequence[Outcome]


def write(path: Path, report: Report) -> None:
    content = {
        "schema": SCHEMA,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(report.began)),
        "seconds": round(report.seconds, 1),
        "quick": report.quick,
        "names": list(report.names),
        "machine": dict(report.machine),
        "outcomes": [to_json(outcome) for outcome in report.outcomes],
    }
    write_atomically(path, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")


def read(path: Path, names: Collection[str]) -> Report:
    """An earlier run, as far as it has the named benchmarks. Raises BenchmarkError: not what ``write`` writes."""
    try:
        content = orjson.loads(path.read_bytes())
        if content["schema"] != SCHEMA:
            raise BenchmarkError(f"{path} has schema {content['schema']}, not {SCHEMA}; measure again")
        began = time.mktime(time.strptime(content["began"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
        outcomes = [from_json(one) for one in content["outcomes"] if one["benchmark"] in names]
        ran = tuple(name for name in content["names"] if name in names)
        return Report(content["machine"], ran, content["quick"], began, content["seconds"], outcomes)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, BenchmarkError):
            raise
        raise BenchmarkError(f"{path} is no output of this command; give a file that --output wrote") from None


def into_page(path: Path, report: Report) -> None:
    """Put machine and table between the two marks of a page. Raises BenchmarkError: no page, or no marks."""
    text = path.read_text() if path.exists() else f"{BEGIN}\n{END}\n"
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BenchmarkError(f"{path} does not have the two marks {BEGIN} and {END}, once and in this order")
    before, rest = text.split(BEGIN)
    day = time.strftime("%Y-%m-%d", time.gmtime(report.began))
    repetitions = "fewest repetitions" if report.quick else "all repetitions"
    said = f"Measured {day} in {report.seconds / 60:.0f} minutes ({repetitions}) on: {line(report.machine)}."
    body = f"\n\n{said}\n\n{table(report.outcomes)}\n\n"
    write_atomically(path, f"{before}{BEGIN}{body}{END}{rest.split(END)[1]}".encode())


def check_writable(path: Path) -> None:
    """Before hours are spent. Raises BenchmarkError."""
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise BenchmarkError(f"{path} cannot be written; name a file in a folder that exists")
