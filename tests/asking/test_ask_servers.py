"""`mem-agent ask` on real engines with the pocket model's own task: a text file, a PDF, a folder, an interrupt."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson
import pytest

from mem_agent.pocket.task import make_examples
from mem_agent.tests.helpers.document_files import pdf_bytes
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for

pytestmark = pytest.mark.servers

START = Path(__file__).parents[2] / "pocket" / "start"
SETTINGS = {
    "MEM_PROMPTS": START.parent / "prompts.yaml", "MEM_CHUNK_TOKENS": 32, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 12,
    "MEM_MAX_QUESTION": 16, "EVAL_TEMPERATURE": 0,
    "ENGINE_ARGS": f"--max-num-seqs 8 --kv-cache-memory-bytes {2**26} --block-size 32",
}
EXAMPLE = list(make_examples(50, 4, 3))[3]
"""Its fact stands in the last section, which the starting weights never lose again."""
LINES = EXAMPLE.context.splitlines()
FACT = f"{EXAMPLE.name} {EXAMPLE.answer}."


@pytest.fixture
def temporary():
    """A folder for temporary files; the path of a socket in it has to be short."""
    with tempfile.TemporaryDirectory(prefix="ask-") as folder:
        yield Path(folder)


@pytest.fixture
def environment(temporary):
    return os.environ | {name: str(value) for name, value in SETTINGS.items()} | {"TMPDIR": str(temporary)}


def ask(folder: Path, env, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mem_agent", "ask", str(START), EXAMPLE.question, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANGS_AFTER_S)


def test_a_text_file_is_answered_by_engines_that_are_gone_afterwards(tmp_path, environment, temporary):
    (tmp_path / "facts.txt").write_text(EXAMPLE.context)
    ended = ask(tmp_path, environment, "facts.txt")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        f"\\boxed{{{EXAMPLE.answer}}}", "", f"Answer: {EXAMPLE.answer}", "", "From:",
        f"  facts.txt, line {LINES.index(FACT) + 1}: “{FACT}”",
    ]  # fmt: skip
    *_, last = ended.stderr.splitlines()
    assert last.startswith("[3/3] facts.txt, lines 17-24: ") and f"{{+{FACT.removesuffix('.')}+}}" in last
    assert not list(temporary.glob("mem-agent-ask-*"))


def test_a_pdf_and_a_folder_are_answered_by_a_server_that_is_named(tmp_path, environment):
    (tmp_path / "facts.pdf").write_bytes(pdf_bytes([LINES[:8], LINES[8:16], LINES[16:]]))
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts/rain.html").write_text("".join(f"<p>{line}</p>" for line in LINES[:8]))
    (tmp_path / "facts/z.txt").write_text("\n".join(LINES[8:]))
    serve = [sys.executable, "-m", "mem_agent", "serve-engines", "--model", str(START), "--url-file", "url"]
    with subprocess.Popen(serve, cwd=tmp_path, env=environment | {"SAVE_PATH": str(tmp_path)}) as server:
        try:
            wait_for(lambda: (tmp_path / "url").exists() or server.poll() is not None)
            url = (tmp_path / "url").read_text().strip()
            pdf = ask(tmp_path, environment, "facts.pdf", "--json", "--quiet", "--url", url)
            folder = ask(tmp_path, environment, "facts", "--json", "--quiet", "--url", url)
        finally:
            server.terminate()
    for ended, place in ((pdf, ("facts.pdf", "page", 3)), (folder, ("facts/z.txt", "line", LINES.index(FACT) - 7))):
        assert ended.returncode == 0, ended.stderr
        answer = orjson.loads(ended.stdout)
        (source,) = answer["sources"]
        (at,) = source["at"]
        assert (answer["answer"], source["quote"]) == (EXAMPLE.answer, FACT)
        assert (at["document"], at["unit"], at["first"]) == place


def test_an_interrupt_while_an_engine_starts_leaves_nothing(tmp_path, environment, temporary):
    (tmp_path / "facts.txt").write_text(EXAMPLE.context)
    command = [sys.executable, "-m", "mem_agent", "ask", str(START), EXAMPLE.question, "facts.txt"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: any(temporary.glob("mem-agent-ask-*/logs/engine-0.log")) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 130, err
    assert err.splitlines()[-1].startswith("interrupted; what was started for the question has ended")
    assert not list(temporary.glob("mem-agent-ask-*"))
