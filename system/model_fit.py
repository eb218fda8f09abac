"""Whether a loaded model reads all that its tokenizer may give it: as many tokens, and each of their ids.

A model that does not is found out here, and not by the first long text, hours later.
"""

from __future__ import annotations

from typing import Any


def positions_of(model: Any) -> int | None:
    """How many tokens it can tell apart at most, where it says.

    RoBERTa and its like begin to count behind the id of their padding, so they have that many fewer.
    """
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if type(positions) is not int or positions < 1:  # XLNet says -1
        return None
    padding = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    return positions - (padding + 1 if type(padding) is int else 0)


def check_ids(tokenizer: Any, model: Any) -> None:
    """Raises ValueError where the tokenizer has an id for which the model has no vector."""
    rows = len(model.get_input_embeddings().weight)
    token, highest = max(tokenizer.get_vocab().items(), key=lambda entry: entry[1], default=("", -1))
    if highest >= rows:
        raise ValueError(f"its tokenizer has {token!r:.40} as {highest}, its model has {rows} tokens")
