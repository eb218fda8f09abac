"""What the templates of a ``tokenizer.json`` write around a text, counted before one is given to them.

A template is a list of pieces, of which each is the text or a special token, and a special token is a list of ids and
one of tokens, which need not be equally long: 20,000 tokens in 1,000 pieces are 20 million for a text of one letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .tokenizer_parts import GrowsTooMuch, listed, rules_of

WRITTEN = 2**10
"""Tokens and texts that templates may write in all; those of models write up to ten."""
LETTERS = 2**14
"""Letters of all these tokens."""
_PIECES = ({"Sequence"}, {"SpecialToken"})


def check_templates(tokenizer: Any) -> None:
    """Of a ``tokenizer.json`` that was read. Raises GrowsTooMuch."""
    written = [size for rule in rules_of(tokenizer, "post_processor") for size in _written(rule)]
    tokens, letters = (sum(sizes) for sizes in zip(*written, strict=True)) if written else (0, 0)
    where = "the templates of post_processor write"
    if tokens > WRITTEN:
        raise GrowsTooMuch(f"{where} {tokens} tokens and texts, more than {WRITTEN}")
    if letters > LETTERS:
        raise GrowsTooMuch(f"{where} {letters} letters, more than {LETTERS}")


def _written(rule: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(tokens, their letters) of each piece, in each of its two forms; the text counts as one token."""
    for name in ("cls", "sep"):
        if isinstance(token := rule.get(name), list):  # of BERT's and RoBERTa's, as ["[SEP]", 102]
            yield 3, 3 * _letters(token)  # RoBERTa's is written three times
    special = rule.get("special_tokens")
    if special is not None and not isinstance(special, dict):
        raise GrowsTooMuch(f"the special tokens of a template are {special!r:.40}, no object")
    sizes = {name: _size(token) for name, token in (special or {}).items()}
    for form in ("single", "pair"):
        for piece in listed(rule.get(form)):
            yield 1, 0
            yield sizes.get(_special(piece), (0, 0))


def _size(token: Any) -> tuple[int, int]:
    if not isinstance(token, dict):
        raise GrowsTooMuch(f"a special token of a template is {token!r:.40}, no object")
    ids, tokens = listed(token.get("ids")), listed(token.get("tokens"))
    return max(len(ids), len(tokens)), _letters(tokens)


def _letters(tokens: list[Any]) -> int:
    return sum(len(token) for token in tokens if isinstance(token, str))


def _special(piece: Any) -> str:
    """Which special token it is; empty for a text."""
    said = next(iter(piece.values())) if isinstance(piece, dict) and piece.keys() in _PIECES else None
    if not isinstance(said, dict):
        raise GrowsTooMuch(f"a piece of a template is {piece!r:.40}, neither Sequence nor SpecialToken")
    name = said.get("id") if "SpecialToken" in piece else ""
    return name if isinstance(name, str) else ""
