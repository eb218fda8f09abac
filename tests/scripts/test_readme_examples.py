"""The agent, tasks and reward of docs/extending.md and the README, as they stand there, from files outside."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.hooks.rewards import load_reward
from mem_agent.rewards.reward import Answered
from mem_agent.tasks import TaskRow, load_task
from mem_agent.tests.helpers.scripted import read

ROOT = Path(__file__).parents[2]
FILES = ("notebook.py", "mention.py", "rare.py")
TEXT = (ROOT / "docs" / "extending.md").read_text()
EXAMPLES = {
    name: re.search(rf"`{re.escape(name)}`,.*?```python\n(.*?)```", TEXT, re.DOTALL)[1] for name in FILES
}


@pytest.fixture
def outside(tmp_path, monkeypatch):
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_agent_keeps_its_newest_notes(outside):
    run = read(["a", "b", "c", "x"], agent="notebook.py:Notebook", agent_args="most=2", mem_max_memory=32)
    assert run.memories == ["a", "ab", "bc"] and run.kinds == "mmmf"


def test_the_readmes_task_scores_its_gold(outside):
    page = (ROOT / "README.md").read_text()
    (outside / "short.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    task, row = load_task("short.py:Mention"), TaskRow("who?", ("Ann", "Anna"))
    assert task.reward("it is ann", row) == task.metrics("it is ann", "it is ann", row) == {"mentioned": 1.0}


def test_the_task_scores_its_gold(outside):
    task, row = load_task("mention.py:Mention"), TaskRow("who?", ("Ann", "Anna"))
    assert task.reward("it is \\boxed{ann}", row) == {"mention": 1.0, "boxed": 0.1}
    assert task.metrics("Bob", "Bob", row) == {"mentioned": 0.0}


def test_the_reward_remembers(outside, tmp_path):
    def batch(*replies):
        return [Answered("q", (), {}, reply, {}) for reply in replies]

    rare = load_reward(Config(reward="rare.py:Rare"))
    assert [p["rare"] for p in rare.batch_parts(batch("red", "red", "blue"))] == [0.1, 0.1, 0.1]
    (tmp_path / "state").mkdir()
    rare.save(tmp_path / "state")
    again = load_reward(Config(reward="rare.py:Rare"))
    again.load(tmp_path / "state")
    assert again.batch_parts(batch("red", "new")) == rare.batch_parts(batch("red", "new")) == [
        {"rare": 0.1 / 3}, {"rare": 0.1}
    ]


@pytest.mark.servers
def test_they_train_two_rollouts_and_evaluate(outside, tmp_path):
    """The pocket profile from evaluation to table."""
    command = ["bash", str(ROOT / "run-train.sh")]
    doors = {"AGENT": "notebook.py:Notebook", "AGENT_ARGS": "most=2", "TASK": "mention.py:Mention",
             "REWARD": "rare.py:Rare"}
    run = tmp_path / "run"
    settings = {**doors, "SAVE_PATH": str(run), "NUM_ROLLOUT": "2", "SAVE_INTERVAL": "1", "ROLLOUT_BATCH_SIZE": "2",
                "LENGTH": "3", "RECIPE": str(ROOT / "recipes" / "pocket.env"), "POCKET_DATA": str(tmp_path / "data")}

    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    table = done.stdout
    assert "| before | 3 | 200 | 0 | 0 |" in table and "| after-iter_0000001 | 3 | 200 | 0 | 0 |" in table
    assert '"headline":"mentioned"' in (run / "eval" / "before" / "3.jsonl").read_text()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2 and all({"reward/mention", "reward/rare"} <= line.keys() for line in lines)
    assert lines[0]["reward/rare"] == pytest.approx(0.1) and lines[1]["reward/rare"] < 0.09
    assert (run / "reward_state" / "0000001").is_dir()


def test_both_readmes_show_the_same_commands():
    """But for comments, and the words of a docstring."""
    def blocks(page):
        found = re.findall(r"```(?:bash|python)\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        return [re.sub(r' *#.*|""".*?"""', "", block) for block in found]

    assert blocks("README.md") == blocks("README_zh.md")
