"""The pocket's ranker with real engines: two rollouts that its stub's answers pay for, 24 questions asked twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.evaluation.results import read_rows
from mem_agent.pocket.prepare import prepare
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.fake_host import recipe
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.training.log import read_metrics

POCKET = Path(__file__).parents[2] / "pocket"
QUESTIONS = 24

pytestmark = pytest.mark.servers


@pytest.fixture
def chat():
    """The address of the stub, in a process of its own as in recipes/sifter.env."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "mem_agent.pocket.frozen_chat", "--port", str(port), "--with-parent"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and "answers at" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}/v1"
        process.terminate()


@pytest.fixture
def env(tmp_path, chat):
    """The recipe's settings, for 2 rollouts of 4 x 4 in place of 120 of 8 x 8."""
    data = tmp_path / "data"
    prepare(data, 1, "sifter")
    entries = json.loads((data / "eval_sifter.json").read_text())
    (data / "eval_sifter.json").write_text(json.dumps(entries[:QUESTIONS]))
    own = {
        "REWARD_ARGS": f"model=frozen-chat prompts='{POCKET}/sifter.yaml'", "HF_CKPT": POCKET / "sifter_start",
        "ANSWER_URL": chat,
        "TRAIN_DATA": data / "train.jsonl", "DATA_ROOT": data, "SAVE_PATH": tmp_path / "run",
        "NUM_ROLLOUT": 2, "ROLLOUT_BATCH_SIZE": 4, "N_SAMPLES_PER_PROMPT": 4, "SAVE_INTERVAL": 2, "LR_WARMUP_STEPS": 1,
        "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": 0,
    }
    settings = {name: value for name, value in recipe("sifter").items() if "$" not in value} | own
    return {**os.environ, **{name: str(value) for name, value in settings.items()}}


def test_the_ranker_trains_on_what_its_stub_answers_and_is_evaluated(env, tmp_path):
    command = [sys.executable, "-m", "mem_agent", "train", "--evaluate"]
    done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
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
        assert len(rows) == QUESTIONS and all("ndcg@1" in row["scores"] and row["failure"] is None for row in rows)
    after, before = (json.loads((folder / "run.json").read_text())["model"] for folder in evaluated)
    assert after != before, "the trained weights answered, not the start's"
