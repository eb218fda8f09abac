"""Every agent's turns tell what they showed: which section, what was recalled, and whether that is all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.agents.chunking import split_chunks
from mem_agent.agents.memagent import MemAgent
from mem_agent.agents.prompts import SECTION
from mem_agent.agents.records import Section, TurnKind, TurnRequest
from mem_agent.agents.shown import sections_in
from mem_agent.tests.helpers.scripted import SECTIONS, VOCABULARY, read

UPDATE = "<update>{}</update><recall>{}</recall>"
CASES = {
    "memagent": (["a", "b", "c", "x"], {}, [0, 1, 2, None], ["", "", "", ""]),
    "gated": (["update\na", "skip", "finish", "x"], {"agent": "gated"}, [0, 1, 2, None], ["", "", "", ""]),
    "parallel": (["a", "b", "a b", "a b c", "x"], {"agent": "parallel", "mem_parallel": 2},
                 [0, 1, None, 2, None], [""] * 5),
    "rememr1": ([UPDATE.format("red key", ""), UPDATE.format("b", "red"), UPDATE.format("c", "nobody"), "x"],
                {"agent": "rememr1"}, [0, 1, 2, None], ["", "", "red key", ""]),
    "rule_recall": (["Who knows", "b", "c", "x"], {"agent": "rule_recall"},
                    [0, 1, 2, None], ["", "Who knows", "Who knows", "Who knows"]),
}


@pytest.mark.parametrize("replies,settings,sections,recalled", CASES.values(), ids=CASES)
def test_a_turn_tells_its_section_and_what_was_recalled(replies, settings, sections, recalled):
    run = read(replies, **settings)
    turns = run.trajectory.turns
    assert [turn.section and turn.section.number for turn in turns] == sections
    assert [VOCABULARY.decode(turn.recalled) for turn in turns] == recalled
    assert all(turn.told for turn in turns)
    for turn in turns:
        if turn.section:
            shown = VOCABULARY.decode(turn.prompt_ids[turn.section.start : turn.section.end])
            assert shown == SECTIONS[2 * turn.section.number :][:2]


def test_turns_of_one_round_have_its_number():
    run = read(["a", "b", "a b", "a b c", "x"], agent="parallel", mem_parallel=2)
    assert [turn.round for turn in run.trajectory.turns] == [0, 0, 1, 2, 3]


def test_a_turn_without_a_document_is_told_too_and_one_in_words_of_its_own_is_not():
    assert [(t.section, t.told) for t in read(["x"], 0, agent="single").trajectory.turns] == [(None, True)]
    assert [(t.section, t.told) for t in read(["x"], 0, agent="chat").trajectory.turns] == [(None, False)]


class Half(MemAgent):
    """Shows half of a section."""

    def _reading_turns(self, state):
        slots = self._slots(state) | {SECTION: state.reading.document.chunks[state.next_chunk][:1]}
        return (self._memory_turn.request(TurnKind.MEMORY, slots, 8),)


class Backwards(MemAgent):
    """An agent as a user derives it; it says nothing about what it shows."""

    def _reading_turns(self, state):
        chunks = state.reading.document.chunks
        slots = self._slots(state) | {SECTION: list(chunks[len(chunks) - 1 - state.next_chunk])}
        return (self._memory_turn.request(TurnKind.MEMORY, slots, 8),)


@pytest.mark.parametrize("agent,sections,told", [
    (Backwards, [2, 1, 0, None], [True] * 4), (Half, [None] * 4, [False] * 3 + [True])
], ids=lambda one: getattr(one, "__name__", ""))
def test_a_users_agent_need_not_say_what_it_shows(agent, sections, told, monkeypatch):
    monkeypatch.setattr("mem_agent.agents.agent_class", lambda config: agent)
    turns = read(["a", "b", "c", "x"]).trajectory.turns
    assert [turn.section and turn.section.number for turn in turns] == sections
    assert [turn.told for turn in turns] == told


@given(st.lists(st.integers(0, 2), max_size=12), st.integers(1, 4), st.integers(1, 3))
def test_chunks_are_found_again_in_the_order_of_reading_also_where_they_are_equal(ids, size, side_by_side):
    document = split_chunks(ids, size, None)
    found, read_until = [], 0
    for first in range(0, len(document.chunks), side_by_side):
        together = document.chunks[first : first + side_by_side]
        requests = [TurnRequest(TurnKind.MEMORY, [9, *one, 9], 1, 0, {SECTION: (1, 1 + len(one))}) for one in together]
        sections = sections_in(requests, document, read_until)
        read_until = max([read_until, *(one.number + 1 for one in sections)])
        found += sections
    assert found == [Section(n, 1, 1 + len(chunk)) for n, chunk in enumerate(document.chunks)]
