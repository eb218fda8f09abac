"""Fetching published files, from a local stand-in for the hub."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mem_agent.data.download import _pinned as pinned
from mem_agent.data.manifest import read_manifest, sha256_of
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

ROOT = Path(__file__).resolve().parents[2]
FIRST, SECOND = "a" * 40, "b" * 40


def content_of(length, commit, size=300_000):
    text = json.dumps([{"context": f"{commit[0]} {length} " + "x" * size, "input": "Who?", "answers": ["Ann"]}])
    return text.encode()


@dataclass
class Hub:
    """One dataset with two lengths; ``head`` is what its main branch points to."""

    head: str = FIRST
    cut: int = 0
    """Bytes after which a transfer stands still; 0: never."""
    whole: set = field(default_factory=set)
    """Files that arrive all the same."""
    stalled: threading.Event = field(default_factory=threading.Event)
    damage: bool = False
    lengths: tuple = (50, 100)
    size: int = 300_000
    requests: list = field(default_factory=list)
    url: str = ""

    def files(self, commit):
        return {f"eval_{n}.json": content_of(n, commit, self.size) for n in self.lengths}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        hub.requests.append((self.command, self.path, self.headers.get("Range")))
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "datasets"]:
            self.information(hub, parts)
        elif parts[:3] == ["datasets", "some", "set"] and parts[3] == "resolve":
            self.file(hub, parts[4], parts[5])
        else:
            self.answer(404, b"{}")

    def information(self, hub, parts):
        commit = parts[5] if len(parts) > 5 else "main"
        commit = hub.head if commit == "main" else commit
        if parts[2:4] != ["some", "set"] or commit not in (FIRST, SECOND):
            self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        files = [
            {"rfilename": name, "size": len(data), "blobId": "0" * 40,
             "lfs": {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 130}}
            for name, data in hub.files(commit).items()
        ]
        info = {"id": "some/set", "sha": commit, "siblings": [*files, {"rfilename": "README.md", "size": 1}]}
        self.answer(200, json.dumps(info).encode(), {"Content-Type": "application/json"})

    def file(self, hub, commit, name):
        data = hub.files(commit)[name]
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        if hub.damage:
            data = data.replace(b"x", b"y")
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-").partition("-")[0])
        headers = {"X-Repo-Commit": commit, "ETag": etag, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self.answer(206 if start else 200, data[start:], headers, None if name in hub.whole else hub)

    def answer(self, status, body, headers=None, hub=None):
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            cut = hub.cut if hub else 0
            self.wfile.write(body[:cut] if cut else body)
            if cut:
                hub.stalled.set()
                self.close_connection = True
                with contextlib.suppress(ConnectionError):
                    self.connection.recv(1)  # until the other side is gone


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.hub = Hub(url=f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.hub
    server.shutdown()
    server.server_close()


def fetch(hub, output, *flags, **options):
    child = start(hub, output, *flags, **options)
    stdout, stderr = child.communicate()
    return subprocess.CompletedProcess(child.args, child.returncode, stdout, stderr)


def start(hub, output, *flags, dataset="some/set", lengths="50 100"):
    """In a process of its own: the hub client reads HF_ENDPOINT when it is imported."""
    command = [sys.executable, "-m", "mem_agent.data.download", "--output", str(output), "--dataset", dataset,
               *(["--lengths", lengths] if lengths else []), *flags]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    env |= {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(output.parent / "hf"), "NO_PROXY": "127.0.0.1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def manifest(output):
    return json.loads((output / "manifest.json").read_text())["files"]


def errors(done):
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


def test_files_arrive_with_their_commit_and_hash_in_the_manifest(hub, tmp_path):
    done = fetch(hub, tmp_path / "out", lengths=None)  # all there are
    assert done.returncode == 0, done.stderr
    for length in (50, 100):
        path = tmp_path / "out" / f"eval_{length}.json"
        assert path.read_bytes() == content_of(length, FIRST)
        source = {"kind": "download", "dataset": "some/set", "revision": FIRST}
        expected = {"source": source, "sha256": sha256_of(path), "bytes": path.stat().st_size}
        assert manifest(tmp_path / "out")[path.name] == expected
    assert not (tmp_path / "out" / ".download").exists()


@pytest.mark.parametrize("link", [".download", ".download/.cache/huggingface/download", ".download/eval_50.json"])
def test_nothing_is_fetched_through_a_link_in_the_folder(hub, tmp_path, link):
    mine, link = tmp_path / "mine", tmp_path / "out" / link
    mine.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(mine if link.suffix != ".json" else mine / "eval_50.json")
    done = fetch(hub, tmp_path / "out", lengths="50")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "eval_50.json").read_bytes() == content_of(50, FIRST) and not list(mine.iterdir())


def test_a_file_of_numbers_comes_with_a_word_about_the_raw_file(hub, tmp_path):
    hub.lengths = (6400, 12800)
    hint = f"{tmp_path / 'out' / 'eval_12800.json'}: names documents of HotpotQA's hotpot_dev_distractor_v1.json; put"
    lines = fetch(hub, tmp_path / "out", lengths=None).stdout.splitlines()
    assert [line.startswith(hint) for line in lines] == [False, False, True]
    (tmp_path / "out" / "hotpotqa_dev.json").touch()
    assert "names documents" not in fetch(hub, tmp_path / "out", lengths="12800").stdout


def test_an_entry_that_says_little_is_no_download(tmp_path):
    sources = [{}, {"kind": "download"}, {"kind": "download", "dataset": "some/set", "revision": 7},
               {"kind": "download", "dataset": "some/set", "revision": FIRST}]
    entries = {str(n): {"source": source, "sha256": "", "bytes": 0} for n, source in enumerate(sources)}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": entries}))
    assert pinned(read_manifest(tmp_path), "some/set") == FIRST


def test_the_revision_is_resolved_once(hub, tmp_path):
    assert fetch(hub, tmp_path / "out", lengths="50").returncode == 0
    hub.head = SECOND
    assert fetch(hub, tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "eval_100.json").read_bytes() == content_of(100, FIRST)
    done = fetch(hub, tmp_path / "out", "--revision", "main")
    assert done.returncode == 1 and f"holds files of some/set at {FIRST}; choose another folder" in errors(done)[0]
    assert fetch(hub, tmp_path / "new", "--revision", FIRST).returncode == 0
    assert (tmp_path / "new" / "eval_50.json").read_bytes() == content_of(50, FIRST)


def test_a_second_run_verifies_without_the_hub(hub, tmp_path):
    output = tmp_path / "out"
    assert fetch(hub, output).returncode == 0
    hub.requests.clear()
    done = fetch(hub, output)
    assert done.returncode == 0 and done.stdout.count(": there") == 2 and hub.requests == []
    (output / "eval_50.json").write_bytes(content_of(50, SECOND))
    done = fetch(hub, output)
    assert done.returncode == 1 and "is damaged (not the SHA-256 in manifest.json)" in errors(done)[0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_is_continued_with_the_files_that_are_missing(hub, tmp_path, number):
    output, hub.size, hub.cut = tmp_path / "out", 24 * 2**20, 21 * 2**20  # the client writes blocks of 10 MiB
    hub.whole.add("eval_50.json")
    child = start(hub, output, lengths="50 100")
    assert hub.stalled.wait(HANGS_AFTER_S)
    while not any(path.stat().st_size for path in output.glob(".download/**/*.incomplete")):
        time.sleep(0.02)
    child.send_signal(number)
    stderr = child.communicate()[1]
    if number == signal.SIGINT:
        assert (child.returncode, stderr) == (130, "interrupted; the same command continues with what is missing\n")
        assert not (output / ".download").exists()
    assert not (output / "eval_100.json").exists() and list(manifest(output)) == ["eval_50.json"]
    hub.cut = 0
    hub.requests.clear()
    assert fetch(hub, output, lengths="50 100").returncode == 0
    for length in (50, 100):
        assert (output / f"eval_{length}.json").read_bytes() == content_of(length, FIRST, hub.size)
    fetched = [path for command, path, _ in hub.requests if command == "GET" and "resolve" in path]
    assert len(fetched) == 1 and fetched[0].endswith("eval_100.json")
    assert not (output / ".download").exists()


def test_a_damaged_transfer_never_gets_its_name(hub, tmp_path):
    hub.damage = True
    done = fetch(hub, tmp_path / "out", lengths="50")
    assert done.returncode == 1 and "eval_50.json arrived damaged" in errors(done)[0]
    assert not (tmp_path / "out" / "eval_50.json").exists()
    hub.damage = False
    assert fetch(hub, tmp_path / "out", lengths="50").returncode == 0


def test_files_fetched_by_other_means_are_adopted_if_they_are_the_hubs(hub, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / "eval_50.json").write_bytes(content_of(50, FIRST))
    assert fetch(hub, output, lengths="50").returncode == 0
    assert not any("resolve" in path for _, path, _ in hub.requests) and "eval_50.json" in manifest(output)
    (output / "eval_100.json").write_bytes(b"[]")
    done = fetch(hub, output)
    assert done.returncode == 1 and "eval_100.json: is there, but manifest.json does not say from where" in done.stderr
    assert (output / "eval_100.json").read_bytes() == b"[]"


def test_wrong_use_is_one_line(hub, tmp_path, silent_port):
    for flags, reason in (
        ({"lengths": "50 77"}, "some/set has no eval_77.json; it has the lengths 50 100"),
        ({"lengths": "many"}, "length 'many': allowed: numbers of documents"),
        ({"dataset": "no/set"}, "no/set: "),
    ):
        done = fetch(hub, tmp_path / "out", **flags)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and reason in errors(done)[0], done.stderr
    done = fetch(Hub(url=f"http://127.0.0.1:{silent_port}"), tmp_path / "out")
    assert done.returncode == 1 and len(errors(done)) == 1 and "HF_ENDPOINT" in errors(done)[0]
