"""Rule-based recall on the one loop: what stands beside the memory, and which memory it is."""

import pytest

from mem_agent.agents import rule_recall
from mem_agent.agents.rule_recall import NONE, likest
from mem_agent.tests.helpers.scripted import END, VOCABULARY, read

NOTHING = "Nothing was recalled."


def memories_shown(run):
    return [prompt.partition("<memory>\n")[2].partition("\n</memory>")[0] for prompt in run.prompts]


def test_the_memory_likest_the_question_stands_beside_the_current_one():
    """The question is "Who, then?"."""
    run = read([" a then ", "b", "who? THEN!", "x"], agent="rule_recall", mem_max_memory=64)
    assert run.kinds == "mmmf" and run.memories == ["a then", "b", "who? THEN!"]
    assert memories_shown(run) == ["Nothing yet.", "a then\n\na then", "b\n\na then", "who? THEN!\n\nwho? THEN!"]
    assert run.count("recall_hits") == 3


def test_without_a_common_word_the_marker_is_shown_also_behind_an_empty_memory():
    run = read(["a", "", "a", "x"], agent="rule_recall")
    assert memories_shown(run) == ["Nothing yet.", f"a\n\n{NOTHING}", f"\n\n{NOTHING}", f"a\n\n{NOTHING}"]
    assert run.count("recall_hits") == 0 and run.count("empty_updates") == 1


@pytest.mark.parametrize("texts,found", [
    (["the red key", "key"], 1),  # 1 of 5 words, 1 of 3
    (["a b c d", "who x y z"], 1),  # 0, 1 of 6
    (["who", "who"], 0),  # the older of two alike
    (["WHO, has!", "who has it"], 0),  # 2 of 3, 2 of 4
    (["nothing", "here"], None),
])
def test_likeness_is_jaccards(texts, found):
    """The question's words are who, has, key."""
    best = NONE
    for number, text in enumerate(texts):
        best = likest("Who has? key", best, text, (number,))
    assert best.ids == (() if found is None else (found,))


@pytest.mark.parametrize("turns", [2, 8])
def test_a_turn_looks_at_its_own_memory_alone(turns, monkeypatch):
    """A memory can have a thousand words, and a document a thousand sections."""
    split, seen = rule_recall._words, []
    monkeypatch.setattr(rule_recall, "_words", lambda text: seen.append(text) or split(text))
    read([f"a{number}" for number in range(turns)] + ["x"], chunks=turns, agent="rule_recall")
    assert len([text for text in seen if text.startswith("a")]) == turns


def test_thinking_is_carried_only_as_the_release_does():
    """It stays where it was never closed."""
    thought = [*VOCABULARY.encode_markup("<think>"), *VOCABULARY.encode_text("hm"), *END]
    closed = [*VOCABULARY.encode_text("hm"), *VOCABULARY.encode_markup("</think>"), *VOCABULARY.encode_text("\n a \n")]
    for agent in ("memagent", "rule_recall"):
        run = read([thought, closed, "", "x"], agent=agent, mem_carry="reply")
        assert run.memories == ["<think>hm", "a", ""]
    assert read([thought, closed, "", "x"]).memories == ["", "\n a \n", ""]


def test_memagent_shows_a_memory_that_was_written_empty_as_nothing_where_the_release_does():
    for carry, shown in (("reply", ""), ("memory", "Nothing yet.")):
        run = read(["", "a", "", "x"], mem_carry=carry)
        assert memories_shown(run) == ["Nothing yet.", shown, "a", shown]
