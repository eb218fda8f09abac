"""A model folder with a tokenizer and no weights, and documents whose sections are two letters."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

VOCABULARY = Vocabulary(make_tokenizer())
END = VOCABULARY.encode_markup("<|im_end|>")
SETTINGS = {"mem_chunk_tokens": 2, "mem_max_memory": 32, "mem_max_final": 16, "mem_max_retries": 0}
DOCUMENT = "QWZRXY"
"""Three sections: QW, ZR and XY."""


def settings(**others) -> Config:
    return Config(**{**SETTINGS, **others})


def reply(text: str) -> list[int]:
    """A router's answer, as ids."""
    return VOCABULARY.encode_text(text) + END


def prompt_of(body: dict) -> str:
    return VOCABULARY.tokenizer.decode(body["token_ids"])


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Import this name into the test module that wants it."""
    folder = tmp_path_factory.mktemp("model")
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_bytes(orjson.dumps({"max_position_embeddings": 4096}))
    return folder
