"""The longest turn is a bound of every turn, and is reached."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents import AGENTS, longest_turn
from mem_agent.checkpoints.hf_model import load_vocabulary, with_engine_length
from mem_agent.config import Config, ConfigError
from mem_agent.system.cli import PACK, load_recipe
from mem_agent.tests.helpers.fake_host import make_model
from mem_agent.tests.helpers.scripted import QUESTION, VOCABULARY, read

SIZES = {"mem_chunk_tokens": 300, "mem_max_final": 40, "mem_max_question": 50}


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


@pytest.mark.parametrize("agent,args", [("memagent", ""), ("memagent", "carry=reply"), ("gated", ""),
                                        ("parallel", "width=4")])
def test_a_turn_that_long_happens(agent, args):
    """Under ``parallel``: a first round that is merged, and a second one beside the merged memory."""
    assert max(turns([letter * 32 for letter in "xyzwv"], 8, agent, args)) == bound(agent, args)


# --- the engine's length --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
def test_an_engine_has_room_for_the_longest_turn_within_the_models_positions(agent, tmp_path):
    config = Config(**SIZES, agent=agent)
    longest = longest_turn(config, VOCABULARY)
    settled = with_engine_length(config, make_model(tmp_path / "far", "qwen3-4b"), VOCABULARY).engine_max_len
    assert longest <= settled < longest + 64
    near = make_model(tmp_path / "near", "qwen3-4b", max_position_embeddings=longest)
    assert with_engine_length(config, near, VOCABULARY).engine_max_len == longest
    for length in (longest + 1, longest - 1):
        with pytest.raises(ConfigError, match="ENGINE_MAX_LEN"):
            with_engine_length(config.replace(engine_max_len=length), near, VOCABULARY)


@pytest.mark.parametrize(("recipe", "agent"), [("pocket", "memagent"), ("pocket", "gated"), ("pocket", "parallel"),
                                               ("two-hop", "rememr1"), ("two-hop-memagent", "memagent")])
def test_the_small_recipes_have_room_to_spare(recipe, agent):
    """Their engines' 256 tokens are in the published figures' fingerprints."""
    config = Config.from_env({"AGENT": agent, **load_recipe(str(PACK / "recipes" / f"{recipe}.env"))})
    folder = Path(config.hf_ckpt)
    assert with_engine_length(config, folder, load_vocabulary(folder)).engine_max_len == 256
