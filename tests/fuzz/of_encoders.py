"""Folders of embedding models that somebody else has made: each file of settings, and then texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.tests.fuzz.target import Target, scratch
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

MODULES, TRANSFORMER, POOLING = "modules.json", "sentence_bert_config.json", "1_Pooling/config.json"
WHOLE, CONFIG = "config_sentence_transformers.json", "config.json"
PARTS = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


@cache
def _made() -> Path:
    from transformers import BertConfig, BertModel

    folder, tokenizer = scratch() / "made encoder", make_tokenizer()
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=32)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    for name, content in ((MODULES, PARTS), (TRANSFORMER, {"max_seq_length": 16, "do_lower_case": False}),
                          (POOLING, {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}),
                          (WHOLE, {"prompts": {"query": "q: "}, "similarity_fn_name": "cosine"})):
        (folder / name).write_text(json.dumps(content))
    return folder


def _encoded(file: str) -> Callable[[bytes], None]:
    """The whole folder, with this file in the place of its own."""

    def run(data: bytes) -> None:
        folder = scratch() / "encoder"
        shutil.copytree(_made(), folder, dirs_exist_ok=True)
        (folder / file).write_bytes(data)
        vectors = SentenceEncoder("mine", folder).encode(["Ann has gold.", "key " * 30])
        assert len(vectors) == 2

    return run


def _own(file: str) -> bytes:
    return (_made() / file).read_bytes()


_WORDS = (
    b"sentence_transformers.models.", b"sentence_transformers.sentence_transformer.modules.", b"Dense", b"Router",
    b"LSTM", b"CNN", b"BoW", b"StaticEmbedding", b"WordEmbeddings", b"..", b"/", b"model_kwargs", b"weights_only",
    b"torch.nn.ReLU", b"1e400", b"9" * 30, b"0",
)
_FILES = {"modules": MODULES, "transformer": TRANSFORMER, "pooling": POOLING, "whole": WHOLE, "config": CONFIG}
TARGETS = tuple(Target(f"encoder_{name}", _encoded(file), (_own(file),), _WORDS, slow=True)
                for name, file in _FILES.items())
