"""A training run or an evaluation that takes a list of faults, each in its moment, compared with an unbroken one.

The run goes on, or ends and is started again by the same command, until it has ended well. Every end has to have the
exit code of its fault and one line that says why, and may leave no process and no temporary file.

As root a drill has a mount namespace of its own with small disks for SAVE_PATH, TMPDIR and /dev/shm: SAVE_PATH can be
filled, and what is left on the others was left by this run.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from mem_agent.pocket.prepare import prepare
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.training.log import read_metrics

from . import faults
from .faults import MARK, Announcement, Fault, Hub, Moment

START = Path(__file__).parents[2] / "pocket" / "start"
OBSERVED = [sys.executable, "-m", "mem_agent.tests.faults.faults"]
SHM = "/dev/shm"
DISKS = {"save": "400m", "tmp": "64m", SHM: "400m"}
_FILLER = "filler"


@functools.cache
def can_mount() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True).returncode == 0
    return False


# --- where a drill takes place ---------------------------------------------------------------------------------------

@dataclass
class Scene:
    folder: Path
    """Data, socket, what the run said, and below it SAVE_PATH and TMPDIR."""
    holder: subprocess.Popen[bytes] | None
    """Keeps the mount namespace, if there is one."""
    leaves: tuple[str, ...] = ("torchinductor_", "vllm_dist_", "wandb-artifacts", "wandb-media")
    """Names of what may be left: a cache, the meeting file of a vLLM engine (2 KB), and empty folders of wandb."""
    trainer: int = 0
    """The pid of the command under drill."""
    _seen: set[psutil.Process] = field(default_factory=set)

    @property
    def save(self) -> Path:
        return self.inside(self.folder / "save")

    def inside(self, path: Path) -> Path:
        """A path of the run, as it is seen from here."""
        return path if self.holder is None else Path(f"/proc/{self.holder.pid}/root{path}")

    def start(self, command: Sequence[str], env: Mapping[str, str], **streams: Any) -> subprocess.Popen[bytes]:
        enter = [] if self.holder is None else ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt"]
        return subprocess.Popen([*enter, *command], env=dict(env), **streams)  # nsenter becomes the command

    def fill(self) -> None:
        """Leave no free block on the disk of SAVE_PATH."""
        assert self.holder is not None, "only a disk of the drill's own is filled"
        with (self.save / _FILLER).open("wb", buffering=0) as file:
            for size in (2**20, 2**12):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def left_on_disks(self) -> list[str]:
        """What the run left outside of SAVE_PATH."""
        disks = [self.folder / "tmp"] + ([Path(SHM)] if self.holder else [])
        found = [str(path) for disk in disks for path in self.inside(disk).rglob("*")]
        return [path for path in found if not any(name in path for name in self.leaves)]

    def processes(self) -> list[psutil.Process]:
        """All of the run that live now. Servers that overwrite their environment by a title are known as children."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.folder / "hub"):
                    self._seen |= {process, *process.children(recursive=True)}
        alive = []
        for process in self._seen:
            with contextlib.suppress(psutil.Error):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        return alive

    def send(self, number: signal.Signals, part: str) -> None:
        """A signal to the servers whose command lines hold ``part``, not to the processes that watch over them."""
        def found() -> list[psutil.Process]:
            lines = [(process, " ".join(process.cmdline())) for process in self.processes()]
            return [process for process, line in lines if part in line and "guard" not in line]

        wait_for(found)  # it may just be starting
        for process in found():
            process.send_signal(number)


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="drill-", dir="/var/tmp"))  # short: a socket's path has at most 107 letters
    for name in DISKS:
        (folder / name).mkdir(exist_ok=True)
    found = Scene(folder, _holder(folder) if can_mount() else None)
    try:
        yield found
    finally:
        while processes := found.processes():
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(processes, timeout=1)
        if found.holder is not None:
            found.holder.communicate()
        shutil.rmtree(folder)


def _holder(folder: Path) -> subprocess.Popen[bytes]:
    """A process in a mount namespace with small disks; they end with it."""
    mounts = "; ".join(f"mount -t tmpfs -o size={size} tmpfs '{folder / disk}'" for disk, size in DISKS.items())
    command = ["unshare", "--mount", "sh", "-ec", f"{mounts}; echo ready; exec cat"]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    if holder.stdout.readline() != b"ready\n":
        raise OSError(errno.EPERM, "no disks of its own for a drill")
    return holder


def settings(scene: Scene, **more: object) -> dict[str, str]:
    """Of a pocket run of eight trajectories a rollout; the data are made."""
    data = scene.folder / "data"
    if not data.exists():
        prepare(data, 1)
    pocket = {
        "HF_CKPT": START, "TRAIN_DATA": data / "train.jsonl", "SAVE_PATH": scene.folder / "save",
        "MEM_PROMPTS": START / "mem_agent_prompts.yaml", "MEM_CHUNK_TOKENS": 32, "MEM_MAX_MEMORY": 8,
        "MEM_MAX_FINAL": 12, "MEM_MAX_QUESTION": 16, "ENGINE_MAX_LEN": 512,
        "ENGINE_ARGS": "--kv-cache-memory-bytes 67108864",
        "NUM_ROLLOUT": 4, "ROLLOUT_BATCH_SIZE": 2, "N_SAMPLES_PER_PROMPT": 4, "LR": 3e-4, "KL_COEF": 0.01,
        "SAVE_INTERVAL": 1, "KEEP_CHECKPOINTS": 3,
        "OMP_NUM_THREADS": 1, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": 0, "TMPDIR": scene.folder / "tmp",
        MARK: scene.folder / "hub",
    }
    return {**os.environ, **{name: str(value) for name, value in (pocket | more).items()}}


def evaluating(scene: Scene) -> dict[str, object]:
    """Settings of a run that asks four questions after each rollout."""
    return {"EVAL_INTERVAL": 1, "EVAL_DATA": f"{scene.folder / 'data' / 'train.jsonl'}@[0:4]"}


# --- a run under faults ----------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Strike:
    fault: Fault
    moment: Moment
    rollout: int
    """From 0; the first time that the moment comes in this rollout or a later one."""
    count: int = 1
    """How often the moment has to come in the rollout: its n-th turn."""

    def is_due(self, told: Announcement) -> bool:
        return told.moment is self.moment and told.rollout >= self.rollout and told.count >= self.count


class Attempt(NamedTuple):
    """One life of the command."""

    code: int
    said: str
    strikes: list[Strike]
    moments: int
    """How many were announced."""


def drill(scene: Scene, env: Mapping[str, str], strikes: Sequence[Strike]) -> list[Attempt]:
    """Start the command, and start it again, until it has ended well, under ``strikes`` in their order.

    Raises:
        AssertionError: the run answered a fault in another way than it should, or left something.
    """
    attempts: list[Attempt] = []
    waiting = list(strikes)
    with contextlib.closing(Hub(scene.folder / "hub")) as hub:
        while not attempts or attempts[-1].code:
            attempts.append(_attempt(scene, hub, env, waiting, [*OBSERVED, "train"]))
            struck = attempts[-1].strikes
            _check_end(scene, attempts[-1], struck[-1].fault if struck else None)
            if struck:
                struck[-1].fault.afterwards(scene)
    assert not waiting, f"never came: {waiting}"
    return attempts


def _attempt(
    scene: Scene, hub: Hub, env: Mapping[str, str], waiting: list[Strike], command: Sequence[str],
) -> Attempt:
    """Run the command once; strikes are taken off ``waiting``."""
    path, strikes, moments = scene.folder / "said.txt", [], 0
    with path.open("wb") as out:
        process = scene.start(command, env, stdout=out, stderr=subprocess.STDOUT)
    scene.trainer = process.pid
    try:
        while met := hub.next(process.pid, HANGS_AFTER_S):
            told, line = met
            moments += 1
            ending = any(strike.fault.code for strike in strikes)  # of two, only one is what the run ended of
            if waiting and not ending and waiting[0].is_due(told):
                strikes.append(waiting.pop(0))
                scene.processes()  # those that die now were seen
                print(f"{told}: {strikes[-1].fault.name}", file=sys.stderr, flush=True)
                strikes[-1].fault.act(scene)
            faults.go(line)
    except BaseException:
        process.kill()
        raise
    return Attempt(process.wait(), path.read_text(errors="replace"), strikes, moments)


def _check_end(scene: Scene, attempt: Attempt, fault: Fault | None) -> None:
    _, alive = psutil.wait_procs(scene.processes(), timeout=HANGS_AFTER_S / 10)
    assert not alive, f"left running: {[process.cmdline() for process in alive]}"
    (scene.save / _FILLER).unlink(missing_ok=True)
    left = [] if fault is faults.EVERYTHING_KILLED else scene.left_on_disks()  # there the next start removes it
    assert left == [], f"left on disk: {left}"
    said, code = attempt.said, attempt.code
    assert code == (fault.code if fault else 0), (fault, code, said)
    assert "Traceback" not in said, said
    lines = [line for line in said.splitlines() if line.startswith(("error: ", "interrupted; "))]
    assert lines == (said.splitlines()[-1:] if code > 0 else []), said
    if fault is faults.DISK_FULL:
        assert str(scene.folder / "save") in lines[0], lines


# --- what a run has in the end ---------------------------------------------------------------------------------------


def result_of(scene: Scene) -> tuple[list[dict[str, float]], dict[str, str]]:
    """Equal where two runs did the same: the metrics of every rollout, without what depends on the clock, on
    repetitions, and on which engine's cache was asked; and hashes of the last checkpoint's files."""
    metrics = read_metrics(scene.save)
    assert [line["rollout"] for line in metrics] == list(range(len(metrics))), "each rollout is trained once"
    last = scene.save / f"iter_{len(metrics) - 1:07d}"
    tensors = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in last.glob("*.distcp")}
    assert tensors
    passing = re.compile("repeated|tokens_per_second|keeping_failed|seconds|.*cache_hit")
    return [{k: v for k, v in line.items() if not passing.match(k)} for line in metrics], tensors


def drill_like_unbroken(strikes: Sequence[Strike], rollouts: int) -> tuple[list[Attempt], list[dict[str, float]]]:
    """What a run under these faults did, and its metrics.

    Raises:
        AssertionError: it came to another result than the unbroken one.
    """
    results = []
    for struck in ([], strikes):
        with scene() as place:
            attempts = drill(place, settings(place, NUM_ROLLOUT=rollouts, **evaluating(place)), struck)
            results.append(result_of(place))
            metrics = read_metrics(place.save)
    assert results[0] == results[1], "the drilled run differs from the unbroken one"
    return attempts, metrics


# --- evaluations -----------------------------------------------------------------------------------------------------

QUESTIONS, LENGTH = 12, "3"
AT = 20
"""The answer at which the fault strikes; with four at a time some questions are answered then."""
EVAL_FAULTS = (faults.ENGINE_KILLED, faults.DISK_FULL, faults.INTERRUPTED, faults.TRAINER_KILLED)
"""The trainer's are the client's here."""


@contextlib.contextmanager
def engines(place: Scene, env: Mapping[str, str]) -> Iterator[str]:
    """The URL of engines that serve the pocket's starting weights, and are kept alive."""
    command = [sys.executable, "-m", "mem_agent", "serve-engines", "--model", str(START)]
    with (place.folder / "serve.txt").open("wb") as log:
        server = place.start(command, env, stdout=subprocess.PIPE, stderr=log)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().decode().removeprefix("READY ").strip()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(HANGS_AFTER_S) == 0


def rows(output: Path) -> list[dict[str, Any]]:
    """By question, without what depends on the clock and on what the engine had cached."""
    found = [json.loads(line) for line in (output / f"{LENGTH}.jsonl").read_text().splitlines()]
    last = {row["_id"]: row for row in found}  # what was asked again stands later
    for row in last.values():
        del row["seconds"]
        row["counts"] = {name: count for name, count in row["counts"].items() if "cached" not in name}
    return [row for _, row in sorted(last.items())]


def evaluate(place: Scene, env: Mapping[str, str], url: str, name: str, fault: Fault | None) -> list[int]:
    """Run it until it ends with 0, with the fault at one answer of the first run; how many answers each run got."""
    command = [*OBSERVED, "eval", "--model", str(START), "--data-root", str(place.folder / "asked"),
               "--output", str(place.folder / "save" / name)]
    env = {**env, "BASE_URL": url}
    answers: list[int] = []
    with contextlib.closing(Hub(place.folder / "hub")) as hub:
        while True:
            waiting = [Strike(fault, Moment.EVALUATION, -1, AT)] if fault and not answers else []
            attempt = _attempt(place, hub, env, waiting, command)
            answers.append(attempt.moments)
            (place.save / _FILLER).unlink(missing_ok=True)
            assert "Traceback" not in attempt.said, attempt.said
            if attempt.code == 0:
                return answers
            # 3: some questions got no answer
            assert attempt.strikes and attempt.code in (attempt.strikes[0].fault.code, 3), attempt.said


def eval_drill(chosen: Sequence[Fault]) -> None:
    """
    Raises:
        AssertionError: an evaluation under one of these faults has other rows, or asked again what it had.
    """
    with scene() as place:
        env = settings(place, LENGTH=LENGTH, MEM_CONCURRENCY=4)
        entries = json.loads((place.folder / "data" / f"eval_{LENGTH}.json").read_text())[:QUESTIONS]
        (place.folder / "asked").mkdir()
        (place.folder / "asked" / f"eval_{LENGTH}.json").write_text(json.dumps(entries))
        with engines(place, env) as url:
            [all_answers] = evaluate(place, env, url, "whole", None)
            whole = rows(place.save / "whole")
            assert len(whole) == QUESTIONS and not any(row.get("failure") for row in whole)
            for fault in chosen:
                answers = evaluate(place, env, url, fault.name, fault)
                assert rows(place.save / fault.name) == whole, fault
                if fault.code:
                    assert AT <= answers[0] and answers[1] < all_answers, (fault, answers, all_answers)
                print(f"evaluation, answer {AT}: {fault.name}: {answers} answers", file=sys.stderr, flush=True)
