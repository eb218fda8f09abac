"""The tasks: honest documents and histories, rows as the agents build them, shipped weights that fit their files."""

import hashlib
import itertools
import json

import pytest
from transformers import AutoTokenizer

from mem_agent.agents import build_agent
from mem_agent.agents.documents import Chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.prompts import load_prompts
from mem_agent.agents.records import Generation, StopReason
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.data.document_store import DocumentStore, store_folder
from mem_agent.data.training_file import DataSource
from mem_agent.evaluation.questions import load_questions
from mem_agent.hooks.reader import question_of
from mem_agent.pocket import warmup
from mem_agent.pocket.prepare import EVAL_SEED, FIRST_TRAIN_SEED, LENGTHS, prepare
from mem_agent.pocket.sifter import histories, stored
from mem_agent.pocket.task import make_examples
from mem_agent.pocket.warmup import FOLDER, STARTS, rows, rows_of

TRAIN_FILES = {"look-up": "86ad9d2ddf969d1e", "two-hop": "5a1116c3fa02f9da", "sifter": "2729f8268af34b0f"}
"""The beginning of SHA-256 of ``train.jsonl`` of seed 1: published figures are of these documents."""
STREAMS = {
    ("look-up", False): "ef8dfd1e4644acb4", ("look-up", True): "d4587a7e6d6375a4",
    ("two-hop", False): "0be3ed4825338926", ("two-hop", True): "e41a8cb1ccf8770f",
    ("sifter", False): "024d9a96b7ccaac4", ("sifter", True): "845a0bdd5d5b0e13",
}
"""And of the first rows that the shipped weights were made of."""


@pytest.fixture(scope="module")
def tokenizers():
    return {name: AutoTokenizer.from_pretrained(FOLDER / start) for name, start in STARTS.items()}


@pytest.mark.parametrize("name", TRAIN_FILES)
def test_files_are_those_of_published_figures_and_evaluation_is_never_trained_on(name, tmp_path):
    prepare(tmp_path, 1, name)
    assert hashlib.sha256((tmp_path / "train.jsonl").read_bytes()).hexdigest()[:16] == TRAIN_FILES[name]
    source = DataSource(tmp_path / "train.jsonl", 1)
    read = [source.row(number) for number in range(len(source))]
    trained = {(row.metadata.get("context", ""), question_of(row)) for row in read}
    for length in LENGTHS[name]:
        held_out = {(entry.context, entry.question.text) for entry in load_questions(tmp_path, length)}
        assert held_out and not trained & held_out


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", STARTS)
def test_rows_are_those_that_the_shipped_weights_were_made_of(name, mixed, tokenizers):
    made = [(list(prompt), list(reply)) for prompt, reply in
            itertools.islice(rows_of(name, tokenizers[name], 1, mixed), 300)]
    assert hashlib.sha256(json.dumps(made).encode()).hexdigest()[:16] == STREAMS[name, mixed]


def test_a_start_is_made_in_two_stages(tmp_path, monkeypatch):
    monkeypatch.setattr(warmup, "MIXED_STEPS", 11)
    monkeypatch.setattr(warmup, "ABILITY_STEPS", {"sifter": (1, 1e-3)})
    monkeypatch.setattr("sys.argv", ["warmup", "--output", str(tmp_path / "start"), "--task", "sifter"])
    assert warmup.main() == 0
    made = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("start-ability", "start")]
    assert made[0] != made[1] and len(made[1]) == (FOLDER / "sifter_start" / "model.safetensors").stat().st_size


NONE = {"memory": "none", "recalled": "none"}


@pytest.mark.parametrize("name,agent,turn,shown", [
    ("look-up", "memagent", "memory", NONE), ("look-up", "gated", "gated", NONE),
    ("look-up", "parallel", "merge", NONE | {"notes": "metal gold\n\ncity Rome"}),
    ("two-hop", "memagent", "memory", NONE), ("two-hop", "rememr1", "revisit", NONE), ("sifter", "chat", "rank", {}),
])
def test_rows_are_the_prompts_that_the_agents_build(name, agent, turn, shown, tokenizers):
    """Or the ability learned would be another one."""
    vocabulary, example = Vocabulary(tokenizers[name]), next(make_examples(1, 1))
    encode = vocabulary.encode_text
    wording = {"look-up": "start/mem_agent_prompts.yaml", "two-hop": "two_hop.yaml"}.get(name)
    path = str(FOLDER / wording) if wording else ""
    reader = build_agent(Config(agent=agent, mem_max_memory=8, mem_prompts=path), vocabulary, {})
    state = reader.start(Reading(encode(example.question), Chunks(tuple(map(encode, example.sections)), 0)))
    if turn == "merge":
        notes = [encode(text) for text in ("metal gold", "none", "city Rome")]
        state = reader.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.STOP) for ids in notes])
    slots = shown | {"problem": example.question, "section": example.sections[0]}
    prompts = load_prompts("section_first", path) if path else {"rank": "{problem}"}
    ((prompt, _),) = rows(tokenizers[name], prompts, iter([(turn, "", slots)]))
    assert reader.requests(state)[0].prompt_ids == prompt


# --- the sifter -----------------------------------------------------------------------------------------------------


def test_histories_have_what_the_reward_and_the_measure_need(tmp_path):
    prepare(tmp_path, 1, "sifter")
    documents = DocumentStore(store_folder(tmp_path / "train.jsonl"))
    with (tmp_path / "train.jsonl").open() as lines:
        rows = [json.loads(line) for line in lines]
    drawn = zip(rows, histories(FIRST_TRAIN_SEED + 1, 4096), strict=True)
    for row, history in itertools.islice(drawn, 0, None, 256):
        document = json.loads(documents.get(row["metadata"]["history_id"]))
        assert document == json.loads(stored(history))
        assert document["sessions"][history.gold][0]["content"].endswith(f" {history.answer}.")
    entries = json.loads((tmp_path / "eval_sifter.json").read_text())
    for entry, history in zip(entries, histories(EVAL_SEED, 200), strict=True):
        assert entry["input"] == history.prompt() and entry["metadata"]["gold"] == [history.gold]
