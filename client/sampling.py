"""How a turn is sampled: a host's parameters with the model's own ends, and a seed of its own for every turn."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from ..agents.vocabulary import Vocabulary
from .engine_api import seed_of


def with_stops(params: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """``params`` with the model's ends of a turn among the stop tokens, and the seed under one name."""
    stops = dict.fromkeys([*(params.get("stop_token_ids") or []), *vocabulary.eos_ids])
    return {**params, "stop_token_ids": list(stops), "seed": seed_of(params)}


def for_turn(sampling: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """Those of the trajectory's ``number``-th turn: its seed is a function of the trajectory's and the number."""
    if sampling["seed"] is None:
        return sampling
    return {**sampling, "seed": random.Random(f"{sampling['seed']}/{number}").getrandbits(31)}
