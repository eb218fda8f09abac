"""Asks a model every question without its document, and says which ones need none.

    mem-agent closed-book --raw hotpot_train_v1.1.json --url http://HOST:8000/v1 --model NAME \\
        --output DIR

Any server with OpenAI's chat completions will do; its key, if it wants one, is OPENAI_API_KEY. Then give
``DIR/verdict.json`` to ``synthesize`` or ``prepare --synthesize`` as ``--closed-book``::

    DIR/run.json        raw files, model and sampling; replies of anything else are refused
    DIR/replies.jsonl   {"id": "5a8b...", "replies": ["\\\\boxed{Ann}", ...]} per question, as they come
    DIR/verdict.json    {"run": ..., "statistics": ..., "dropped": ["5a8b...", ...]}

Invariants: a reply is on disk as soon as it is known, and a second run asks only what is missing; the verdict is
written when every question has its replies, by the rules of ``closed_book_rules``. A request that fails for good
(after the client's retries) ends the run with one line, for the next run to go on. One process at a time writes a
folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import orjson
from tqdm import tqdm

from ..data.closed_book_rules import Asked, judge
from ..data.manifest import sha256_of
from ..data.pool import PoolQuestion, load_corpora
from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings
from ..system.cli import one_line_errors, positive_number, run_main, run_stoppable, whole_number
from ..system.concurrency import gather_or_cancel
from ..system.errors import MemAgentError
from ..system.files import append_whole, folder_lock, write_atomically
from ..system.server_url import key_from
from .results import cut_half_line

INSTRUCTION = "\n\nAnswer from what you know, and put only the answer into \\boxed{}."
TEMPERATURE, TOP_P = 1.0, 0.7


class ClosedBookError(MemAgentError):
    """The questions cannot be asked: a bad endpoint, or replies of another run in the way."""


def run(options: argparse.Namespace) -> None:
    """Ask what is missing, judge, and write the verdict.

    Raises:
        MemAgentError: raw files or endpoint cannot be used, the folder holds replies of another run, or another
            process writes them.
    """
    questions, output = load_corpora(options.raw).questions, options.output
    settings = {name: getattr(options, name) for name in ("model", "samples", "max_tokens", "seed")}
    settings |= {"temperature": TEMPERATURE, "top_p": TOP_P, "instruction": INSTRUCTION,
                 "raw": [{"file": path.name, "sha256": sha256_of(path)} for path in options.raw]}
    with folder_lock(output, busy="another closed-book is asking; wait for it, or choose another --output"):
        about, replies = output / "run.json", output / "replies.jsonl"
        before = orjson.loads(about.read_bytes()) if about.is_file() else settings
        if differing := [key for key in settings if before.get(key) != settings[key]]:
            raise ClosedBookError(f"{output}: holds replies of another {differing[0]}; choose another --output")
        write_atomically(about, orjson.dumps(settings, option=orjson.OPT_INDENT_2))
        cut_half_line(replies)
        known = _read(replies)
        missing = [question for question in questions if question.id not in known]
        print(f"{len(missing)} of {len(questions)} questions to ask, {len(known)} already in {output}", flush=True)
        if missing:
            run_stoppable(_ask(missing, options, replies))
            known = _read(replies)
        verdict = judge([Asked(question.id, question.answers, known[question.id]) for question in questions])
        content = {"run": settings, "statistics": verdict.statistics, "dropped": verdict.dropped}
        write_atomically(output / "verdict.json", orjson.dumps(content, option=orjson.OPT_INDENT_2))
    print(f"{output / 'verdict.json'}: {len(verdict.dropped)} of {len(questions)} questions need no document")


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    """Replies by the question's id."""
    rows = map(orjson.loads, path.read_bytes().splitlines() if path.is_file() else ())
    return {row["id"]: tuple(row["replies"]) for row in rows}


async def _ask(questions: Sequence[PoolQuestion], options: argparse.Namespace, path: Path) -> None:
    client = ChatClient(ChatSettings(
        url=options.url, model=options.model, key=key_from(os.environ, ("OPENAI_API_KEY",)),
        concurrency=options.concurrency, timeout_s=600.0, retries=5, max_output_tokens=options.max_tokens,
        temperature=TEMPERATURE, top_p=TOP_P, samples=options.samples,
    ))
    waiting = iter(questions)
    with path.open("ab", buffering=0) as rows, tqdm(total=len(questions), unit=" questions", disable=None) as bar:

        async def work() -> None:
            for question in waiting:
                digest = hashlib.sha256(f"{options.seed}/{question.id}".encode()).digest()
                message = {"role": "user", "content": question.question + INSTRUCTION}
                try:
                    replies = await client.replies([message], int.from_bytes(digest[:4], "big") >> 1)
                except ChatFailed as error:
                    raise ClosedBookError(f"question {question.id}: {error}; run again later") from None
                row = {"id": question.id, "replies": [reply.text for reply in replies]}
                append_whole(rows, orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                bar.update()

        try:
            await gather_or_cancel(*(work() for _ in range(options.concurrency)))
        finally:
            await client.close()


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent closed-book", description="Find questions that need no document.")
    add = parser.add_argument
    add("--raw", type=Path, nargs="+", metavar="FILE", required=True, help="as for synthesize")
    add("--url", required=True, help="http://HOST:PORT, or OpenAI's base with its path")
    add("--model", required=True, help="its name there")
    add("--output", type=Path, required=True, metavar="DIR", help="folder of replies and verdict")
    add("--samples", type=positive_number, default=4, help="replies to each question (4)")
    add("--max-tokens", type=positive_number, default=512, help="tokens of a reply (512)")
    add("--seed", type=whole_number, default=42, help="of the sampling (42)")
    add("--concurrency", type=positive_number, default=64, help="questions in flight (64)")
    run(parser.parse_args(argv))
    return 0


if __name__ == "__main__":
    run_main(main)
