"""`mem-agent ask` as people and scripts use it, on a router that plays a script."""

import os
import signal
import subprocess
import sys

import orjson
import pytest

from mem_agent.asking import ask
from mem_agent.tests.helpers.asking import SETTINGS, model_folder, reply
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for

__all__ = ["model_folder"]
QUESTION = "Which metal?"
TEXT = "Ann has gold.\nBen has silver.\nRain fell today.\n"
"""Three lines, read in three sections."""


@pytest.fixture
def asked(model_folder, tmp_path, monkeypatch, capsys):
    """Asks with replies that a test has written; gives the exit code, both outputs and the router."""
    monkeypatch.chdir(tmp_path)
    for name, value in (SETTINGS | {"mem_chunk_tokens": 16}).items():
        monkeypatch.setenv(name.upper(), str(value))
    (tmp_path / "notes.txt").write_text(TEXT)

    def run(replies, *arguments, files=("notes.txt",), question=QUESTION, **settings):
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        # `connect` asks for one token first.
        router = FakeRouter([reply("x"), *(reply(r) if isinstance(r, str) else r for r in replies)],
                            default=reply("x"))
        with running_beside(router):
            url = f"http://127.0.0.1:{router.port}"
            code = ask.main([str(model_folder), question, *files, "--url", url, *arguments])
        return (code, *capsys.readouterr(), router)

    return run


REPLIES = ["gold", "gold, silver", "gold, silver", "It is \\boxed{silver}"]


def test_the_answer_goes_to_standard_output_and_the_memory_to_standard_error(asked):
    code, out, err, router = asked(REPLIES)
    assert code == 0
    assert out == ("It is \\boxed{silver}\n\nAnswer: silver\n\nFrom:\n"
                   "  notes.txt, line 2: “Ben has silver.”\n")
    lines = err.splitlines()
    assert lines[0].startswith("notes.txt: ") and lines[0].endswith(" tokens, 3 section(s)")
    assert lines[1].startswith("[1/3] notes.txt, line") and lines[1].endswith(": {+gold+}")
    assert lines[2].startswith("[2/3] notes.txt, line") and lines[2].endswith(": gold{+, silver+}")
    assert lines[3].startswith("[3/3] notes.txt, line") and lines[3].endswith(": unchanged")
    assert len(lines) == 4 and len(router.requests) == 5


def test_a_terminal_gets_colours_and_no_markup(asked, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    err = asked(["gold", "[bold]x[/bold]", "x", "x"])[2]
    assert "\x1b[32m{+gold+}" in err and "\x1b[9;31m[-gold-]" in err and "[bold]x[/bold]" in err


def test_quiet_leaves_the_answer_alone(asked):
    code, out, err, _ = asked(REPLIES, "--quiet")
    assert (code, out, err) == (0, "silver\n", "")


def test_json_has_an_object_for_every_step(asked):
    code, out, err, _ = asked(REPLIES, "--json")
    started, *turns, delta, final, answer = map(orjson.loads, out.splitlines())
    assert code == 0 and err == "" and started["event"] == "started" and len(started["sections"]) == 3
    assert started["documents"] == [{"name": "notes.txt", "unit": "line", "units": 4, "note": ""}]
    assert started["sections"][0][0]["document"] == "notes.txt" and started["sections"][0][0]["first"] == 1
    assert [turn["memory"] for turn in turns] == ["gold", "gold, silver", "gold, silver"]
    assert delta == {"event": "delta", "text": REPLIES[-1]} and final["kind"] == "final"
    assert answer["event"] == "answer" and answer["answer"] == "silver" and answer["text"] == REPLIES[-1]
    (source,) = answer["sources"]
    assert source["quote"] == "Ben has silver." and source["section"] == 1
    assert source["at"] == [{"document": "notes.txt", "unit": "line", "first": 2, "last": 2}]
    failed = orjson.loads(asked([400], "--json")[1].splitlines()[-1])
    assert failed["event"] == "failed" and failed["kind"] == "rejected"


def test_a_memory_is_shown_whole_if_asked_for(asked):
    long = " ".join(f"w{n}" for n in range(9))
    replies = [long, f"{long} end", long, "\\boxed{x}"]
    assert "w0 w1" not in asked(replies)[2].splitlines()[2]
    assert f"{long} {{+end+}}" in asked(replies, "--show-memory")[2].splitlines()[2]


def test_answers_in_no_memory_and_without_a_box(asked):
    assert "From no section" in asked(["gold", "gold", "gold", "\\boxed{tin}"])[1]
    out = asked(["gold", "silver", "silver", "Ben's is silver."])[1]
    assert out.startswith("Ben's is silver.\n\nFrom:\n") and "Answer:" not in out


def test_parallel_sections_merge_and_a_folder_says_what_it_skipped(asked, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (tmp_path / "more/notes.txt").write_text(TEXT)
    err = asked(["gold", "tin", "gold tin", "x", "x"], files=("more",), AGENT="parallel", AGENT_ARGS="width=2")[2]
    assert "more/picture.png" in err and "merged: {+gold tin+}" in err


@pytest.mark.parametrize(("arguments", "code", "line"), [
    ({"files": ("gone.txt",)}, 1, "gone.txt"), ({"files": ("locked.pdf",)}, 1, "locked.pdf"),
    ({"replies": [401]}, 1, "401"), ({"question": "  "}, 2, "question"),
    ({"question": "x" * 2000}, 1, "2000"), ({"replies": ["gold"] * 3 + [""]}, 1, "model"),
])  # fmt: skip
def test_what_cannot_be_answered_is_one_line(asked, tmp_path, arguments, code, line):
    (tmp_path / "locked.pdf").write_bytes(b"%PDF-1.7")
    ended, out, err, _ = asked(arguments.pop("replies", []), **arguments)
    assert ended == code and out.strip() == ""
    (error,) = [shown for shown in err.splitlines() if shown.startswith("error: ")]
    assert line in error and err.endswith(error + "\n")


def test_a_server_that_is_not_there_is_one_line(model_folder, tmp_path, capsys, silent_port):
    (tmp_path / "notes.txt").write_text(TEXT)
    for url, code, named in ((f"http://127.0.0.1:{silent_port}", 1, str(silent_port)), ("nonsense", 2, "--url")):
        assert ask.main([str(model_folder), QUESTION, str(tmp_path / "notes.txt"), "--url", url]) == code
        assert named in capsys.readouterr().err


def test_an_interrupt_ends_the_request_at_the_server(model_folder, tmp_path):
    (tmp_path / "notes.txt").write_text(TEXT)
    router = FakeRouter([reply("x")], default="hang")
    with running_beside(router):
        env = os.environ | {name.upper(): str(value) for name, value in SETTINGS.items()}
        command = [sys.executable, "-m", "mem_agent", "ask", str(model_folder), QUESTION, str(tmp_path / "notes.txt"),
                   "--url", f"http://127.0.0.1:{router.port}"]
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(router.requests) >= 2, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 130 and out == "" and err.splitlines()[-1].startswith("interrupted")
