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
from mem_agent.checkpoints import hf_model
from mem_agent.checkpoints.hf_model import model_positions, with_engine_length, with_serving_length
from mem_agent.config import Config, ConfigError
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


def test_a_model_with_too_few_positions_is_refused_with_what_to_lower(tmp_path):
    folder = make_model(tmp_path, "qwen3-4b", max_position_embeddings=2000)
    with pytest.raises(ConfigError, match=r"holds 2000 \(the positions of the model in .*\); lower one of ") as error:
        settle(folder, agent="parallel", mem_parallel=16)
    assert "MEM_PARALLEL=16" in str(error.value) and "raise" not in str(error.value)


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


@pytest.mark.parametrize("content,reason", [("[1]", "is not a JSON object"), ("{", "is not JSON")])
def test_a_configuration_that_is_none_is_one_line(content, reason, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=rf"{tmp_path}/config\.json {reason}"):
        model_positions(tmp_path)


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


def test_an_embedding_model_is_looked_for_without_its_weights(tmp_path, monkeypatch):
    config = Config(agent="rememr1", mem_recall="embedding", mem_recall_model="/nowhere")
    with pytest.raises(ConfigError, match="MEM_RECALL_MODEL='/nowhere': no such folder"):
        with_engine_length(config, tmp_path, VOCABULARY)
    asked = []

    def download(name, ignore_patterns):
        asked.append((name, ignore_patterns))
        return str(tmp_path)

    monkeypatch.setattr(hf_model, "snapshot_download", download)
    config = Config(agent="rememr1", mem_recall="embedding", mem_recall_model="some/model")
    hf_model.with_local_models(config, weights=False)
    assert [name for name, _ in asked] == ["some/model"] and "*.safetensors" in asked[0][1]


@pytest.mark.parametrize("recipe", ["pocket.env", "two-hop.env", "arithmetic.env"])
def test_the_small_recipes_have_room_to_spare(recipe):
    """Their engines' 256 tokens are in the published figures' fingerprints."""
    pack = Path(__file__).parents[2]
    code = f"source '{pack}/_common.sh'; load_recipe '{pack}/recipes/{recipe}'; env -0"
    agents = {"pocket.env": ("memagent", "gated", "parallel"), "two-hop.env": ("memagent", "rememr1")}
    for agent in agents.get(recipe, ("single",)):
        done = subprocess.run(["bash", "-c", code], env={"PATH": "/usr/bin:/bin", "AGENT": agent}, capture_output=True,
                              text=True, check=True)
        config = Config.from_env(dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line))
        folder = Path(config.hf_ckpt)
        assert with_engine_length(config, folder, hf_model.load_vocabulary(folder)).engine_max_len == 256
