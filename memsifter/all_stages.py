"""``mem-agent memsifter``: the three stages in a row. Every other option of a stage is its variable.

    BASE_URL=https://HOST/v1 API_KEY=... mem-agent memsifter --model /models/my-ranker --model-name gpt-x
    mem-agent memsifter --model /models/my-ranker --chat-model /models/chat

Engines are started for the ranker, and for a ``--chat-model``. Answers are from the order of the ranker unless
``--methods`` says more. Exit codes: those of the first stage that does not end well; 3 for rows without a reply, after
which the next stage still runs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from . import answer, embed, rank
from .stages import FINISHED_WITH_FAILURES


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent memsifter", description="Options of all stages, and these:")
    parser.add_argument("--model", default=os.environ.get("MODEL_PATH", ""), help="the ranker's folder or hub id")
    parser.add_argument("--chat-model", default="", help="the chat model's, where BASE_URL is not set")
    parser.add_argument("--model-name", default=os.environ.get("MODEL_NAME", ""), help="the chat model's name")
    parser.add_argument("--methods", default=os.environ.get("METHODS", ""), help="whose order (the ranker's)")
    given, shared = parser.parse_known_args(argv)
    ranker = Path(given.model).name
    url = os.environ.pop("BASE_URL", "")  # the chat model's; the ranker is served here
    code = embed.main([*shared, f"--tokenizer={given.model}"]) or rank.main(
        [*shared, f"--model={given.model}", f"--model-name={ranker}"])
    if code in (0, FINISHED_WITH_FAILURES):
        os.environ["BASE_URL"] = url
        code = max(code, answer.main([*shared, f"--model={given.chat_model}", f"--model-name={given.model_name}",
                                      f"--methods={given.methods or ranker}"]))
    return code
