"""Evaluations under faults: ``mem-agent eval`` asks engines that die, hang or answer nonsense, and is killed itself.

It is run until it ends with 0, as its users run it: what it could not get is asked again by the same command. The rows
then are those of an unbroken evaluation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mem_agent.tests.helpers.patience import HANGS_AFTER_S

from . import faults
from .drill import START, settings
from .faults import Fault
from .moments import Hub, Moment, go
from .scene import Scene, can_mount, in_module, scene

QUESTIONS, LENGTH = 24, "3"
AT = 20
"""The answer with which the fault comes; there are 96."""
EVAL_FAULTS = (
    faults.ENGINE_KILLED, faults.CORE_KILLED, faults.ENGINE_STOPPED, faults.ROUTER_KILLED, faults.CONNECTIONS_CUT,
    faults.ROUTER_STOPPED, faults.ENGINE_ERRORS, faults.ENGINE_SLOW, faults.ENGINE_GARBAGE, faults.DISK_FULL,
    faults.TMP_FULL, faults.TRAINER_KILLED, faults.INTERRUPTED,
)
"""The trainer's are the client's here."""


@contextmanager
def engines(place: Scene, env: Mapping[str, str]) -> Iterator[str]:
    """The URL of engines that serve the pocket's starting weights, and are kept alive."""
    command = in_module("mem_agent.tests.faults.observed_serve", "--model", str(START))
    with (place.folder / "serve.txt").open("wb") as log:
        server = subprocess.Popen(place.command(*command), env=dict(env), stdout=subprocess.PIPE, stderr=log)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().decode().removeprefix("READY ").strip()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(HANGS_AFTER_S) == 0


def prepared(place: Scene) -> dict[str, str]:
    env = settings(place, LENGTH=LENGTH, MEM_REQUEST_TIMEOUT=30, MEM_MAX_RETRIES=2, EVAL_SERVER_WAIT=300)
    entries = json.loads((place.folder / "data" / f"eval_{LENGTH}.json").read_text())[:QUESTIONS]
    (place.folder / "asked").mkdir()
    (place.folder / "asked" / f"eval_{LENGTH}.json").write_text(json.dumps(entries))
    return env


def rows(output: Path) -> list[dict[str, Any]]:
    """By question, all but what hangs on the clock and on what the engine had cached."""
    found = [json.loads(line) for line in (output / f"{LENGTH}.jsonl").read_text().splitlines()]
    last = {(row["_id"], row.get("sample", 0)): row for row in found}  # what was asked again stands later
    for row in last.values():
        del row["seconds"]
        row["counts"] = {name: count for name, count in row["counts"].items() if "cached" not in name}
    return [row for _, row in sorted(last.items())]


def evaluate(place: Scene, env: Mapping[str, str], url: str, output: Path, act: Callable[[Scene], None]) -> list[int]:
    """Run it until it ends with 0, with ``act`` at one answer of the first run; the codes of its ends."""
    command = in_module("mem_agent.tests.faults.observed_eval", "--model", str(START), "--url", url, "--data-root",
                        str(place.folder / "asked"), "--output", str(output))
    codes: list[int] = []
    hub = Hub(Path(place.mark))
    try:
        while not codes or codes[-1] != 0:
            assert len(codes) < 4, codes
            with (place.folder / "eval.txt").open("wb") as out:
                process = subprocess.Popen(place.command(*command), env=dict(env), stdout=out, stderr=out)
            place.trainer = process.pid
            while (met := hub.next(process.pid, HANGS_AFTER_S)) is not None:
                told, line = met
                if not codes and (told.moment, told.count) == (Moment.ANSWER, AT):
                    act(place)
                go(line)
            codes.append(process.wait())
            place.make_room()
            said = (place.folder / "eval.txt").read_text(errors="replace")
            assert "Traceback" not in said and codes[-1] in (0, 1, 3, 130, -signal.SIGKILL), (codes, said)
    finally:
        hub.close()
        os.unlink(place.mark)
    return codes


_ENDS = {
    1: "ended with one line; the same command continued", 3: "what failed was asked again by the same command",
    130: "interrupted; the same command continued", -signal.SIGKILL: "killed; the same command continued",
}


def eval_drill(chosen: Sequence[Fault]) -> list[tuple[str, str]]:
    """(fault, how it was survived) of each."""
    found = []
    with scene(can_mount()) as place:
        env = prepared(place)
        with engines(place, env) as url:
            assert evaluate(place, env, url, place.folder / "whole", lambda _: None) == [0]
            whole = rows(place.folder / "whole")
            assert len(whole) == QUESTIONS and not any(row.get("failure") for row in whole)
            for number, fault in enumerate(f for f in chosen if can_mount() or not f.needs_disks):
                output = place.folder / "save" / f"rows-{number}"
                try:
                    codes = evaluate(place, env, url, output, fault.act)
                except (AssertionError, TimeoutError) as error:
                    found.append((fault.name, f"FELL: {' '.join(str(error).split())[-600:]}"))
                    continue
                differing = differences(whole, rows(place.inside(output)))
                how = "; ".join(_ENDS[code] for code in codes[:-1]) or "went on"
                found.append((fault.name, f"DIFFERS in {differing}: {how}" if differing else how))
    return found


def differences(whole: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """The fields in which any row differs, by name."""
    if len(whole) != len(found):
        return f"{len(found)} rows for {len(whole)}"
    pairs = list(zip(whole, found, strict=True))
    return ", ".join(sorted({name for one, other in pairs for name in one if one[name] != other.get(name)}))
