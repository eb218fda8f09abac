"""MemAgent on the one loop: turns, carried memory, abort, failure, counts."""

import asyncio
import threading

import pytest

from mem_agent.agents import build_agent
from mem_agent.agents.chunking import split_chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.loop import run_trajectory
from mem_agent.agents.records import FailureKind, Generation, Outcome, StopReason, TurnFailed, TurnKind, TurnRequest
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config, ConfigError
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

VOCABULARY = Vocabulary(make_tokenizer())
END = VOCABULARY.encode_markup("<|im_end|>")


def run(replies, document_tokens=6, chunk=2, most=99, abort_at=None, max_memory=8, **settings):
    """``replies[i]`` is a text, (text, stop) or an exception; returns the trajectory and the prompts' texts."""
    agent = build_agent(Config(mem_max_memory=max_memory, mem_max_final=16, **settings), VOCABULARY, {})
    document = VOCABULARY.encode_text("QWZRXYUJOPGS")[:document_tokens]
    asked, prompts = [], []

    async def sample(request, number):
        reply = replies[number]
        prompts.append(VOCABULARY.tokenizer.decode(request.prompt_ids))
        if isinstance(reply, Exception):
            raise reply
        text, stop = reply if isinstance(reply, tuple) else (reply, StopReason.STOP)
        ids = VOCABULARY.encode_text(text) + (END if stop is StopReason.STOP else [])
        return Generation(ids, [-0.5] * len(ids), stop, weight_version="v1", cached_tokens=1)

    def is_aborted():
        asked.append(None)
        return abort_at is not None and len(asked) > abort_at

    reading = Reading(VOCABULARY.encode_text("who?"), split_chunks(document, chunk, most))
    return asyncio.run(run_trajectory(agent, reading, sample, is_aborted)), prompts


def test_reads_every_chunk_then_answers():
    trajectory, prompts = run(["m zero", "m one", "m two", "\\boxed{red}"])
    assert [t.kind for t in trajectory.turns] == [TurnKind.MEMORY] * 3 + [TurnKind.FINAL]
    assert trajectory.outcome is Outcome.COMPLETED and trajectory.answer == "\\boxed{red}"
    assert "Nothing yet." in prompts[0] and "m zero" in prompts[1] and "m two" in prompts[3]
    assert "QW" in prompts[0] and "XY" in prompts[2] and "XY" not in prompts[3]
    assert "m one" not in prompts[3]
    assert trajectory.counts["turns"] == 4 and trajectory.counts["cached_tokens"] == 4


def test_the_trained_tokens_are_the_tokens_fed_back():
    trajectory, _ = run(["m zero", "m one", "m two", "x"])
    carried = trajectory.turns[0].response_ids[:-1]
    prompt = trajectory.turns[1].prompt_ids
    assert any(prompt[i : i + len(carried)] == carried for i in range(len(prompt)))


def test_end_of_turn_never_enters_a_memory():
    trajectory, prompts = run(["m<|im_end|>", "", "", "x"], max_memory=20)
    assert prompts[1].count("<|im_end|>") == 2  # the literal from the reply, as text, and the user turn's own end
    assert trajectory.turns[1].prompt_ids.count(END[0]) == 1


def test_empty_update_overwrites_and_is_counted():
    trajectory, prompts = run(["m zero", "", "", "x"])
    assert trajectory.counts["empty_updates"] == 2
    assert "Nothing yet." in prompts[2] and "m zero" not in prompts[2]


def test_memory_is_hard_capped_and_cuts_are_counted():
    trajectory, _ = run([("a b c d e f g h i j", StopReason.LENGTH), "", "", "x"], max_memory=3)
    assert trajectory.counts["truncated_memories"] == 1
    first, second = trajectory.turns[0], trajectory.turns[1]
    overhead = len(first.prompt_ids) - len(VOCABULARY.encode_text("Nothing yet."))
    assert len(second.prompt_ids) == overhead + 3


def test_long_documents_lose_their_centre_and_say_so():
    trajectory, prompts = run(["", "", "x"], document_tokens=12, chunk=2, most=2)
    assert trajectory.counts["dropped_tokens"] == 8
    assert "QW" in prompts[0] and "GS" in prompts[1]


def test_host_abort_stops_before_the_next_turn():
    trajectory, prompts = run(["m", "m", "m", "x"], abort_at=2)
    assert trajectory.outcome is Outcome.ABORTED and len(prompts) == 2


def test_aborted_generation_is_never_a_memory():
    trajectory, prompts = run(["m", ("partial", StopReason.ABORT), "m", "x"])
    assert trajectory.outcome is Outcome.ABORTED and len(prompts) == 2


def test_failed_turn_ends_the_trajectory_with_its_kind():
    trajectory, _ = run(["m", TurnFailed(FailureKind.TIMEOUT, "late")])
    assert trajectory.outcome is Outcome.FAILED and trajectory.failure.kind is FailureKind.TIMEOUT
    assert len(trajectory.turns) == 1


def test_other_exceptions_propagate():
    with pytest.raises(ZeroDivisionError):
        run(["m", ZeroDivisionError()])


def test_cut_final_answer_is_truncated_and_keeps_its_text():
    trajectory, _ = run(["m", "m", "m", ("\\boxed{re", StopReason.LENGTH)])
    assert trajectory.outcome is Outcome.TRUNCATED and trajectory.answer == "\\boxed{re"


def texts(memories):
    return [VOCABULARY.decode(ids) for ids in memories]


def test_the_memory_after_each_round_is_what_the_next_prompt_shows():
    trajectory, prompts = run(["m zero", "", "m two", "x"])
    assert texts(trajectory.memories) == ["m zero", "", "m two"]
    for memory, prompt in zip(texts(trajectory.memories), prompts[1:], strict=True):
        assert (memory or "Nothing yet.") in prompt
    assert len(trajectory.memories[-1]) == trajectory.counts["memory_tokens"]


@pytest.mark.parametrize(
    "ending", [("partial", StopReason.ABORT), TurnFailed(FailureKind.TIMEOUT, "late")], ids=["aborted", "failed"]
)
def test_a_round_that_did_not_finish_leaves_no_memory(ending):
    trajectory, _ = run(["m zero", ending])
    assert texts(trajectory.memories) == ["m zero"]


class SideBySide:
    """Two chunks read side by side, then one alone, then the answer; the memory is the round's number."""

    slow = False
    kinds = ((TurnKind.MEMORY, TurnKind.MEMORY), (TurnKind.MEMORY,), (TurnKind.FINAL,), ())

    def start(self, reading):
        return 0

    def requests(self, state):
        return tuple(TurnRequest(kind, [1], 4) for kind in self.kinds[state])

    def advance(self, state, generations):
        assert len(generations) == len(self.kinds[state])
        return state + 1

    def memory(self, state):
        return [state]

    def recalled(self, state):
        return []

    def answer(self, state):
        return "x"

    def counts(self, state):
        return {}


class Slow(SideBySide):
    slow = True

    def advance(self, state, generations):
        assert threading.current_thread() is not threading.main_thread()
        return super().advance(state, generations)


def test_an_agent_that_computes_long_does_so_in_a_thread():
    async def sample(request, number):
        return Generation([number], [-0.5], StopReason.STOP)

    trajectory = asyncio.run(run_trajectory(Slow(), Reading([1], split_chunks([1, 2, 3], 1, 9)), sample))
    assert len(trajectory.turns) == 4


def test_turns_side_by_side_make_one_memory():
    async def sample(request, number):
        return Generation([number], [-0.5], StopReason.STOP)

    reading = Reading([1], split_chunks([1, 2, 3], 1, 9))
    trajectory = asyncio.run(run_trajectory(SideBySide(), reading, sample))
    assert len(trajectory.turns) == 4 and trajectory.memories == ((1,), (2,))
    assert (trajectory.counts["turns"], trajectory.counts["rounds"]) == (4, 3)


def test_a_hidden_question_is_shown_in_the_final_turn_alone():
    _, prompts = run(["m", "m", "m", "x"], mem_query_blind=True)
    assert ["who?" in prompt for prompt in prompts] == [False, False, False, True]


def test_unknown_agent_lists_the_known():
    with pytest.raises(ConfigError, match="AGENT='nope': allowed: memagent"):
        build_agent(Config(agent="nope"), VOCABULARY, {})


def test_who_watches_is_told_of_every_round_after_it():
    agent = build_agent(Config(mem_max_memory=8, mem_max_final=16), VOCABULARY, {})
    seen = []

    async def sample(request, number):
        return Generation(VOCABULARY.encode_text(f"m{number}") + END, [-0.5] * (len(VOCABULARY.encode_text("m0")) + 1),
                          StopReason.STOP)

    def watch(turns, state):
        seen.append(([turn.kind for turn in turns], VOCABULARY.decode(agent.memory(state))))

    reading = Reading(VOCABULARY.encode_text("who?"), split_chunks(VOCABULARY.encode_text("QWZR"), 2, 99))
    asyncio.run(run_trajectory(agent, reading, sample, watch=watch))
    memory, final = [TurnKind.MEMORY], [TurnKind.FINAL]
    assert seen == [(memory, "m0"), (memory, "m1"), (final, "m1")]
