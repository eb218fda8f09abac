"""A fleet whose engines are stubs, started as vLLM's would be, behind the real router."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mem_agent.config import Config
from mem_agent.serving import servers
from mem_agent.serving.fleet import Fleet
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

STUB = Path(__file__).parent / "stub_engine.py"
SYNC = ["pause", "reload_policy", "update_weight_version", "reset_prefix_cache", "resume"]
TENSORS = {"a.weight": torch.zeros(4), "b.weight": torch.ones(2, 3)}


class Stubs:
    """Stub engines instead of vLLM; ``options[index]`` holds the options of that engine's next starts."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal.txt"
        self.options: dict[int, list[list[str]]] = {}

    def command(self, config: Config, model: Path, port: int, device: str, index: int) -> list[str]:
        planned = self.options.get(index, [])
        options = planned.pop(0) if planned else []
        return [sys.executable, str(STUB), str(port), str(self.journal), *options]

    def calls(self) -> dict[str, list[str]]:
        """The control calls of each engine, by port."""
        result: dict[str, list[str]] = {}
        for line in self.journal.read_text().splitlines():
            port, call = line.split()
            result.setdefault(port, []).append(call)
        return result


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubs:
    """Import this name into the test module that wants it, and ``model``."""
    stubs = Stubs(tmp_path)
    monkeypatch.setattr(servers, "engine_command", stubs.command)
    return stubs


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    save_file(TENSORS, folder / "model.safetensors")
    return folder


def make_fleet(model: Path, **settings: Any) -> Fleet:
    return Fleet(Config(**settings), model, run_folder=model.parent / "run")


def port_of(url: str) -> str:
    return url.rpartition(":")[2]
