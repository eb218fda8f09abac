"""Two rounds from data to model: real preparation and averages, stand-ins where hours would go; killed everywhere.

A stand-in's model is one tensor. Training adds 1, 2, 3 and 4 to it at its four checkpoints; of the first and third
answers are right one time in ten, of the second nine, of the fourth seven. The two best are averaged, the second and
the fourth, so a round adds 3.
"""

import shlex
import shutil
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from mem_agent.checkpoints import average
from mem_agent.data.training_file import DataSource
from mem_agent.memsifter import curriculum, rl_data
from mem_agent.tests.helpers.fake_results import plain_row, write_folder
from mem_agent.tests.helpers.stage_rows import embedded_row, history_question, read_rows, write_rows
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

SCORES = (0.1, 0.9, 0.1, 0.7)
STEPS = ["prepare", "train", "convert", *(f"validate-iter_000000{n}" for n in range(4)), "average"]
ALL = [(1, name) for name in (*STEPS, "rank")] + [(2, name) for name in STEPS]


def make_model(folder, value):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"w": torch.full((2,), float(value))}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    make_tokenizer().save_pretrained(folder)


def value_of(folder):
    return load_file(Path(folder) / "model.safetensors")["w"].tolist()


class StandIns:
    """Runs the steps; ``killed`` are numbers of calls after which the process is gone before it could note that."""

    def __init__(self, killed=(), failure=None):
        self.calls, self.killed, self.trained, self.failure = [], set(killed), [], failure

    def __call__(self, step):
        self.calls.append((step.round, step.name))
        code = getattr(self, step.name.partition("-")[0])(step)
        if len(self.calls) in self.killed:
            raise KeyboardInterrupt
        return code

    def prepare(self, step):
        return rl_data.main(list(step.command[5:]))

    def train(self, step):
        rows = len(DataSource(step.env["TRAIN_DATA"], 1))
        self.trained.append((step.env["REWARD"], rows, "TORCH_DIST" in step.env))
        Path(step.env["SAVE_PATH"]).mkdir(parents=True, exist_ok=True)
        (Path(step.env["SAVE_PATH"]) / "latest_checkpointed_iteration.txt").write_text("3")
        return 0

    def convert(self, step):
        begun = value_of(step.env["HF_CKPT"])[0]
        for number in range(4):
            make_model(Path(step.env["SAVE_PATH"]) / f"hf/iter_000000{number}", begun + number + 1)
        return 0

    def validate(self, step):
        folder, score = Path(step.env["RESULTS"]) / step.env["SAVE_FILE"], SCORES[int(step.name[-1])]
        shutil.rmtree(folder, ignore_errors=True)
        rows = [plain_row(n, failure=self.failure, scores={"ndcg@10": score}, headline="ndcg@10") for n in "01"]
        write_folder(folder, rows, step.env["LENGTH"])
        return 3

    def average(self, step):
        return average.main(list(step.command[5:]))

    def rank(self, step):
        given = dict(zip(step.command[5::2], step.command[6::2], strict=True))
        results = Path(given["--output-dir"])
        rows = read_rows(results / "minilm/a_train_embed.parquet")
        for number, each in enumerate(rows):
            each["haystack_session_gen_rankings"] = [1] if number % 2 else [2, 3]
        write_rows(results / given["--model-name"] / "a_train_ranking.parquet", rows)
        return 0


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "start", 10)
    for split, numbers in {"train": range(20), "test": range(30, 34)}.items():
        rows = [embedded_row(history_question(n, sessions=4, gold=1)) for n in numbers]
        write_rows(f"results/minilm/a_{split}_embed.parquet", rows)
    Path("recipe.yaml").write_text("train: {a: 6}\ntest: {a: 2}")
    for name in ("RECIPE", "REWARD", "TORCH_DIST", "LR", "KEEP_CHECKPOINTS"):
        monkeypatch.delenv(name, raising=False)

    def once(stand_ins, *more, rounds=2, code=0):
        monkeypatch.setattr(curriculum, "run_command", stand_ins)
        found = curriculum.main([
            "--work", "run", "--model", "start", "--data-recipe", "recipe.yaml", "--output-dir", "results",
            "--embedding-model-name", "minilm", "--rounds", str(rounds), "--average", "2", *more])
        said = capsys.readouterr()
        assert found == code, said.err
        return said

    return once


def test_two_rounds_from_data_to_model(run, tmp_path):
    done = StandIns()
    run(done)
    assert done.calls == ALL
    assert done.trained == [("task", 6, False), ("answer_utility", 6, True)]  # the user's is of the first model
    assert [value_of(tmp_path / f"run/round_{n}/model") for n in (1, 2)] == [[13, 13], [16, 16]]
    rounds = [tmp_path / "run/rl_train_data" / f"round_{n}" for n in (1, 2)]
    told = [orjson.loads((folder / "prepared.json").read_bytes())["datasets"] for folder in rounds]
    assert [d["sampling"] for d in told[0]] == ["at random"] * 2
    assert [d["sampling"] for d in told[1]] == ["at random", "by the last ranking"]
    # What round 1 ranked first scores 1, far from 0.2; all chosen are of the others.
    source = DataSource(rounds[1], 1, shuffle=False)
    assert all(int(source.raw(n)["metadata"]["id"][3:]) % 2 == 0 for n in range(6))
    tests = [[r["metadata"]["id"] for r in pq.read_table(f / "test.parquet").to_pylist()] for f in rounds]
    assert tests[0] == tests[1] and len(tests[0]) == 2
    again = StandIns()
    run(again)
    assert again.calls == []
    run(again, rounds=3)  # more rounds are no other run
    assert again.calls[0] == (2, "rank") and again.calls[-1] == (3, "average")


@pytest.mark.parametrize("every", [1, 3, 8, 10])
def test_killed_behind_any_step_it_goes_on_there(run, tmp_path, every):
    first, second = StandIns(killed=[every]), StandIns()
    run(first, code=130)
    run(second)
    assert first.calls + second.calls == ALL[:every] + ALL[every - 1 :]  # the step without a note alone comes twice
    assert value_of(tmp_path / "run/round_2/model") == [16, 16]


@pytest.mark.parametrize("options, recipe, value", [
    (["--average", "4"], "train: {a: 6}\ntest: {a: 2}", 12.5), ([], "train: {a: 6}", 13.5)])
def test_without_a_choice_or_a_test_nothing_is_validated(run, tmp_path, monkeypatch, options, recipe, value):
    """All four, or the newest two: 10 + 2.5, 10 + 3.5."""
    monkeypatch.setenv("KEEP_CHECKPOINTS", "0")
    Path("recipe.yaml").write_text(recipe)
    done = StandIns()
    run(done, *options, rounds=1)
    assert done.calls == [(1, name) for name in ("prepare", "train", "convert", "average")]
    assert value_of(tmp_path / "run/round_1/model") == [value, value]


def test_changed_settings_are_refused_in_one_line(run, monkeypatch):
    run(StandIns(killed=[3]), code=130)
    monkeypatch.setenv("NUM_ENGINES", "2")  # another machine is no other run
    refused = StandIns()
    told = [run(refused, "--seed", "7", code=1).err]
    Path("recipe.yaml").write_text("train: {a: 5}")
    told.append(run(refused, code=1).err)
    for name, value in {"LR": "0.5", "KEEP_CHECKPOINTS": "1"}.items():
        monkeypatch.setenv(name, value)
        told.append(run(refused, code=1).err)
    assert not refused.calls and all(error.count("\n") == 1 for error in told)
    assert all(map(str.__contains__, told, ("seed", "data-recipe", "LR", "KEEP_CHECKPOINTS=1")))


def test_a_step_that_fails_ends_the_run_in_one_line_and_is_run_again(run):
    """Of a checkpoint without an answer too."""
    down, up = StandIns(failure="connection"), StandIns()
    assert "failed" in run(down, code=1).err and down.calls[-1] == (1, "validate-iter_0000000")
    run(up)
    assert up.calls[0] == (1, "validate-iter_0000000") and up.calls[-1] == ALL[-1]
    up.train = lambda step: 1
    assert "round 1: train" in run(up, "--work", "other", code=1).err


def test_a_dry_run_shows_every_command_and_writes_nothing(run, tmp_path, monkeypatch):
    """Of the reward's arguments the warm-up has those of every reward."""
    monkeypatch.setenv("REWARD_ARGS", "overlong_buffer=9 alpha=0.5")
    said = run(StandIns(), "--dry-run", rounds=3)
    assert said.out.count("REWARD_ARGS=overlong_buffer=9 ") == 1 and said.out.count("alpha=0.5") == 2
    lines = [line for line in said.out.splitlines() if line.startswith("# ")]
    assert len(lines) == 3 * 5 + 2 and not (tmp_path / "run").exists()
    assert f"HF_CKPT={tmp_path}/run/round_2/model" in said.out and "REWARD=task" in said.out
    scripts = {word for line in said.out.splitlines() for word in shlex.split(line, comments=True) if ".sh" in word}
    assert len(scripts) == 3 and all(Path(script).is_file() for script in scripts)
