"""The longest turn is a bound of every turn, is reached, and costs neither torch nor a model to find."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents import AGENTS
from mem_agent.agents.longest_turn import longest_turn, shortening
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.checkpoints.hf_model import load_vocabulary, with_engine_length, with_serving_length
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
@pytest.mark.parametrize("settings,memories", [
    ({"agent": "memagent"}, 2), ({"agent": "rememr1"}, 3), ({"agent": "gated"}, 2),
    ({"agent": "gated", "mem_query_blind": True}, 2), ({"agent": "parallel", "mem_parallel": 1}, 2),
    ({"agent": "parallel", "mem_parallel": 3}, 5), ({"agent": "parallel", "mem_parallel": 16}, 18),
    ({"agent": "parallel", "mem_parallel": 16, "mem_max_chunks": 4, "eval_max_chunks": 4}, 6),
    ({"agent": "rule_recall"}, 3), ({"agent": "memagent", "mem_carry": "reply"}, 2),
    ({"agent": "rememr1", "mem_carry": "reply", "mem_recall": "tfidf_tokens"}, 3),
])
def test_it_has_every_memory_at_its_longest(settings, memories, vocabulary):
    """``memories`` stand in it: the old one, a recalled one, the new one, in a merge those of the whole round."""
    short, long = (longest_turn(Config(**SIZES, **settings, mem_max_memory=n), vocabulary) for n in (200, 400))
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
REPLIES = ["", "nothing", "skip", "x" * 32, "y" * 32, "finish\nz", "update\n" + "w" * 20, "a b c",
           "<update>" + "v" * 16 + "</update>", "<update>u</update><recall>u</recall>"]


def turns(replies, chunks, **settings):
    """The tokens of every turn with its budget, of a reading of full chunks."""
    run = read(lambda prompt, n: VOCABULARY.encode_text(replies[n % len(replies)])[:32], chunks, **settings)
    lengths = [len(turn.prompt_ids) for turn in run.trajectory.turns]
    return [length + BUDGETS[kind] for length, kind in zip(lengths, run.kinds, strict=True)]


def bound(**settings):
    sizes = {"mem_chunk_tokens": 2, "mem_max_question": len(VOCABULARY.encode_text(QUESTION))}
    return longest_turn(Config(**sizes, mem_max_memory=32, mem_max_final=16, **settings), VOCABULARY)


@given(st.sampled_from(sorted(AGENTS)), st.lists(st.sampled_from(REPLIES), min_size=1, max_size=12),
       st.integers(1, 10), st.integers(1, 6), st.booleans())
@settings(max_examples=80)
def test_no_turn_is_longer(agent, replies, chunks, width, blind):
    chosen = {"agent": agent, "mem_parallel": width, "mem_query_blind": blind and agent != "rule_recall"}
    assert max(turns(replies, chunks, **chosen)) <= bound(**chosen)


@pytest.mark.parametrize("agent", ["memagent", "gated", "parallel"])
def test_a_turn_that_long_happens(agent):
    # Under `parallel`: a first round that is merged, and a second one beside the merged memory.
    letters = ["x" * 32, "y" * 32, "z" * 32, "w" * 32, "v" * 32]
    assert all(len(VOCABULARY.encode_text(text)) == 32 for text in letters)
    assert max(turns(letters, 8, agent=agent, mem_parallel=4)) == bound(agent=agent, mem_parallel=4)


def test_what_shortens_it_is_named_by_its_effect():
    sizes = {"mem_chunk_tokens": 100, "mem_max_memory": 50, "mem_max_question": 10, "mem_max_final": 8}
    plain = shortening(Config(**sizes), VOCABULARY)
    assert plain == ["MEM_CHUNK_TOKENS=100", "MEM_MAX_MEMORY=50", "MEM_MAX_QUESTION=10"]
    merging = shortening(Config(**sizes, agent="parallel", mem_parallel=8), VOCABULARY)
    assert merging == ["MEM_MAX_MEMORY=50", "MEM_PARALLEL=8", "MEM_MAX_QUESTION=10"]
    answering = shortening(Config(**sizes | {"mem_max_final": 900}), VOCABULARY)
    assert answering == ["MEM_MAX_FINAL=900", "MEM_MAX_MEMORY=50", "MEM_MAX_QUESTION=10"]


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
    with pytest.raises(ConfigError, match=rf"ENGINE_MAX_LEN={longest + 1}: the model in .* has {longest} positions"):
        settle(folder, engine_max_len=longest + 1)
    with pytest.raises(ConfigError) as error:
        settle(folder, engine_max_len=longest - 1)
    assert str(error.value) == (
        f"the longest turn of AGENT=memagent has {longest} tokens with its reply, the engine holds {longest - 1} "
        "(ENGINE_MAX_LEN); lower one of MEM_MAX_MEMORY=1024, MEM_CHUNK_TOKENS=300, MEM_MAX_QUESTION=50, or raise "
        "ENGINE_MAX_LEN"
    )


@pytest.mark.parametrize("mode,own,length", [
    ("direct", 0, 5000), ("direct", 40, 40), ("rag", 60, 60), ("rag", 0, 5000),
])
def test_one_prompt_fits_any_engine(mode, own, length, tmp_path):
    """In the last case the agent's longest turn, which nobody will take, has more than the 5000 positions."""
    folder = make_model(tmp_path, "qwen3-4b", max_position_embeddings=5000)
    config = Config(eval_mode=mode, engine_max_len=own, mem_chunk_tokens=9000)
    assert with_serving_length(config, folder, VOCABULARY).engine_max_len == length
    with pytest.raises(ConfigError, match="has 5000 positions"):
        with_serving_length(Config(eval_mode=mode, engine_max_len=5001), folder, VOCABULARY)


# --- what it does without -------------------------------------------------------------------------------------------


def test_it_needs_no_torch(tmp_path):
    """Nor the embedding model, of which it only wants to know that there is one."""
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from mem_agent.agents import AGENTS\n"
        "from mem_agent.agents.longest_turn import longest_turn\n"
        "from mem_agent.config import Config\n"
        "from mem_agent.checkpoints.hf_model import load_vocabulary\n"
        "vocabulary = load_vocabulary(sys.argv[1])\n"
        "sizes = {'mem_recall': 'embedding', 'mem_recall_model': sys.argv[1]}\n"
        "print(*(longest_turn(Config(agent=agent, **sizes), vocabulary) > 1000 for agent in AGENTS))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.split() == ["True"] * len(AGENTS), done.stderr


@pytest.mark.parametrize(("recipe", "agent"), [
    ("pocket", "memagent"), ("pocket", "gated"), ("pocket", "parallel"), ("two-hop", "rememr1"),
    ("two-hop-memagent", "memagent"),
])
def test_the_small_recipes_have_room_to_spare(recipe, agent):
    """Their engines' 256 tokens are in the published figures' fingerprints."""
    config = Config.from_env({"AGENT": agent, **load_recipe(str(PACK / "recipes" / f"{recipe}.env"))})
    folder = Path(config.hf_ckpt)
    assert with_engine_length(config, folder, load_vocabulary(folder)).engine_max_len == 256
