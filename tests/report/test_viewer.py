"""What goes into the page of trajectories, and what the terminal says of them; the page itself is opened in
test_viewer_browser.py."""

import hashlib
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from zlib import decompress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.report.viewer.facts import changes_of, events_of, facts_of, gold_spans, holds
from mem_agent.report.viewer.groups import Place, Sibling, groups_of, log_probs_of, natural
from mem_agent.report.viewer.page import main as view
from mem_agent.report.viewer.page import write_viewer
from mem_agent.report.viewer.show import main as show
from mem_agent.rewards.qa_metrics import CLOSED_ANSWERS, normalise_squad, sub_em
from mem_agent.tests.helpers.traces import (
    HOSTILE,
    group_of,
    hostile_group,
    other_agents,
    write,
    write_small_results,
    write_small_run,
)
from mem_agent.traces.trace import Trace, TraceDocument, TraceTurn, line_of

# --- facts ----------------------------------------------------------------------------------------------------------

PLACES = [
    ("Ann's box is of Silver, they said.", "silver", ["Silver"]),
    ("silver and silver", "silver", ["silver", "silver"]),
    ("silvery", "silver", []),
    ("in the U.S. of A.", "US", ["U.S"]),
    ("the tower of\nthe big ben", "Big Ben", ["big ben"]),
    ("Tower of London", "the tower", ["Tower"]),
    ("vitamin A helps", "A", ["A"]),
    ("the 1,000 men", "1000", ["1,000"]),
    ("so \\boxed{big Ben}.", "Big Ben", ["big Ben"]),
    ("我住在东京都", "东京", ["东京"]),
]


@pytest.mark.parametrize(("text", "gold", "found"), PLACES)
def test_an_accepted_answer_is_found_where_it_stands(text, gold, found):
    assert [text[start:end] for start, end in gold_spans(text, facts_of([gold]))] == found


def test_golds_that_texts_hold_by_chance_are_not_searched_and_equal_ones_are_once():
    assert [fact.text for fact in facts_of(["yes", "No", "", "...", "Ann", "ann!", "the Ann"])] == ["Ann"]


TEXTS = st.text(st.sampled_from("ab the.AN\n’ı"), max_size=30)


@given(TEXTS, TEXTS)
def test_facts_stand_where_the_metric_says(text, gold):
    for fact in facts_of([gold]):
        assert holds(text, fact) == bool(sub_em(text, [gold])) == bool(gold_spans(text, [fact]))
    assert facts_of([gold]) or normalise_squad(gold, keep_articles=True) in CLOSED_ANSWERS | {""}


def test_a_fact_is_followed_through_turns():
    turns = [("Ann has it", "", "Ann"), ("silver.", "Ann", "Ann silver"), ("Bo sleeps", "Ann silver", "Ann silver"),
             ("Bo wakes", "Ann silver", "Bo"), ("Silver again", "Bo", "Bo")]
    found = [events_of(TraceTurn(kind="memory", memory=after), before, [section], facts_of(["silver"]))
             for section, before, after in turns]
    assert found == [[""], ["entered"], ["held"], ["lost"], ["passed"]]


def test_an_answer_that_two_changes_make_up_is_marked_in_both():
    found = changes_of("the big house", "the big ben", facts_of(["Big Ben"]))
    assert [(piece.change, piece.text, [piece.text[a:b] for a, b in gold]) for piece, gold in found] == [
        ("same", "the big ", ["big "]), ("removed", "house", []), ("added", "ben", ["ben"])]


# --- groups ---------------------------------------------------------------------------------------------------------


def test_groups_are_in_the_order_of_numbers_and_siblings_of_samples(tmp_path):
    document, first, second, third = group_of()
    file = write(tmp_path, "x", [*group_of(name="100"), document, third, second, first, *group_of(name="9")])
    groups = groups_of(file / "trajectories" / "x.jsonl")
    assert [group.name for group in groups] == ["9", "41", "100"]
    assert [sibling.trace.sample for sibling in groups[1].siblings] == [0, 1, 2]


def test_of_two_lines_of_one_trajectory_the_later_counts(tmp_path):
    document, first, *_ = group_of()
    write(tmp_path, "x", [document, first, replace(first, prediction="later")])
    (group,) = groups_of(tmp_path / "trajectories" / "x.jsonl")
    assert [sibling.trace.prediction for sibling in group.siblings] == ["later"]


@pytest.mark.parametrize(("pieces", "log_probs", "known"), [
    (("a", "😀b", ""), (-0.1, -0.25, 0.0), 3), ((), (), 0), (("x",), (-1.0,), 0), (("a", "😀b"), (-0.1,), 0),
    (("a", "😀b"), (-0.1, None), 0),
], ids=["all", "none kept", "other text", "too few", "no number"])
def test_tokens_are_shown_where_they_are_the_reply(pieces, log_probs, known):
    turn = TraceTurn(kind="final", reply="a😀b", pieces=pieces, log_probs=log_probs)
    assert len(log_probs_of(turn)) == known


def test_a_turn_without_a_shown_memory_is_compared_with_the_one_before():
    turns = (TraceTurn(kind="memory", memory="a"), TraceTurn(kind="memory", memory="b"),
             TraceTurn(kind="memory", shown_memory="x", memory="c"))
    sibling = Sibling(Trace(id="1", turns=turns), None)
    assert [sibling.before(at) for at in range(3)] == ["", "a", "x"]


def test_a_trajectory_is_judged_by_its_tasks_metric():
    trace = Trace(id="1", scores={"medium": 1.0, "strict": 0.0}, accuracy=0.5, reward=0.1)
    assert Sibling(trace, None).worth == 1.0 and Sibling(replace(trace, scores={}), None).worth == 0.5
    assert Sibling(replace(trace, scores={}, accuracy=None), None).worth == 0.1


def test_places_have_an_order_and_a_name():
    places = [(3, None), (None, "50"), (3, "50"), (None, None)]
    labels = [Place.of(Trace(id="", rollout=rollout, length=length)).label for rollout, length in places]
    assert labels == ["rollout 3", "length 50", "length 50 after rollout 3", "trajectories"]
    lengths = sorted(Place.of(Trace(id="", length=n)) for n in ("200", "50", "qa_1_50"))
    assert [place.length for place in lengths] == ["qa_1_50", "50", "200"]
    assert sorted(["q10", "q2", "q", "7"], key=natural) == ["7", "q", "q2", "q10"]


def parts_of(folder):
    write_viewer(folder, folder / "view.html")
    page = (folder / "view.html").read_text()
    found = re.findall(r'<script type="text/plain" id="(\w+)">([\w+/=]*)</script>', page)
    index, *parts = [orjson.loads(decompress(b64decode(content))) for _, content in found]
    return index, parts, page


def test_a_document_that_siblings_of_two_rollouts_read_is_in_the_page_once(tmp_path):
    write(tmp_path, "rollout_000001", group_of(1))
    write(tmp_path, "rollout_000002", group_of(2))
    index, parts, _ = parts_of(tmp_path)
    assert index["groups"][0]["documents"] == index["groups"][1]["documents"] and len(parts) == 1 + 2


def test_siblings_name_their_documents_by_content(tmp_path):
    records = []
    for at, section in enumerate(("one", "two", "one")):
        records += [TraceDocument(id="d", sections=(section,)), Trace(id=f"{at}", group="g", document="d", sample=at)]
    write(tmp_path, "50", records)
    index, parts, _ = parts_of(tmp_path)
    (group,) = index["groups"]
    assert [sibling["document"] for sibling in group["siblings"]] == [0, 1, 0]
    assert [parts[at] for at in group["documents"]] == [["one"], ["two"]]


def test_what_the_page_draws_is_computed_for_it(tmp_path):
    turn = TraceTurn(kind="memory", sections=(0,), shown_memory="😀 tin", memory="😀 silver", reply="😀 silver",
                     pieces=("😀 ", "silver"), log_probs=(-0.1, -0.25))
    trace = Trace(id="1", golds=("silver",), document="d", turns=(turn,))
    write(tmp_path, "50", [TraceDocument(id="d", sections=("Silver is rare.",)), trace])
    _, (_, group), _ = parts_of(tmp_path)
    (drawn,) = group["siblings"][0]["turns"]
    assert group["strings"][drawn["memory"]] == ["😀 silver", [3, 9]] and group["sections"] == [[[0, 6]]]
    assert drawn["changes"] == [["same", "😀 ", []], ["removed", "tin", []], ["added", "silver", [0, 6]]]
    assert drawn["events"] == ["entered"] and drawn["tokens"] == [[3, 6], [10, 25]]


# --- the page -------------------------------------------------------------------------------------------------------


def test_texts_stand_in_the_page_as_data_alone(tmp_path):
    index, parts, page = parts_of(write(tmp_path / "<script>run", "rollout_000012", hostile_group()))
    assert index["groups"][0]["question"] == HOSTILE and HOSTILE in [text for text, _ in parts[1]["strings"]]
    assert "onerror" not in page and "<script>run" not in page and page.count("<script>") == 1
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert f"script-src 'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'") and "http" not in page.replace("http-equiv", "")


def test_the_command_writes_beside_the_trajectories_or_where_it_is_told(tmp_path, capsys):
    folder = write_small_results(tmp_path / "results")
    assert view([str(folder)]) == 0 and view([str(folder), "--output", str(tmp_path / "new" / "x.html")]) == 0
    assert capsys.readouterr().out.split() == [str(folder / "view.html"), str(tmp_path / "new" / "x.html")]
    assert (folder / "view.html").read_bytes() == (tmp_path / "new" / "x.html").read_bytes()
    assert view([str(tmp_path)]) == 1
    assert "no trajectories" in capsys.readouterr().err


# --- the terminal ---------------------------------------------------------------------------------------------------


@pytest.fixture
def shown(tmp_path, capsys):
    folders = {"run": write_small_run(tmp_path / "run"), "results": write_small_results(tmp_path / "results")}

    def run_show(folder, *arguments):
        code = show([str(folders[folder]), *arguments])
        return code, capsys.readouterr()

    return run_show


def test_show_lists_the_newest_rollout(shown):
    code, printed = shown("run")
    lines = printed.out.splitlines()
    assert code == 0 and lines[0] == "rollout 12: 4 questions; --question ID prints one"
    assert lines[1] == "  9  0.00 1.00 EngineError  Which metal is Ann's box of?"
    assert [line.split()[0] for line in lines[1:]] == ["9", "41", "100", "666"]


def test_show_prints_a_trajectory_that_a_pipe_can_read(shown):
    code, printed = shown("run", "--question", "41")
    out = printed.out
    assert code == 0 and "\x1b" not in out
    assert "rollout 12, question 41, sample 0" in out and "accepted  silver / the Argentum" in out
    assert "section 2  Ann's box is of <<Silver>>, they said." in out
    assert "memory     Ann: metal {+<<silver>>+}" in out
    assert "silver: turn 2 enters the memory, turn 4 is lost from the memory" in out
    assert "the Argentum: stands nowhere" in out
    assert "earned recall 0.5" in out and "log-prob mean" in out and "ended by length" in out
    assert "reward    0, answer 0, length -0.125" in out and "siblings  0:0.00 1:1.00 2:EngineError" in out


def test_show_finds_a_question_by_its_id_before_its_group(tmp_path, capsys):
    """Of rows that have an index alone, ids and the numbers of groups are both small whole numbers."""
    rows = [("0", "2"), ("1", "0"), ("2", "1"), ("7", "")]
    write(tmp_path, "50", [Trace(id=group, group=group, question_id=name, question=f"is it {name}?")
                           for group, name in rows])
    for asked, found in [("0", "0"), ("1", "1"), ("2", "2"), ("7", "")]:
        assert show([str(tmp_path), "--question", asked]) == 0
        assert f"is it {found}?" in capsys.readouterr().out


def test_show_prints_one_turn_of_one_sibling(shown):
    code, printed = shown("results", "--length", "50", "--question", "7", "--sample", "1", "--turn", "5")
    assert code == 0 and "answer     \\boxed{<<silver>>}" in printed.out and "turn 4 of" not in printed.out
    assert "turn 2 enters the memory, turn 5 is in the answer" in printed.out


def test_show_prints_what_other_agents_kept(tmp_path, capsys):
    folder = write(tmp_path, "rollout_000012", other_agents())
    assert [show([str(folder), "--question", name, "--whole"]) for name in ("recalls", "asked", "empty")] == [0, 0, 0]
    out = capsys.readouterr().out
    assert "recalled   Ann keeps <<argentum>>" in out and "memory     Ann: [-metal-]{+<<argentum>>+}" in out
    assert "section 3  Bo sleeps." in out and "prompt     What is of <<silver>>?" in out


@pytest.mark.parametrize(("reply", "story"), [
    ("\\boxed{silver}", "turn 1 is in the answer"), ("\\boxed{tin}", "turn 1 read, and not kept"),
])
def test_an_answer_straight_from_the_document_read_what_stands_there(tmp_path, capsys, reply, story):
    turn = TraceTurn(kind="final", sections=(0,), reply=reply)
    trace = Trace(id="1", length="50", question_id="7", golds=("silver",), document="d", turns=(turn,))
    write(tmp_path, "50", [TraceDocument(id="d", sections=("Ann has silver.",)), trace])
    assert show([str(tmp_path), "--question", "7"]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"\nsilver: {story}")


@pytest.mark.parametrize("content", [b"", line_of(TraceDocument(id="9f", sections=()))], ids=["none", "a document"])
def test_files_without_a_trajectory_are_one_line(tmp_path, capsys, content):
    write(tmp_path, "rollout_000003", [])
    (tmp_path / "trajectories" / "rollout_000003.jsonl").write_bytes(content)
    for command in (view, show):
        assert command([str(tmp_path)]) == 1
        error = capsys.readouterr().err
        assert "hold no trajectory" in error and error.count("\n") == 1


def test_the_newest_rollout_is_the_newest_that_has_one(tmp_path, capsys):
    write(tmp_path, "rollout_000002", [Trace(id="2-0-0", rollout=2, question_id="7")])
    write(tmp_path, "rollout_000003", [])
    assert show([str(tmp_path)]) == 0 and capsys.readouterr().out.startswith("rollout 2: 1 question")


WRONG = [
    (("run", "--rollout", "5"), "no rollout 5? --rollout or --length names one of: rollout 0, rollout 12"),
    (("results",), "which length? --rollout or --length names one of: length 50, length 200"),
    (("results", "--length", "7"), "no length 7?"),
    (("run", "--question", "8"), "rollout 12: no question '8'; there are: 9, 41, 100, 666"),
    (("run", "--question", "41", "--sample", "7"), "no sample 7; there are: 0, 1, 2"),
    (("run", "--question", "41", "--turn", "9"), "12-41-0: no turn 9; there are 1 to 5"),
]


@pytest.mark.parametrize(("arguments", "line"), WRONG)
def test_what_is_not_there_is_named_with_what_is(shown, arguments, line):
    code, printed = shown(*arguments)
    assert code == 1 and line in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_show_gives_a_sure_token_no_sign(tmp_path, capsys):
    document, trace, *_ = group_of()
    sure = replace(trace.turns[-1], log_probs=(-0.0004,) * len(trace.turns[-1].pieces))
    write(tmp_path, "rollout_000012", [document, replace(trace, turns=(sure,))])
    assert show([str(tmp_path), "--question", "41"]) == 0
    assert "log-prob mean 0.00, lowest 0.00" in capsys.readouterr().out

