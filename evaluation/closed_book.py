"""Asks a model every question without its document, and says which ones need none.

    mem-agent closed-book --raw hotpot_train_v1.1.json --url http://HOST:8000/v1 --model NAME \\
        --output DIR

Any server with OpenAI's chat completions will do; its key, if it wants one, is OPENAI_API_KEY. Then give
``DIR/verdict.json`` to ``eval_files`` or ``prepare_data --synthesize`` as ``--closed-book``::

    DIR/run.json        raw files, model and sampling; replies of anything else are refused
    DIR/replies.jsonl   {"id": "5a8b...", "replies": ["\\\\boxed{Ann}", ...]} per question, as they come
    DIR/verdict.json    {"run": ..., "statistics": ..., "dropped": ["5a8b...", ...]}

Invariants: a reply is on disk as soon as it is known, and a second run asks only what is missing; the verdict is
written when every question has its replies, by the rules of ``closed_book_rules`` and from nothing else. A request
that fails for good (after the client's retries) ends the run with one line, for the next run to go on. One process at
a time writes a folder.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import orjson
from tqdm import tqdm

from ..client.chat_client import ChatClient
from ..client.chat_settings import ChatFailed, ChatSettings, key_from
from ..data.closed_book_rules import Asked, judge
from ..data.manifest import sha256_of
from ..data.pool import PoolQuestion, load_corpora
from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError
from ..system.files import append_whole, folder_lock, write_atomically
from ..system.gather import gather_or_cancel
from ..system.one_line_errors import one_line_errors
from ..system.signals import run_stoppable, stop_if_asked, stop_on_signals
from .results import cut_half_line

INSTRUCTION = "\n\nAnswer from what you know, and put only the answer into \\boxed{}."
_RUN, _REPLIES, VERDICT = "run.json", "replies.jsonl", "verdict.json"


class ClosedBookError(MemAgentError):
    """The questions cannot be asked: a bad endpoint, or replies of another run in the way."""


@dataclass(frozen=True, slots=True)
class Sampling:
    model: str
    samples: int
    max_tokens: int
    seed: int
    temperature: float = 1.0
    top_p: float = 0.7

    def seed_for(self, question: PoolQuestion) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{question.id}".encode()).digest()[:4], "big") >> 1


def run(raw: Sequence[Path], sampling: Sampling, url: str, concurrency: int, output: Path) -> dict[str, Any]:
    """Ask what is missing, judge, and return the statistics.

    Raises:
        MemAgentError: raw files or endpoint are of no use, or the folder holds replies of another run, or another
            process writes them.
    """
    questions = load_corpora(raw).questions
    settings = asdict(sampling) | {
        "instruction": INSTRUCTION, "raw": [{"file": path.name, "sha256": sha256_of(path)} for path in raw],
    }
    with folder_lock(output, busy="another closed-book is asking; wait for it, or choose another --output"):
        _check_same_run(output, settings)
        known = _read_replies(output / _REPLIES, sampling.samples)
        missing = [question for question in questions if question.id not in known]
        print(f"{len(missing)} of {len(questions)} questions to ask, {len(known)} already in {output}", flush=True)
        if missing:
            run_stoppable(_ask_all(missing, sampling, url, concurrency, output / _REPLIES))
            known = _read_replies(output / _REPLIES, sampling.samples)
        verdict = judge([Asked(question.id, question.answers, known[question.id]) for question in questions])
        content = {"run": settings, "statistics": verdict.statistics, "dropped": verdict.dropped}
        write_atomically(output / VERDICT, orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return verdict.statistics


def _check_same_run(output: Path, settings: dict[str, Any]) -> None:
    path = output / _RUN
    try:
        known = orjson.loads(path.read_bytes()) if path.is_file() else settings
        differing = [key for key in settings if known.get(key) != settings[key]]
    except (ValueError, AttributeError):
        raise ClosedBookError(f"{path}: is damaged; choose another --output") from None
    if differing:
        raise ClosedBookError(f"{output}: holds replies of another {differing[0]}; choose another --output")
    write_atomically(path, orjson.dumps(settings, option=orjson.OPT_INDENT_2))


def _read_replies(path: Path, samples: int) -> dict[str, tuple[str, ...]]:
    """Replies by the question's id; the half line of a killed run is cut off."""
    cut_half_line(path)
    found = {}
    for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), 1):
        try:
            row = orjson.loads(line)
            id, replies = row["id"], tuple(row["replies"])
            if len(replies) != samples:
                raise ValueError
        except (ValueError, LookupError, TypeError):
            what = f"line {number} does not have {samples} replies"
            raise ClosedBookError(f"{path}: {what}; remove that line, and they are asked again") from None
        found[id] = replies
    return found


async def _ask_all(
    questions: Sequence[PoolQuestion], sampling: Sampling, url: str, concurrency: int, path: Path
) -> None:
    client = ChatClient(ChatSettings(
        url=url, model=sampling.model, key=key_from(os.environ, ("OPENAI_API_KEY",)), concurrency=concurrency,
        timeout_s=600.0, retries=5, max_output_tokens=sampling.max_tokens, temperature=sampling.temperature,
        top_p=sampling.top_p, samples=sampling.samples,
    ))
    waiting = iter(questions)
    bar = tqdm(total=len(questions), unit=" questions", disable=None)
    try:
        with path.open("ab", buffering=0) as rows, bar:
            await gather_or_cancel(*(_ask_some(client, waiting, sampling, rows, bar) for _ in range(concurrency)))
    finally:
        await client.close()


async def _ask_some(
    client: ChatClient, waiting: Iterator[PoolQuestion], sampling: Sampling, rows: IO[bytes], bar: tqdm
) -> None:
    """Ask one question after the other, sharing ``waiting`` with those who do the same."""
    for question in waiting:
        stop_if_asked()
        try:
            replies = await client.sampled(
                [{"role": "user", "content": question.question + INSTRUCTION}], sampling.seed_for(question)
            )
        except ChatFailed as error:
            raise ClosedBookError(f"question {question.id}: {error}; run again later") from None
        row = {"id": question.id, "replies": replies}
        append_whole(rows, orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        bar.update()


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    sampling = Sampling(args.model, args.samples, args.max_tokens, args.seed)
    statistics = run(args.raw, sampling, args.url, args.concurrency, args.output)
    print(f"{args.output / VERDICT}: {statistics['dropped']} of {statistics['asked']} questions need no document")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent closed-book", description="Find questions that need no document.")
    parser.add_argument("--raw", type=Path, nargs="+", metavar="FILE", required=True, help="as for eval_files")
    parser.add_argument("--url", required=True, help="http://HOST:PORT, or OpenAI's base with its path")
    parser.add_argument("--model", required=True, help="its name there")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of replies and verdict")
    parser.add_argument("--samples", type=positive_number, default=4, help="replies to each question (4)")
    parser.add_argument("--max-tokens", type=positive_number, default=512, help="tokens of a reply (512)")
    parser.add_argument("--seed", type=whole_number, default=42, help="of the sampling (42)")
    parser.add_argument("--concurrency", type=positive_number, default=64, help="questions in flight (64)")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
