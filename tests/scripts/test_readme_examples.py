"""The agent, tasks and reward of docs/extending.md and the README, as they stand there, from files outside."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from mem_agent.tasks import TaskRow, load_task

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text()


def test_the_readmes_task_scores_its_gold(tmp_path):
    page = (ROOT / "README.md").read_text()
    (tmp_path / "short.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    task, row = load_task(f"{tmp_path}/short.py:Mention"), TaskRow("who?", ("Ann", "Anna"))
    assert task.reward("it is ann", row) == task.metrics("it is ann", "it is ann", row) == {"mentioned": 1.0}


@pytest.mark.servers
def test_they_train_two_rollouts_and_evaluate(tmp_path):
    """The pocket profile from evaluation to table."""
    command = ["bash", str(ROOT / "run-train.sh")]
    for name in ("notebook.py", "mention.py", "rare.py"):
        found = re.search(rf"`{re.escape(name)}`,.*?```python\n(.*?)```", TEXT, re.DOTALL)
        (tmp_path / name).write_text(found[1])
    doors = {"AGENT": "notebook.py:Notebook", "AGENT_ARGS": "most=2", "TASK": "mention.py:Mention",
             "REWARD": "rare.py:Rare"}
    run = tmp_path / "run"
    settings = {**doors, "SAVE_PATH": str(run), "NUM_ROLLOUT": "2", "SAVE_INTERVAL": "1", "ROLLOUT_BATCH_SIZE": "2",
                "LENGTH": "3", "RECIPE": str(ROOT / "recipes" / "pocket.env"), "POCKET_DATA": str(tmp_path / "data")}

    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, cwd=tmp_path)
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
