"""What lies under a file's name in a folder of somebody else and is no file is not opened: a pipe would not end.

A socket stands for the pipe here: opening it fails at once.
"""

import os
import stat
from pathlib import Path

import pytest

from mem_agent.checkpoints.average import average
from mem_agent.checkpoints.folders import has_adapters
from mem_agent.checkpoints.foreign_code import refuse_foreign_code
from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.checkpoints.model_card import read_card
from mem_agent.evaluation.identity import model_hash
from mem_agent.rewards.answer_utility import AnswerUtility
from mem_agent.rewards.intrinsic.model_folder import check_model_folder
from mem_agent.system.errors import MemAgentError
from mem_agent.system.model_requests import refuse_requests
from mem_agent.system.model_sizes import model_config
from mem_agent.training.run_log import RunLog


def socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def means(folder: Path) -> None:
    (folder.parent / "other").mkdir()
    average([folder, folder.parent / "other"], folder.parent / "mean")


def last_state(folder: Path) -> None:
    AnswerUtility(AnswerUtility.Settings()).load(folder)


def model_with_code(folder: Path) -> None:
    refuse_foreign_code(folder, trusted=False)


PASSED = [
    ("config.json", model_with_code), ("my_config.json", model_with_code), ("iter_0000001/.metadata", has_adapters),
    ("x.json", model_hash), ("model.safetensors", model_hash), ("processor_config.json", refuse_requests),
]


@pytest.mark.parametrize("make", [socket, Path.mkdir])
@pytest.mark.parametrize("name,read", PASSED)
def test_it_is_passed_over(tmp_path, make, name, read):
    place = tmp_path / "model" / name
    place.parent.mkdir(parents=True)
    make(place)
    read(tmp_path / "model")


TOLD = [
    ("model.safetensors", HfTensors, "/model.safetensors: not readable as safetensors: no such file"),
    ("model.safetensors", means, "/model.safetensors: not readable as safetensors: no such file"),
    ("config.json", model_config, "/config.json: no such file"),
    ("README.md", read_card, r"no readable README.md \(no such file\)"),
    ("rollouts.json", last_state, "/rollouts.json: is damaged"),
    ("metrics.jsonl", lambda folder: RunLog(folder, 0), "/metrics.jsonl: is .* and stays as it is"),
]


@pytest.mark.parametrize("make", [socket, Path.mkdir])
@pytest.mark.parametrize("name,read,said", TOLD)
def test_it_is_told(tmp_path, make, name, read, said):
    place = tmp_path / "model" / name
    place.parent.mkdir(parents=True)
    make(place)
    with pytest.raises(MemAgentError, match=said):
        read(tmp_path / "model")


@pytest.mark.parametrize("name", ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json"])
def test_an_embedding_model_has_none(tmp_path, name):
    (tmp_path / "1_Pooling").mkdir()
    socket(tmp_path / name)
    with pytest.raises(MemAgentError, match=f"{name} is no file, and reading it might not end; remove it$"):
        check_model_folder(tmp_path)
