"""The sifter task is honest: one session answers, comparing words finds it now and then, one way of ranking always."""

import hashlib
import json
import random
from itertools import islice

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mem_agent.agents import build_agent
from mem_agent.agents.documents import Chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.data.document_store import DocumentStore, store_folder
from mem_agent.pocket.prepare import EVAL_SEED, FIRST_TRAIN_SEED, prepare
from mem_agent.pocket.sifter import Way, histories, stored
from mem_agent.pocket.warmup import FOLDER

START = FOLDER / "sifter_start"
CHAT = Config(agent="chat", task="qa", mem_max_question=64, mem_max_final=24)
"""As recipes/sifter.env."""


def test_files_are_those_of_published_figures_and_have_what_the_reward_and_the_measure_need(tmp_path):
    prepare(tmp_path, 1, "sifter")
    train, documents = tmp_path / "train.jsonl", DocumentStore(store_folder(tmp_path / "train.jsonl"))
    assert hashlib.sha256(train.read_bytes()).hexdigest()[:16] == "2729f8268af34b0f"
    with train.open() as lines:
        rows = [json.loads(line) for line in lines]
    for row, history in islice(zip(rows, histories(FIRST_TRAIN_SEED + 1, 4096), strict=True), 0, None, 256):
        document = json.loads(documents.get(row["metadata"]["history_id"]))
        assert document == json.loads(stored(history))
        assert document["sessions"][history.gold][0]["content"].endswith(f" {history.answer}.")
    entries = json.loads((tmp_path / "eval_sifter.json").read_text())
    assert not {entry["input"] for entry in entries} & {row["prompt"][0]["content"] for row in rows}
    for entry, history in zip(entries, histories(EVAL_SEED, 200), strict=True):
        assert entry["input"] == history.prompt() and entry["metadata"]["gold"] == [history.gold]


# --- the start ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(START)


def test_the_shipped_start_knows_the_form_and_ranks_by_chance(tokenizer):
    """The replies that it finds likeliest, way by way, are right; the right way is seldom begun."""
    model = AutoModelForCausalLM.from_pretrained(START, dtype=torch.float32).eval()
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(CHAT, vocabulary, {})
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
