"""How long the words and tokens of a ``tokenizer.json`` are, which its model reads and writes again and again.

WordPiece tries each beginning of what is left of a word, and Unigram reads, at each letter, as far as its longest
token goes. BPE and WordPiece write their prefix before each letter, and all models write ``unk_token`` for what they
do not know: with one of a megabyte a text takes a million times its own memory. With ``dropout``, which is for
training, BPE tries each of its merges again at each step, and gives other ids each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .tokenizer_parts import GrowsTooMuch, listed, of

LONGEST_WORD = 2**10
"""Letters of a word that WordPiece takes apart, of which known models have 100; and of a token, of which known models
have some hundred: blanks of source text, lines of hyphens."""
LONGEST_AFFIX = 2**7
"""Letters of what is written around or for each letter, as ``##``, ``</w>`` and ``<unk>``."""


def check_words(tokenizer: Any) -> None:
    """Of a ``tokenizer.json`` that was read. Raises GrowsTooMuch."""
    model = of(tokenizer, "model")
    longest = of(model, "max_input_chars_per_word")
    if isinstance(longest, int | float) and longest > LONGEST_WORD:
        raise GrowsTooMuch(f"max_input_chars_per_word is {longest!r:.40}, more than {LONGEST_WORD}")
    if (dropout := of(model, "dropout")) is not None and dropout != 0:
        raise GrowsTooMuch(f"dropout is {dropout!r:.40}: ids are left to chance, as in training; set it to null")
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if len(_text(of(model, name))) > LONGEST_AFFIX:
            raise GrowsTooMuch(f"{name} has more than {LONGEST_AFFIX} letters")
    vocab = of(model, "vocab")
    check_tokens(vocab if isinstance(vocab, dict) else map(_first, listed(vocab)), "its vocab")
    check_tokens((of(token, "content") for token in listed(of(tokenizer, "added_tokens"))), "added_tokens")


def check_tokens(tokens: Iterator[Any] | dict[str, Any], where: str) -> None:
    """Raises GrowsTooMuch for one that is too long; what is no text is told by whoever reads it."""
    if any(len(_text(token)) > LONGEST_WORD for token in tokens):
        raise GrowsTooMuch(f"a token of {where} has more than {LONGEST_WORD} letters")


def _first(token: Any) -> Any:
    """Of Unigram's ``["a", -1.5]``."""
    return token[0] if isinstance(token, list) and token else token


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
