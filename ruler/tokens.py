"""Counts the tokens of a text as the agent will see them: through ``agents.vocabulary``, without control tokens.

A text is counted in slices that end before a blank, so counting a million tokens takes no more memory than a page.
Vocabularies whose tokens never cross a blank (byte-level BPE: Qwen, Llama 3, GPT-2) give the exact count; others may
be off by one token per slice, a thirtieth of a percent.
"""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from ..agents.vocabulary import Vocabulary
from ..system.model_requests import refuse_other_models
from ..system.model_sizes import check_sizes
from ..system.tokenizer_ids import check_tokenizer
from ..system.tokenizer_panics import panics_told
from .sample import CountTokens, RulerError

_SLICE = 2**14


def load_tokenizer(folder: Path) -> Vocabulary:
    """The tokenizer in ``folder``.

    Raises:
        RulerError: the folder is absent or holds no fast tokenizer.
    """
    if not folder.is_dir():
        raise RulerError(f"--tokenizer {folder}: no such folder; name a model folder with a tokenizer.json")
    try:
        check_sizes(folder)
        refuse_other_models(folder)
        check_tokenizer(folder)
        with panics_told():
            return Vocabulary(AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False))
    except Exception as error:  # for a damaged file every tokenizer class has errors of its own
        raise RulerError(f"--tokenizer {folder}: cannot be loaded: {' '.join(str(error).split())[:200]}") from None


def counter_of(vocabulary: Vocabulary) -> CountTokens:
    def count(text: str) -> int:
        total, start = 0, 0
        while start < len(text):
            end = _slice_end(text, start)
            total += len(vocabulary.encode_text(text[start:end]))
            start = end
        return total

    return count


def _slice_end(text: str, start: int) -> int:
    limit = start + _SLICE
    if limit >= len(text):
        return len(text)
    blank = text.rfind(" ", start + 1, limit)
    return blank if blank > 0 else limit
