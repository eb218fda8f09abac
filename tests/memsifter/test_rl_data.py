"""A round's data: exact counts, gold always shown, no tested question trained, the same bytes from the same inputs."""

import os
import re
import sys
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from mem_agent import __main__
from mem_agent.data.document_store import DocumentStore, store_folder
from mem_agent.data.training_file import DataSource
from mem_agent.evaluation.questions import load_questions
from mem_agent.memsifter import rl_data
from mem_agent.memsifter.rl_data import main, read_recipe
from mem_agent.rewards.sessions import load_wording, render_session
from mem_agent.tests.helpers.histories import question, row, write
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    make_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def prepare(tmp_path, tokenizer, capsys):
    def run(recipe, *more, code=0, version="v1"):
        path = tmp_path / "recipe.yaml"
        path.write_text(recipe)
        found = main([
            "--recipe", str(path), "--data-dirs", str(tmp_path / "ranked"), str(tmp_path / "embed"), "--output-dir",
            str(tmp_path / "out"), "--version", version, "--tokenizer", tokenizer, *more])
        said = capsys.readouterr()
        assert found == code, said.err
        return tmp_path / "out" / "rl_train_data" / version if code == 0 else said.err

    return run


def rows_of(folder, name="train_*.parquet"):
    source = DataSource(folder / name, 1, shuffle=False)
    return [source.raw(number) for number in range(len(source))]


def ids(folder, name="train_*.parquet"):
    return [each["metadata"]["id"] for each in rows_of(folder, name)]


def told(folder):
    return orjson.loads((folder / "prepared.json").read_bytes())


def test_a_row_is_the_contracts(tmp_path, prepare):
    """Gold is session 1, the others by similarity are 3 and 2. Room for three sessions and a half."""
    size = session_size(question(7))
    write(tmp_path / "embed", "d", "train", [row(question(7), session_tokens=[size] * 4)])
    write(tmp_path / "embed", "d", "test", [row(question(8))])
    folder = prepare("train: {d: 5}\ntest: {d: 5}", "--max-prompt-tokens", str(room_for(question(7), 3.5)))
    (made,) = rows_of(folder)
    assert set(made) == {"prompt", "label", "metadata"} and made["label"] == ""
    data = made["metadata"]
    history_id = data.pop("history_id")
    assert data == {
        "task": "rank_sessions", "id": "d/q7", "dataset": "d", "shown": 3, "gold": [0],
        "question": "What is at place 7?", "question_date": "2023/06/01", "language": "en",
        "answers": ["thing 7"], "options": [], "session_tokens": [size] * 3,
    }
    ((role, text),) = [(message["role"], message["content"]) for message in made["prompt"]]
    assert role == "user" and re.findall(r"<session\d> <date>2023/05/(\d\d)", text) == ["02", "03", "04"]
    stored = orjson.loads(DocumentStore(store_folder(folder)).get(history_id))
    assert stored["ids"] == ["s1", "s2", "s3"] and stored["dates"] == ["2023/05/02", "2023/05/03", "2023/05/04"]
    assert stored["sessions"][0] == [{"role": "user", "content": "place 1 of 7 " * 3}]
    (entry,) = load_questions(folder, "d")
    assert entry.question.id == "d/q8" and entry.question.task == "rank_sessions" and entry.context == ""
    assert entry.question.text == rows_of(folder, "test.parquet")[0]["prompt"][0]["content"]
    assert entry.question.metadata["gold"] == [0] and entry.question.metadata["shown"] == 3


def session_size(asked):
    return len(make_tokenizer().encode(render_session(asked.sessions[0], 999) + "\n"))


def room_for(asked, sessions):
    """Tokens of a prompt that has room for so many sessions, all of one size."""
    empty = load_wording().ranking_prompt(asked.question, "", len(asked.sessions), asked.language, asked.date)
    return len(make_tokenizer().encode(empty)) + int(sessions * session_size(asked))


def test_the_last_ranking_chooses_and_else_chance_does(tmp_path, prepare):
    """Places 1, 2, 9 and none: distances from 0.2 are 0.8, 0.431, 0.101 and 0.2. One that names nothing counts as the
    order by similarity, in which the gold is ninth."""
    rankings = [[1, 0], [0, 1], [], [2]]
    ranked = [row(question(n, sessions=10), haystack_session_gen_rankings=r) for n, r in enumerate(rankings)]
    write(tmp_path / "ranked", "a", "train", ranked, "ranking")
    write(tmp_path / "embed", "b", "train", [row(question(n)) for n in range(100, 140)])
    folder = prepare("train: {a: 2, b: 12}")
    assert sorted(i for i in ids(folder) if i[0] == "a") == ["a/q2", "a/q3"]
    assert len([i for i in ids(folder) if i[0] == "b"]) == 12
    assert [d["sampling"] for d in told(folder)["datasets"]] == ["by the last ranking", "at random"]
    other = prepare("train: {a: 2, b: 12}", "--seed", "7", version="v2")
    assert set(ids(other)) != set(ids(folder)) and len(ids(other)) == 14


def test_what_cannot_be_trained_is_left_out_and_counted(tmp_path, prepare):
    bad = {**row(question(5)), "haystack_sessions": "no JSON"}
    rows = [
        row(question(0)), row(question(0)), row(question(1, gold=())), row(question(2, sessions=0, gold=())),
        row(question(3, words=200), session_tokens=[20, 3000, 20, 20]), bad, row(question(6), similarities=[0.5]),
    ]
    write(tmp_path / "embed", "d", "train", rows)
    folder = prepare("train: {d: 5}", "--max-prompt-tokens", "2000")
    assert ids(folder) == ["d/q0"]
    assert told(folder)["datasets"][0]["left_out"] == {
        "id repeated": 1, "no gold session": 1, "no sessions": 1, "gold sessions exceed the budget": 1, "bad row": 1,
        "no similarities": 1}


def test_no_tested_question_is_trained(tmp_path, prepare):
    """By id, and by text whatever its capitals and blanks, whether the test takes it or not."""
    same_text = row(question(50)) | {"question_id": "x", "question": "what is AT  place 1?"}
    write(tmp_path / "embed", "a", "test", [row(question(0)), row(question(1))])
    write(tmp_path / "embed", "a", "train", [row(question(0)) | {"question": "Another?"}, same_text, row(question(3))])
    folder = prepare("train: {a: 9}\ntest: {a: 1}")
    assert ids(folder) == ["a/q3"]
    assert [d["left_out"] for d in told(folder)["datasets"]] == [{}, {"in a test file": 2}]


def test_shards_are_even_shuffled_and_of_one_shape(tmp_path, prepare, monkeypatch):
    """11 rows by at most 4 are 3 shards of 3 or 4, where published code makes 3, 3, 3 and 2 (reference A15: 20)."""
    write(tmp_path / "embed", "a", "train", [row(question(n)) for n in range(11)])
    monkeypatch.setattr(rl_data, "ROWS_PER_FILE", 4)
    folder = prepare("train: {a: 11}")
    files = sorted(folder.glob("train_*.parquet"))
    assert sorted(pq.read_metadata(file).num_rows for file in files) == [3, 4, 4]
    assert len({pq.read_schema(file) for file in files}) == 1
    assert sorted(ids(folder)) == sorted(f"a/q{n}" for n in range(11)) != ids(folder)


def test_the_same_command_finds_its_files_and_makes_what_is_missing_to_the_byte(tmp_path, prepare, monkeypatch):
    monkeypatch.setattr(rl_data, "ROWS_PER_FILE", 3)
    write(tmp_path / "embed", "a", "train", [row(question(n)) for n in range(9)])
    write(tmp_path / "embed", "a", "test", [row(question(n)) for n in range(20, 25)])
    folder = prepare("train: {a: 6}\ntest: {a: 3}")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    written = (folder / "train_0.parquet").stat().st_mtime_ns
    prepare("train: {a: 6}\ntest: {a: 3}")
    assert (folder / "train_0.parquet").stat().st_mtime_ns == written
    for name in ("train_1.parquet", "eval_a.json", "prepared.json"):
        (folder / name).unlink()
    prepare("train: {a: 6}\ntest: {a: 3}")
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert "recipe" in prepare("train: {a: 5}", code=2)  # other inputs are refused
    assert "seed" in prepare("train: {a: 6}\ntest: {a: 3}", "--seed", "3", code=2)


def test_the_variables_of_the_original_readme_stand_in_for_options(tmp_path, tokenizer, monkeypatch):
    write(tmp_path / "embed", "a", "train", [row(question(n)) for n in range(3)])
    (tmp_path / "mix.yaml").write_text("train: {a: 2}")
    for name, value in {"DATA_RECIPE": tmp_path / "mix.yaml", "VERSION": "v9", "OUTPUT_DIR": tmp_path / "o",
                        "HF_CKPT": tokenizer}.items():
        monkeypatch.setenv(name, str(value))
    assert main(["--data-dirs", str(tmp_path / "embed")]) == 0
    assert len(ids(tmp_path / "o" / "rl_train_data" / "v9")) == 2


def test_a_recipe_of_data_is_none_of_settings(monkeypatch):
    for name, value in {"DATA_RECIPE": "", "RECIPE": "mix.yaml"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DATA_RECIPE")
    monkeypatch.setattr(sys, "argv", ["mem-agent"])
    monkeypatch.setattr(__main__, "settle_process", list)
    monkeypatch.setattr(__main__.runpy, "run_module", lambda *_, **__: None)
    assert __main__.main(["prepare-rl-data"]) == 0
    assert os.environ["DATA_RECIPE"] == "mix.yaml" and "RECIPE" not in os.environ
    monkeypatch.setenv("RECIPE", "mix.yaml")
    assert __main__.main(["train"]) == 1  # which has no use for it


@pytest.mark.parametrize("recipe, named", [
    ("train: {none: 3}", "none_train_embed.parquet"), ("train: {empty: 3}", "empty train: 0 of 1"),
    ("memory_datasets: {dev: {a: 1}}", "memory_datasets.dev"), ("memory_datasets: {train: {a: many}}", "train.a"),
    ("memory_datasets: {test: {a: 1}}", "train"),
])
def test_wrong_use_is_one_line(tmp_path, prepare, recipe, named):
    write(tmp_path / "embed", "empty", "train", [row(question(1, gold=()))])
    error = prepare(recipe, code=2)
    assert named in error and error.count("\n") == 1
    assert not list(Path(tmp_path / "out").rglob("*.parquet"))


# --- recipes --------------------------------------------------------------------------------------------------------
ROOT = Path(__file__).parents[2]


def recipe(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return read_recipe(path)


def test_sections_are_one_recipe_and_the_older_form_has_none(tmp_path):
    found = recipe(tmp_path, """
    memory_datasets: {train: {locomo: 500, zh4o: 0}}
    deepsearch_datasets: {train: {HotpotQA: 750}, test: {HotpotQA: 60}}
    """)
    assert list(found.train.items()) == [("locomo", 500), ("HotpotQA", 750)] and found.test == {"HotpotQA": 60}
    assert recipe(tmp_path, "train: {own: 3}").train == {"own": 3}


def test_the_published_mix_adds_up():
    """Reference A10: 6,650 to train, 480 to test."""
    mix = read_recipe(ROOT / "recipes" / "memsifter" / "mix-v1.yaml")
    assert sum(mix.train.values()) == 6650 and sum(mix.test.values()) == 480
    assert len(mix.train) == 11 and len(mix.test) == 8
    small = read_recipe(ROOT / "recipes" / "memsifter" / "locomo.yaml")
    assert set(small.train) == {"locomo"} == set(small.test)
