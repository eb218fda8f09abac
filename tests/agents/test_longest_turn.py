"""The longest turn is a bound of every turn, and is reached."""

import copy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents import AGENTS, longest_turn
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.checkpoints.hf_model import load_vocabulary, with_engine_length
from mem_agent.config import Config, ConfigError
from mem_agent.system.recipe import PACK, load_recipe
from mem_agent.tests.helpers.fake_host import make_model
from mem_agent.tests.helpers.scripted import QUESTION, VOCABULARY, read
from mem_agent.tests.helpers.tiny_tokenizer import CHATML, make_tokenizer

SIZES = {"mem_chunk_tokens": 300, "mem_max_final": 40, "mem_max_question": 50}


def thinking_aloud():
    """A model whose template opens its thinking."""
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.chat_template = CHATML.replace("<think>\n\n</think>\n\n", "<think>\n")
    return Vocabulary(tokenizer)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, thinking_aloud()], ids=["silent", "thinking"])
@pytest.mark.parametrize("agent,args,memories", [
    ("memagent", "", 2), ("memagent", "carry=reply", 2), ("rememr1", "", 3), ("gated", "", 2), ("mem1", "", 2),
    ("rememr1", "carry=reply recall=tfidf_tokens", 3), ("gated", "query_blind=1", 2), ("parallel", "width=1", 2),
    ("parallel", "width=3", 5), ("parallel", "width=16", 18),
])
def test_it_has_every_memory_at_its_longest(agent, args, memories, vocabulary):
    """``memories`` stand in it: the old one, a recalled one, the new one, in a merge those of the whole round."""
    short, long = (longest_turn(Config(**SIZES, agent=agent, agent_args=args, mem_max_memory=n), vocabulary)
                   for n in (200, 400))
    assert long - short == memories * 200


MARKS = "empty_memory: 'there is not a single word in the memory'\nno_recall: 'there was nothing to recall, nothing'\n"


@pytest.mark.parametrize("agent,shown", [("memagent", 1), ("rememr1", 2)])
def test_it_has_a_marker_that_is_longer_than_a_memory(agent, shown, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(MARKS)
    plain, marked = (Config(**SIZES, agent=agent, mem_max_memory=n, mem_prompts=str(path)) for n in (500, 2))
    marks = [line.split("'")[1] for line in MARKS.splitlines()][:shown]
    added = sum(len(VOCABULARY.encode_text(mark)) for mark in marks) + 2  # two of the reply
    assert longest_turn(marked, VOCABULARY) == longest_turn(plain, VOCABULARY) - 500 * (shown + 1) + added


BUDGETS = {"m": 32, "f": 16}
REPLIES = ["", "nothing", "skip", "x" * 32, "y" * 32, "finish\nz", "update\n" + "w" * 20, "a b c", "<IS>b</IS>",
           "<update>" + "v" * 16 + "</update>", "<update>u</update><recall>u</recall>"]


def turns(replies, chunks, agent, args):
    """The tokens of every turn with its budget, of a reading of full chunks."""
    run = read(lambda prompt, n: VOCABULARY.encode_text(replies[n % len(replies)])[:32], chunks, args, agent=agent)
    lengths = [len(turn.prompt_ids) for turn in run.trajectory.turns]
    return [length + BUDGETS[kind] for length, kind in zip(lengths, run.kinds, strict=True)]


def bound(agent, args):
    sizes = {"mem_chunk_tokens": 2, "mem_max_question": len(VOCABULARY.encode_text(QUESTION))}
    return longest_turn(Config(**sizes, mem_max_memory=32, mem_max_final=16, agent=agent, agent_args=args), VOCABULARY)


@given(st.sampled_from(sorted(AGENTS)), st.lists(st.sampled_from(REPLIES), min_size=1, max_size=12),
       st.integers(1, 10), st.integers(1, 6), st.booleans())
@settings(max_examples=60)
def test_no_turn_is_longer(agent, replies, chunks, width, blind):
    args = [f"width={width}"] * (agent == "parallel") + ["query_blind=1"] * (blind and agent not in ("chat", "single"))
    assert max(turns(replies, chunks, agent, " ".join(args))) <= bound(agent, " ".join(args))


@pytest.mark.parametrize("agent,args", [("memagent", ""), ("gated", ""), ("parallel", "width=4")])
def test_a_turn_that_long_happens(agent, args):
    """Under ``parallel``: a first round that is merged, and a second one beside the merged memory."""
    assert max(turns([letter * 32 for letter in "xyzwv"], 8, agent, args)) == bound(agent, args)


# --- the engine's length --------------------------------------------------------------------------------------------


def settle(folder, **settings):
    """The engine's length and the longest turn."""
    config = Config(**SIZES | settings)
    return with_engine_length(config, folder, VOCABULARY).engine_max_len, longest_turn(config, VOCABULARY)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_engine_is_given_room_for_the_longest_turn_and_little_more(agent, tmp_path):
    length, longest = settle(make_model(tmp_path, "qwen3-4b"), agent=agent)
    assert longest <= length < longest + 64 and length % 64 == 0


def test_positions_and_an_own_length_bound_the_engine(tmp_path):
    longest = longest_turn(Config(**SIZES), VOCABULARY)
    folder = make_model(tmp_path, "qwen3-4b", max_position_embeddings=longest)
    assert settle(folder)[0] == longest == settle(folder, engine_max_len=longest)[0]
    for length in (longest + 1, longest - 1):
        with pytest.raises(ConfigError, match="ENGINE_MAX_LEN"):
            settle(folder, engine_max_len=length)


@pytest.mark.parametrize("mode", ["direct", "rag"])
def test_one_prompt_is_cut_to_any_engine(mode, tmp_path):
    folder = make_model(tmp_path, "qwen3-4b", max_position_embeddings=5000)
    config = Config(eval_mode=mode, engine_max_len=100, mem_chunk_tokens=9000)
    assert with_engine_length(config, folder, VOCABULARY, config.eval_mode).engine_max_len == 100
    with pytest.raises(ConfigError, match="ENGINE_MAX_LEN"):
        with_engine_length(Config(engine_max_len=5001), folder, VOCABULARY, mode)


@pytest.mark.parametrize(("recipe", "agent"), [("pocket", "memagent"), ("pocket", "gated"), ("pocket", "parallel"),
                                               ("two-hop", "rememr1"), ("two-hop-memagent", "memagent")])
def test_the_small_recipes_have_room_to_spare(recipe, agent):
    """Their engines' 256 tokens are in the published figures' fingerprints."""
    config = Config.from_env({"AGENT": agent, **load_recipe(str(PACK / "recipes" / f"{recipe}.env"))})
    folder = Path(config.hf_ckpt)
    assert with_engine_length(config, folder, load_vocabulary(folder)).engine_max_len == 256
