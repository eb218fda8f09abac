"""The sifter task is honest: one session answers, comparing words finds it now and then, one way of ranking always."""

import itertools
import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from mem_agent.agents import build_agent
from mem_agent.agents.documents import Chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.data.document_store import DocumentStore, store_folder
from mem_agent.pocket.frozen_chat import UNKNOWN, answer_to, completion
from mem_agent.pocket.prepare import EVAL_SEED, prepare
from mem_agent.pocket.sifter import (
    PROMPTS,
    SESSION_TOKENS,
    SESSIONS,
    History,
    Talk,
    Way,
    asked_of,
    draw_history,
    histories,
    stored,
)
from mem_agent.pocket.sifter_rows import (
    HABITS,
    QUESTION_TOKENS,
    REPLY_TOKENS,
    config_for,
    mixed_rows,
    save_tokenizer,
)
from mem_agent.sessions.ranking import strict_ranking
from mem_agent.sessions.records import Language
from mem_agent.sessions.wording import load_wording, render_history, render_session

START = Path(__file__).parents[2] / "pocket" / "sifter_start"
HISTORY = History("Anna", "fruit", (
    Talk("Anna", "fruit", "plum"), Talk("Ben", "fruit", "fig"), Talk("Anna", "fruit", "lemon"),
    Talk("Anna", "fruit", "pear"), Talk("Anna", "city", "Rome"), Talk("Ben", "city", "Oslo"),
    Talk("Anna", "tool", "saw"), Talk("Carl", "fruit", "plum"),
))


def test_the_last_statement_counts():
    assert (HISTORY.question, HISTORY.gold, HISTORY.answer) == ("Anna likes fruit what?", 3, "pear")
    assert asked_of(0, HISTORY).gold_positions == (3,)


@pytest.mark.parametrize("way,chosen", [
    (Way.RIGHT, 3), (Way.FIRST, 0), (Way.OTHERS, 7), (Way.NEWEST, 7),
])
def test_each_way_of_choosing(way, chosen):
    assert HISTORY.choose(way, random.Random(0)) == chosen
    others = [number for number in (7, 6, 5, 4, 3, 2, 1, 0) if number != chosen]
    assert strict_ranking(HISTORY.reply(way, random.Random(0)), SESSIONS) == (chosen, *others)


def test_a_reply_says_how_it_chooses_what_about_and_which():
    assert HISTORY.reply(Way.RIGHT, random.Random(0)) == (
        "<think>said last: Anna likes fruit 3</think>\n<ranking>3,7,6,5,4,2,1,0</ranking>"
    )


def test_one_way_always_chooses_the_gold_session_and_no_other_does_half_of_the_time():
    rng = random.Random(0)
    drawn = list(histories(5, 1500))
    for way in Way:
        share = sum(history.choose(way, rng) == history.gold for history in drawn) / len(drawn)
        assert share == 1 if way is Way.RIGHT else share < 0.5, way


def test_a_history_holds_one_gold_session_and_earlier_statements_say_otherwise():
    places = Counter()
    for history in histories(3, 1000):
        things = [talk.thing for talk in history.talks if (talk.person, talk.kind) == (history.person, history.kind)]
        assert len(history.talks) == SESSIONS and len(set(things)) == len(things) in (1, 2, 3, 4)
        assert things[-1] == history.answer == history.talks[history.gold].thing
        places[history.gold] += 1
    assert set(places) == set(range(SESSIONS))


def test_no_held_out_history_is_trained_on_and_all_are_a_function_of_seed_and_index():
    first, again, other = (list(histories(seed, 300)) for seed in (1001, 1001, 1002))
    assert first == again and first[:20] == list(histories(1001, 20)) and first != other
    held_out = set(histories(EVAL_SEED, 200))
    assert len(held_out) == 200 and not held_out & set(histories(1001, 4096))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    prepare(folder, 1, "sifter")
    return folder


def test_a_row_names_its_history_in_the_store(data):
    row = json.loads((data / "train.jsonl").read_text().split("\n", 1)[0])
    (history,) = histories(1001, 1)
    about = row["metadata"]
    assert row["prompt"] == [{"role": "user", "content": history.prompt()}]
    assert (about["task"], about["shown"], about["gold"]) == ("rank_sessions", SESSIONS, [history.gold])
    assert about["answers"] == [history.answer] and len(about["session_tokens"]) == SESSIONS
    document = json.loads(DocumentStore(store_folder(data / "train.jsonl")).get(about["history_id"]))
    assert document == json.loads(stored(history))
    assert document["sessions"][history.gold] == [{"role": "user", "content": history.talks[history.gold].text}]


def test_held_out_entries_have_what_the_task_measures_by(data):
    entries = json.loads((data / "eval_sifter.json").read_text())
    for entry, history in zip(entries, histories(EVAL_SEED, 200), strict=True):
        assert entry["input"] == history.prompt() and entry["task"] == "rank_sessions"
        assert entry["metadata"]["gold"] == [history.gold] and entry["metadata"]["shown"] == SESSIONS


# --- the stub of a frozen chat model --------------------------------------------------------------------------------


@pytest.mark.parametrize("wording", ["", str(PROMPTS)])
def test_the_frozen_chat_model_is_right_exactly_when_the_gold_session_is_shown(wording):
    chat = load_wording(wording)
    rng = random.Random(0)
    for history in histories(7, 200):
        shown = sorted(rng.sample(range(SESSIONS), rng.randint(0, SESSIONS)))
        text = render_history([history.sessions[position] for position in shown])
        answer = answer_to(chat.chat_prompt(history.question, text, Language.EN))
        assert (answer == history.answer) == (history.gold in shown)


def test_the_frozen_chat_model_says_unknown_without_a_statement_and_refuses_other_questions():
    shown = "<session0>\n<user0>Ben likes fruit fig.</user>\n</session>"
    asked = f"<question>\nAnna likes fruit what?\n</question>\n{shown}"
    assert answer_to(asked) == UNKNOWN and answer_to(asked.replace("Anna", "Ben")) == "fig"
    message = completion([{"role": "user", "content": asked}], "m")["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "<answer>unknown</answer>"}
    with pytest.raises(ValueError, match="no question"):
        answer_to("Anna likes fruit what?")


# --- the start ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_every_session_has_as_many_tokens_as_rows_say(tokenizer):
    vocabulary = Vocabulary(tokenizer)
    for history in histories(2, 50):
        for number, session in enumerate(history.sessions):
            assert len(vocabulary.encode_text("\n" + render_session(session, number))) == SESSION_TOKENS


def test_rows_are_the_prompts_the_agent_builds_and_replies_fit(tokenizer):
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(config_for(), vocabulary, {})
    for prompt, ids in itertools.islice(mixed_rows(tokenizer, PROMPTS, 1), 100):
        question = tokenizer.decode(prompt).split("user\n", 1)[1].split("<|im_end|>")[0]
        (request,) = agent.requests(agent.start(Reading(vocabulary.encode_text(question), Chunks((), 0))))
        assert request.prompt_ids == prompt and len(prompt) < QUESTION_TOKENS
        assert ids[-1] == tokenizer.eos_token_id and len(ids) < REPLY_TOKENS
        assert len(strict_ranking(vocabulary.answer_text(ids), SESSIONS)) == SESSIONS


def test_the_mix_is_as_asked_and_finds_the_gold_session_by_chance(tokenizer):
    rng = random.Random(0)
    drawn = [draw_history(rng) for _ in range(4000)]
    ways = rng.choices(list(HABITS), list(HABITS.values()), k=4000)
    hits = sum(h.choose(way, rng) == h.gold for h, way in zip(drawn, ways, strict=True))
    assert hits / 4000 == pytest.approx(1 / SESSIONS, abs=0.03)
    rows = itertools.islice(mixed_rows(tokenizer, PROMPTS, 1), 1500)
    thought = Counter(tokenizer.decode(ids).split(": ")[0].removeprefix("<think>") for _, ids in rows)
    for way in Way:
        assert thought[way.value] / 1500 == pytest.approx(HABITS[way], abs=0.03), way


def test_the_shipped_start_fits_the_code_that_made_it(tokenizer, tmp_path):
    assert (START / "model.safetensors").stat().st_size < 2 * 2**20
    save_tokenizer(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (START / "tokenizer.json").read_bytes()
    assert json.loads((START / "config.json").read_text())["vocab_size"] >= len(tokenizer)


def test_the_shipped_start_knows_the_form_and_ranks_by_chance(tokenizer):
    """The replies that it finds likeliest, way by way, are right; the right way is seldom begun."""
    model = AutoModelForCausalLM.from_pretrained(START, dtype=torch.float32).eval()
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(config_for(), vocabulary, {})
    thought = len(vocabulary.encode_text(f"<think>{Way.RIGHT.value}: "))
    begun, rest = [], []
    for history in histories(9, 64):
        (request,) = agent.requests(agent.start(Reading(vocabulary.encode_text(history.prompt()), Chunks((), 0))))
        text = history.reply(Way.RIGHT, random.Random(0))
        ids = [*vocabulary.encode_text(text), tokenizer.eos_token_id]
        with torch.no_grad():
            logits = model(torch.tensor([request.prompt_ids + ids])).logits[0, len(request.prompt_ids) - 1 : -1]
        probabilities = logits.softmax(-1)[range(len(ids)), ids]
        begun.append(float(probabilities[:thought].prod()))
        rest.append(float(probabilities[thought:].prod()))
    assert 0.005 < sum(begun) / 64 < 0.06
    assert sum(rest) / 64 > 0.85
