"""Counts the tokens of a text as the agent will see them: through ``agents.vocabulary``, without control tokens."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from ..agents.vocabulary import Vocabulary
from ..system.errors import reason_of
from .sample import CountTokens, RulerError


def load_tokenizer(folder: Path) -> Vocabulary:
    """The tokenizer in ``folder``.

    Raises:
        RulerError: the folder is absent or holds no fast tokenizer.
    """
    if not folder.is_dir():
        raise RulerError(f"--tokenizer {folder}: no such folder; name a model folder with a tokenizer.json")
    try:
        return Vocabulary(AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False))
    except Exception as error:  # for a damaged file every tokenizer class has errors of its own
        raise RulerError(f"--tokenizer {folder}: cannot be loaded: {reason_of(error)}") from None


def counter_of(vocabulary: Vocabulary) -> CountTokens:
    return lambda text: len(vocabulary.encode_text(text))
