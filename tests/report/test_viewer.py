"""What goes into the page of trajectories, and what the terminal says of them; the page itself is opened in
test_viewer_browser.py."""

import re
from base64 import b64decode
from zlib import decompress

import orjson
import pytest

from mem_agent.hooks.traces import Trace, TraceDocument, TraceTurn
from mem_agent.report.viewer.groups import Sibling, facts_of, gold_spans
from mem_agent.report.viewer.page import main as view
from mem_agent.report.viewer.page import write_viewer
from mem_agent.report.viewer.show import main as show
from mem_agent.tests.helpers.traces import write, write_small_results, write_small_run

# --- facts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "gold", "found"), [
    ("Ann's box is of Silver, they said.", "silver", ["Silver"]),
    ("silver and silver", "silver", ["silver", "silver"]), ("silvery", "silver", []),
    ("the tower of\nthe big ben", "Tower of Big Ben", ["tower of\nthe big ben"]),
    ("the 1,000 men", "1000", ["1,000"]), ("我住在东京都", "东京", ["东京"]),
])
def test_an_accepted_answer_is_found_where_it_stands(text, gold, found):
    assert [text[start:end] for start, end in gold_spans(text, facts_of([gold]))] == found


def test_golds_that_texts_hold_by_chance_are_not_searched_and_a_fact_is_followed_through_turns():
    assert [fact.text for fact in facts_of(["yes", "No", "", "...", "Ann", "ann!", "the Ann"])] == ["Ann"]
    sections = ("Ann has it", "silver.", "Bo sleeps", "Bo wakes", "Silver again")
    turns = [TraceTurn(kind="memory", sections=(at,), memory=memory)
             for at, memory in enumerate(("Ann", "Ann silver", "Ann silver", "Bo", "Bo"))]
    sibling = Sibling(Trace(id="1", turns=turns), TraceDocument(id="d", sections=sections))
    found = [sibling.events(at, facts_of(["silver"])) for at in range(5)]
    assert found == [[""], ["entered"], ["held"], ["lost"], ["passed"]]


# --- the page -------------------------------------------------------------------------------------------------------


def parts_of(folder):
    write_viewer(folder, folder / "view.html")
    page = (folder / "view.html").read_text()
    found = re.findall(r'<script type="text/plain" id="(\w+)">([\w+/=]*)</script>', page)
    return [orjson.loads(decompress(b64decode(content))) for _, content in found]


def test_what_the_page_draws_is_computed_for_it(tmp_path):
    turn = TraceTurn(kind="memory", sections=(0,), shown_memory="😀 tin", memory="😀 silver", reply="😀 silver",
                     pieces=("😀 ", "silver"), log_probs=(-0.1, -0.25))
    fields = {"group": "g", "golds": ("silver",), "document": "d", "turns": (turn,)}
    siblings = [Trace(id=str(at), sample=at, **fields) for at in (0, 1)]
    write(tmp_path, "50", [TraceDocument(id="d", sections=("Silver is rare.",)), *siblings])
    _, group = parts_of(tmp_path)
    first, (drawn,) = (sibling["turns"] for sibling in group["siblings"])
    assert first == [drawn] and [text for text, _ in group["strings"]].count("Silver is rare.") == 1
    assert group["strings"][drawn["memory"]] == ["😀 silver", [3, 9]]
    assert [(at, group["strings"][text]) for at, text in drawn["sections"]] == [(0, ["Silver is rare.", [0, 6]])]
    assert drawn["changes"] == [["same", "😀 ", []], ["removed", "tin", []], ["added", "silver", [0, 6]]]
    assert drawn["events"] == ["entered"] and drawn["tokens"] == [[3, 6], [10, 25]]


# --- the commands ---------------------------------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path, capsys):
    """``told(command, folder, *arguments)``: exit code, output, and error line."""
    folders = {"run": write_small_run(tmp_path / "run"), "results": write_small_results(tmp_path / "results"),
               "empty": write(tmp_path / "empty", "rollout_000003", []), "none": tmp_path}

    def run(command, folder, *arguments):
        code = command([str(folders[folder]), *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_view_writes_beside_the_trajectories_or_where_it_is_told(told, tmp_path):
    assert told(view, "results") == (0, f"{tmp_path / 'results' / 'view.html'}\n", "")
    assert told(view, "results", "--output", str(tmp_path / "x.html"))[0] == 0 and (tmp_path / "x.html").is_file()


def test_show_lists_the_newest_rollout(told, tmp_path):
    write(tmp_path / "run", "rollout_000013", [])  # the newest that has one
    code, out, _ = told(show, "run")
    lines = out.splitlines()
    assert code == 0 and lines[0] == "rollout 12: 4 questions; --question ID prints one"
    assert lines[1] == "  9  0.00 1.00 EngineError  Which metal is Ann's box of?"
    assert [line.split()[0] for line in lines[1:]] == ["9", "41", "100", "666"]


@pytest.mark.parametrize(("arguments", "said", "unsaid"), [
    (("run", "--question", "41"), [
        "rollout 12, question 41, sample 0", "accepted  silver / the Argentum",
        "section 2  Ann's box is of <<Silver>>, they said.", "memory     Ann: metal {+<<silver>>+}",
        "silver: turn 2 enters the memory, turn 4 is lost from the memory", "the Argentum: stands nowhere",
        "earned recall 0.5", "log-prob mean", "ended by length", "reward    0, answer 0, length -0.125",
        "siblings  0:0.00 1:1.00 2:EngineError"], ["\x1b"]),
    (("results", "--length", "50", "--question", "7", "--sample", "1", "--turn", "5"), [
        "answer     \\boxed{<<silver>>}", "turn 2 enters the memory, turn 5 is in the answer"], ["turn 4 of"]),
])
def test_show_prints_a_trajectory_that_a_pipe_can_read(told, arguments, said, unsaid):
    code, out, _ = told(show, *arguments)
    assert code == 0 and [text for text in said if text not in out] == [] == [text for text in unsaid if text in out]


def test_what_was_recalled_and_an_answer_straight_from_a_long_document_are_shown(tmp_path, capsys):
    turns = (TraceTurn(kind="memory", shown_memory="Ann: tin", recalled="Ann keeps silver", memory="Ann: silver"),
             TraceTurn(kind="final", sections=(0,), prompt="What is of silver?", reply="\\boxed{tin}"))
    trace = Trace(id="1", length="50", question_id="7", golds=("silver",), document="d", turns=turns)
    write(tmp_path, "50", [TraceDocument(id="d", sections=(f"{'Bo sleeps. ' * 100}Ann has silver.",)), trace])
    assert show([str(tmp_path), "--question", "7"]) == 0
    out = capsys.readouterr().out
    assert "recalled   Ann keeps <<silver>>" in out and "memory     Ann: [-tin-]{+<<silver>>+}" in out
    assert out.rstrip().endswith("turn 2 read, and not kept") and len(out) < 1000
    assert "Bo sleeps. Ann has <<silver>>." in out and "characters ..." in out and "What is of" not in out
    assert show([str(tmp_path), "--question", "7", "--whole"]) == 0
    assert "prompt     What is of <<silver>>?" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "arguments", "named"), [
    (view, ("none",), "trajectories"), (show, ("empty",), "trajectories"),
    (show, ("run", "--rollout", "5"), "rollout_000000, rollout_000012"), (show, ("results",), "200, 50"),
    (show, ("run", "--question", "8"), "9, 41, 100, 666"),
    (show, ("run", "--question", "41", "--turn", "9"), "1, 2, 3, 4, 5"),
])
def test_what_is_not_there_is_named_with_what_is(told, command, arguments, named):
    code, out, error = told(command, *arguments)
    assert code == 1 and named in error and error.count("\n") == 1 and not out
