"""The pocket's ranker with real engines: two rollouts that its stub's answers pay for, 200 questions asked twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.evaluation.results import read_rows
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.training.log import read_metrics

RECIPE = Path(__file__).parents[2] / "recipes" / "sifter.env"


@pytest.mark.servers
def test_the_ranker_trains_on_what_its_stub_answers_and_is_evaluated(tmp_path):
    """2 rollouts of 4 x 4 in place of 120 of 8 x 8."""
    settings = {
        "RECIPE": RECIPE, "POCKET_DATA": tmp_path / "data", "POCKET_CHAT_PORT": free_ports(1)[0],
        "SAVE_PATH": tmp_path / "run", "NUM_ROLLOUT": 2, "ROLLOUT_BATCH_SIZE": 4, "N_SAMPLES_PER_PROMPT": 4,
        "SAVE_INTERVAL": 2, "LR_WARMUP_STEPS": 1,
    }
    done = subprocess.run(
        [sys.executable, "-m", "mem_agent", "train", "--evaluate"], text=True, stdout=subprocess.PIPE,
        env=os.environ | {name: str(value) for name, value in settings.items()}, stderr=subprocess.STDOUT,
        timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stdout
    for told in read_metrics(tmp_path / "run"):
        assert told["trajectories"] >= 16 and told["failed"] == 0 and told["grad_norm"] > 0
        assert (told["answers/score@0"], told["answers/score@8"]) == (0.0, 1.0), "right if the gold session is shown"
        assert 0 < told["answers/score@1"] < 1, "groups whose rewards differ"
        assert told["answers/asked"] > 0 and told["answers/shared"] > 0
    evaluated = sorted((tmp_path / "run" / "eval").iterdir())
    assert [folder.name for folder in evaluated] == ["after-iter_0000001", "before"]
    for folder in evaluated:
        rows = list(read_rows(folder, "sifter"))
        assert len(rows) == 200 and all("ndcg@1" in row["scores"] and row["failure"] is None for row in rows)
    after, before = (json.loads((folder / "run.json").read_text())["model"] for folder in evaluated)
    assert after != before, "the trained weights answered, not the start's"
