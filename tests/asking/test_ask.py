"""`mem-agent ask` as people and scripts use it, on a router that plays a script."""

import orjson
import pytest

from mem_agent.asking import ask
from mem_agent.tests.helpers.asking import SETTINGS, reply
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside

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

    def run(replies, *arguments, files=("notes.txt",), question=QUESTION, url="", **settings):
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        # `connect` asks for one token first.
        router = FakeRouter([reply("x"), *(reply(r) if isinstance(r, str) else r for r in replies)],
                            default=reply("x"))
        with running_beside(router):
            server = ["--url", url or f"http://127.0.0.1:{router.port}"]
            code = ask.main([str(model_folder), question, *files, *server, *arguments])
        return (code, *capsys.readouterr(), router)

    return run


REPLIES = ["gold", "gold, silver", "gold, silver", "It is \\boxed{silver}"]


def test_the_answer_goes_to_standard_output_and_the_memory_to_standard_error(asked):
    code, out, err, router = asked(REPLIES)
    answer = "It is \\boxed{silver}\n\nAnswer: silver\n\nFrom:\n  notes.txt, line 2: “Ben has silver.”\n"
    assert (code, out, len(router.requests)) == (0, answer, 5)
    assert [(line[:5], line.rpartition(": ")[2]) for line in err.splitlines()] == [
        ("notes", "39 tokens, 3 section(s)"), ("[1/3]", "{+gold+}"), ("[2/3]", "gold{+, silver+}"),
        ("[3/3]", "unchanged")]
    assert asked(REPLIES, "--quiet")[:3] == (0, "silver\n", "")


def test_a_terminal_gets_colours_no_markup_and_the_whole_memory_if_asked_for(asked, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    long = " ".join(f"w{n}" for n in range(9))
    replies = [long, f"{long} end", "[bold]", "x"]
    _, _, second, third = asked(replies)[2].splitlines()
    assert "\x1b[32m{+end+}" in second and "w0 w1" not in second and "\x1b[9;31m[-w0" in third and "[bold]" in third
    assert f"{long} \x1b" in asked(replies, "--show-memory")[2].splitlines()[2]


def test_json_has_an_object_for_every_step(asked):
    code, out, err, _ = asked(REPLIES, "--json")
    started, *turns, delta, final, answer = map(orjson.loads, out.splitlines())
    line = {"document": "notes.txt", "unit": "line", "first": 2, "last": 2}
    assert (code, err) == (0, "") and started["documents"][0]["name"] == "notes.txt" and len(started["sections"]) == 3
    assert [turn["memory"] for turn in turns] == ["gold", "gold, silver", "gold, silver"] and final["kind"] == "final"
    assert delta == {"event": "delta", "text": REPLIES[-1]} and line["unit"] == started["sections"][0][0]["unit"]
    assert (answer["event"], answer["answer"], answer["text"]) == ("answer", "silver", REPLIES[-1])
    assert answer["sources"][0]["quote"] == "Ben has silver." and answer["sources"][0]["at"] == [line]
    failed = orjson.loads(asked([400], "--json")[1].splitlines()[-1])
    assert (failed["event"], failed["kind"]) == ("failed", "rejected")


def test_answers_without_a_source_or_a_box_sections_side_by_side_and_what_a_folder_skipped(asked, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (tmp_path / "more/notes.txt").write_text(TEXT)
    assert "From no section" in asked(["gold", "gold", "gold", "\\boxed{tin}"])[1]
    assert asked(["gold", "silver", "silver", "Ben's is silver."])[1].startswith("Ben's is silver.\n\nFrom:\n")
    err = asked(["gold", "tin", "gold tin", "x", "x"], files=("more",), AGENT="parallel", AGENT_ARGS="width=2")[2]
    assert "more/picture.png" in err and "merged: {+gold tin+}" in err


@pytest.mark.parametrize(("arguments", "code", "line"), [
    ({"files": ("gone.txt",)}, 1, "gone.txt"), ({"files": ("locked.pdf",)}, 1, "locked.pdf"),
    ({"question": "  "}, 2, "question"), ({"replies": ["gold"] * 3 + [""]}, 1, "model"),
    ({"url": "http://127.0.0.1:9"}, 1, "127.0.0.1:9"), ({"url": "nonsense"}, 2, "--url"),
])  # fmt: skip
def test_what_cannot_be_answered_is_one_line(asked, tmp_path, arguments, code, line):
    (tmp_path / "locked.pdf").write_bytes(b"%PDF-1.7")
    ended, out, err, _ = asked(arguments.pop("replies", []), **arguments)
    assert ended == code and out.strip() == ""
    (error,) = [shown for shown in err.splitlines() if shown.startswith("error: ")]
    assert line in error and err.endswith(error + "\n")
