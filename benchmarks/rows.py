"""Training rows to measure with: those of two rollouts of the pocket run, and made-up groups of the published shape.

``pocket_rows.json.gz`` has the converter's columns of the pocket run's first rollout (starting weights; siblings say
different things) and of its last (trained weights; they mostly say the same), recorded with the pack's own hooks,
engine and router: 64 trajectories in groups of 8 each. Log-probs are rounded to three digits.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from ..training.rows import TrainRow, rows_from_train_data

POCKET = Path(__file__).parents[1] / "pocket" / "start"
"""The model whose rows they are: starting weights, tokenizer."""
POCKET_ROWS = Path(__file__).with_name("pocket_rows.json.gz")
FIRST, LAST = "first", "last"


def pocket_rows(rollout: str) -> list[TrainRow]:
    """Of the FIRST or the LAST rollout."""
    return rows_from_train_data(orjson.loads(gzip.decompress(POCKET_ROWS.read_bytes()))[rollout])


def pack(rollouts: Mapping[str, Mapping[str, Sequence[Any]]]) -> bytes:
    """The content of ``pocket_rows.json.gz`` from the ``train_data`` of journalled rollouts."""
    kept = ("tokens", "response_lengths", "loss_masks", "rewards", "rollout_ids", "rollout_mask_sums")
    content = {
        name: {key: data[key] for key in kept}
        | {"rollout_log_probs": [[round(x, 3) for x in row] for row in data["rollout_log_probs"]]}
        for name, data in rollouts.items()
    }
    return gzip.compress(orjson.dumps(content), 9, mtime=0)


def group_rows(siblings: int, chunk: int, memory: int, vocabulary: int, seed: int = 0) -> list[TrainRow]:
    """One memory turn of a group, section first: 112 tokens of instruction and question and the chunk, which all
    share, then each one's own memory, 20 tokens that are everybody's, and a reply as long as the memory."""
    draw = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return draw.choices(range(vocabulary), k=count)

    shared = tokens(112 + chunk)
    rows = []
    for number in range(siblings):
        text = shared + tokens(memory) + [5] * 20 + tokens(memory)
        advantage = 1.0 if number % 2 else -1.0
        rows.append(TrainRow(text, memory, [1] * memory, [-1.0] * memory, advantage, number, memory))
    return rows
