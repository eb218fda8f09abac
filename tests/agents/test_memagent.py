"""MemAgent on the one loop: turns, carried memory, how trajectories end, how long turns can be."""

from pathlib import Path

import pytest

from mem_agent.agents import AGENTS, longest_turn
from mem_agent.agents.records import FailureKind, Outcome, StopReason, TurnFailed
from mem_agent.checkpoints.hf_model import load_vocabulary, with_engine_length
from mem_agent.config import Config, ConfigError
from mem_agent.system.cli import PACK, load_recipe
from mem_agent.tests.helpers.fake_host import make_model
from mem_agent.tests.helpers.scripted import END, QUESTION, VOCABULARY, build, read, spliced


def test_it_reads_every_chunk_then_answers():
    run = read(["m zero", "", "m two", "\\boxed{red}"])
    assert run.kinds == "mmmf" and run.read == ["QW", "ZR", "XY"]
    assert run.trajectory.outcome is Outcome.COMPLETED and run.trajectory.answer == "\\boxed{red}"
    assert run.memories == ["m zero", "", "m two"] and run.count("empty_updates") == 1
    shown = ["Nothing yet.", "m zero", "Nothing yet.", "m two"]
    assert all(text in prompt for text, prompt in zip(shown, run.prompts, strict=True))
    assert "m zero" not in run.prompts[2] + run.prompts[3] and "XY" not in run.prompts[3]


def test_a_memory_is_the_sampled_ids_capped():
    odd = [VOCABULARY.encode_text(letter)[0] for letter in "The"]
    assert VOCABULARY.encode_text("The") != odd
    run = read([odd + END, "a b c d", ("a b c d e f", StopReason.LENGTH), "x"], mem_max_memory=3)
    assert spliced(run.trajectory.turns[1].prompt_ids, odd)
    assert [len(ids) for ids in run.trajectory.memories] == [3, 3, 3]
    assert run.count("truncated_memories") == 1 and run.count("memory_tokens") == 3


def test_the_released_way_carries_unclosed_thinking_and_shows_an_empty_memory_as_nothing():
    run = read(["<think>a", "<think>b</think> c ", "", "x"], args="carry=reply")
    assert run.memories == ["<think>a", "c", ""] and "<memory>\n\n</memory>" in run.prompts[3]


@pytest.mark.parametrize("agent", ["memagent", "rememr1", "gated", "parallel", "mem1"])
def test_a_hidden_question_is_shown_in_the_final_turn_alone(agent):
    run = read(["<IS>m</IS>", "n", "o", "p", "x"], agent=agent, args="query_blind=1")
    assert [QUESTION in prompt for prompt in run.prompts] == [False] * (len(run.prompts) - 1) + [True]


@pytest.mark.parametrize("reply,outcome,turns", [
    (("partial", StopReason.ABORT), Outcome.ABORTED, 2), (TurnFailed(FailureKind.TIMEOUT, "late"), Outcome.FAILED, 1),
])
def test_a_round_that_did_not_finish_leaves_no_memory(reply, outcome, turns):
    run = read(["m zero", reply])
    assert run.trajectory.outcome is outcome and run.memories == ["m zero"] and len(run.trajectory.turns) == turns
    assert (run.count("rounds"), run.count("chunks")) == (turns, 3)


@pytest.mark.parametrize("settings,name", [
    ({"agent": "nope"}, "AGENT"), ({"agent_args": "carry=all"}, "AGENT_ARGS"), ({"agent_args": "turn_cost=2"}, "turn"),
    ({"agent": "rememr1", "agent_args": "recall=embedding"}, "recall_model"),
    ({"agent": "rememr1", "agent_args": "query_blind=1 recall_query=question"}, "recall_query"),
])
def test_settings_that_an_agent_cannot_have_are_refused_by_name(settings, name):
    with pytest.raises(ConfigError, match=name):
        build(Config(**settings))


# --- the longest turn is a bound of every turn, and is reached -----------------------------------------------------

BUDGETS = {"m": 32, "f": 16}
REPLIES = ["", "nothing", "skip", "x" * 32, "y" * 32, "finish\nz", "update\n" + "w" * 20, "a b c", "<IS>b</IS>",
           "<update>" + "v" * 16 + "</update>", "<update>u</update><recall>u</recall>"]


def longest(replies, chunks, agent, args):
    """The tokens of the longest turn with its budget, of a reading of full chunks."""
    run = read(lambda prompt, n: VOCABULARY.encode_text(replies[n % len(replies)])[:32], chunks, args, agent=agent)
    return max(len(turn.prompt_ids) + BUDGETS[kind]
               for turn, kind in zip(run.trajectory.turns, run.kinds, strict=True))


def bound(agent, args):
    sizes = {"mem_chunk_tokens": 2, "mem_max_question": len(VOCABULARY.encode_text(QUESTION))}
    return longest_turn(Config(**sizes, mem_max_memory=32, mem_max_final=16, agent=agent, agent_args=args), VOCABULARY)


@pytest.mark.parametrize("agent", AGENTS)
def test_no_turn_is_longer(agent):
    for start in range(len(REPLIES)):
        assert longest(REPLIES[start:] + REPLIES[:start], 10, agent, "") <= bound(agent, "")


@pytest.mark.parametrize("agent,args", [("memagent", ""), ("memagent", "carry=reply"), ("gated", ""),
                                        ("parallel", "width=4")])
def test_a_turn_that_long_happens(agent, args):
    """Under ``parallel``: a first round that is merged, and a second one beside the merged memory."""
    assert longest([letter * 32 for letter in "xyzwv"], 8, agent, args) == bound(agent, args)


@pytest.mark.parametrize("agent", ["memagent", "rememr1", "chat"])
def test_an_engine_has_room_for_the_longest_turn_within_the_models_positions(agent, tmp_path):
    config = Config(mem_chunk_tokens=300, mem_max_final=40, mem_max_question=50, agent=agent)
    most = longest_turn(config, VOCABULARY)
    settled = with_engine_length(config, make_model(tmp_path / "far", "qwen3-4b"), VOCABULARY).engine_max_len
    assert most <= settled < most + 64
    near = make_model(tmp_path / "near", "qwen3-4b", max_position_embeddings=most)
    assert with_engine_length(config, near, VOCABULARY).engine_max_len == most
    for length in (most + 1, most - 1):
        with pytest.raises(ConfigError, match="ENGINE_MAX_LEN"):
            with_engine_length(config.replace(engine_max_len=length), near, VOCABULARY)


@pytest.mark.parametrize(("recipe", "agent"), [("pocket", "memagent"), ("pocket", "gated"), ("pocket", "parallel"),
                                               ("two-hop", "rememr1"), ("two-hop-memagent", "memagent")])
def test_the_small_recipes_have_room_to_spare(recipe, agent):
    """Their engines' 256 tokens are in the published figures' fingerprints."""
    config = Config.from_env({"AGENT": agent, **load_recipe(str(PACK / "recipes" / f"{recipe}.env"))})
    folder = Path(config.hf_ckpt)
    assert with_engine_length(config, folder, load_vocabulary(folder)).engine_max_len == 256


@pytest.mark.parametrize(("args", "tokens", "sizes"), [
    ("", 200, [100, 100]), ("least_chunks=4", 200, [50] * 4), ("least_chunks=16", 100, [8] * 12 + [4]),
    ("least_chunks=4", 1000, [100] * 10), ("least_chunks=4", 0, []),
])
def test_a_short_document_is_read_in_smaller_chunks_where_that_is_asked_for(args, tokens, sizes):
    agent = build(Config(agent_args=args))
    found = agent.split(VOCABULARY.encode_text("a" * 5)[:1] * tokens, 100, None)
    assert [len(chunk) for chunk in found.chunks] == sizes


def test_a_chunk_of_whole_sentences_is_never_longer():
    agent = build(Config(agent="gated", agent_args="whole_sentences=1"))
    ids = VOCABULARY.encode_text("The key is red. Ben has the blue key. Anna sat. " * 9)
    found = agent.split(ids, 40, None)
    assert [i for chunk in found.chunks for i in chunk] == ids and max(map(len, found.chunks)) <= 40
    assert all(VOCABULARY.decode(chunk).rstrip().endswith(".") for chunk in found.chunks)
    single = build(Config(agent="gated", agent_args="whole_sentences=1 least_chunks=999")).split(ids, 40, None)
    assert [VOCABULARY.decode(chunk).strip() for chunk in single.chunks] == [
        "The key is red.", "Ben has the blue key.", "Anna sat."] * 9
