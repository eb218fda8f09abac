"""Asks a model every question without its document, and says which ones need none.

    mem-agent closed-book --raw hotpot_train_v1.1.json --url http://HOST:8000/v1 --model NAME \\
        --output DIR

Any server with OpenAI's chat completions will do; its key, if it wants one, is OPENAI_API_KEY. Then give
``DIR/verdict.json`` to ``synthesize`` or ``prepare --synthesize`` as ``--closed-book``::

    DIR/run.json        raw files, model and sampling; replies of anything else are refused
    DIR/replies.jsonl   {"id": "5a8b...", "replies": ["\\\\boxed{Ann}", ...]} per question, as they come
    DIR/verdict.json    {"run": ..., "dropped": ["5a8b...", ...]}

Invariants: a reply is on disk as soon as it is known, and a second run asks only what is missing; the verdict is
written when every question has its replies, and is a function of questions and replies alone (``judge``). A request
that fails for good (after the client's retries) ends the run with one line, for the next run to go on. One process at
a time writes a folder.
"""

from __future__ import annotations

import argparse
import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
from tqdm import tqdm

from ..data.eval_files import sha256_of
from ..data.questions import PoolQuestion, load_corpora
from ..hooks.chat_model import ChatClient, ChatSettings
from ..rewards.answers import AnswerKind, after_thinking, kind_of, last_boxed
from ..rewards.qa_metrics import exact_match, normalise_squad, sub_em
from ..system.cli import one_line_errors, positive_number, run_stoppable
from ..system.concurrency import gather_or_cancel
from ..system.files import append_whole, folder_lock, write_atomically
from ..system.server_url import key_from
from .results import EvalError, cut_half_line

INSTRUCTION = "\n\nAnswer from what you know, and put only the answer into \\boxed{}."
TEMPERATURE, TOP_P, SEED, CONCURRENCY = 1.0, 0.7, 42, 64
CHANCE = 0.2
"""A right answer by habit is believed to be knowledge if it is no likelier than this."""


async def _ask(questions: Sequence[PoolQuestion], options: argparse.Namespace, path: Path) -> None:
    """Append the replies to each question as they come. Raises ChatFailed."""
    client = ChatClient(ChatSettings(
        url=options.url, model=options.model, key=key_from(os.environ, ("OPENAI_API_KEY",)),
        concurrency=CONCURRENCY, timeout_s=600.0, retries=5, max_output_tokens=options.max_tokens,
        temperature=TEMPERATURE, top_p=TOP_P, samples=options.samples,
    ))
    with path.open("ab", buffering=0) as rows, tqdm(total=len(questions), unit=" questions", disable=None) as bar:

        async def ask(question: PoolQuestion) -> None:
            seed = random.Random(f"{SEED}/{question.id}").getrandbits(31)
            message = {"role": "user", "content": question.question + INSTRUCTION}
            replies = await client.replies([message], seed)
            row = {"id": question.id, "replies": [reply.text for reply in replies]}
            append_whole(rows, orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            bar.update()

        try:
            await gather_or_cancel(*map(ask, questions))
        finally:
            await client.close()


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    """Ask what is missing, judge, and write the verdict."""
    parser = argparse.ArgumentParser(prog="mem-agent closed-book", description="Find questions that need no document.")
    add = parser.add_argument
    add("--raw", type=Path, nargs="+", metavar="FILE", required=True, help="as for synthesize")
    add("--url", required=True, help="http://HOST:PORT, or OpenAI's base with its path")
    add("--model", required=True, help="its name there")
    add("--output", type=Path, required=True, metavar="DIR", help="folder of replies and verdict")
    add("--samples", type=positive_number, default=4, help="replies to each question (4)")
    add("--max-tokens", type=positive_number, default=512, help="tokens of a reply (512)")
    options = parser.parse_args(argv)
    questions, output = load_corpora(options.raw).questions, options.output
    about, replies = output / "run.json", output / "replies.jsonl"
    settings = {"model": options.model, "samples": options.samples, "max_tokens": options.max_tokens, "seed": SEED,
                "temperature": TEMPERATURE, "top_p": TOP_P, "instruction": INSTRUCTION,
                "raw": [{"file": path.name, "sha256": sha256_of(path)} for path in options.raw]}
    with folder_lock(output, busy="another closed-book is asking; wait for it, or choose another --output"):
        before = orjson.loads(about.read_bytes()) if about.is_file() else settings
        if differing := [key for key in settings if before.get(key) != settings[key]]:
            raise EvalError(f"{output}: holds replies of another {differing[0]}; choose another --output")
        write_atomically(about, orjson.dumps(settings, option=orjson.OPT_INDENT_2))
        cut_half_line(replies)
        replies.touch()
        known = _read(replies)
        missing = [question for question in questions if question.id not in known]
        print(f"{len(missing)} of {len(questions)} questions to ask, {len(known)} already in {output}", flush=True)
        run_stoppable(_ask(missing, options, replies))
        known = _read(replies)
        dropped = judge([Asked(question.id, question.answers, known[question.id]) for question in questions])
        content = orjson.dumps({"run": settings, "dropped": dropped}, option=orjson.OPT_INDENT_2)
        write_atomically(output / "verdict.json", content)
    print(f"{output / 'verdict.json'}: {len(dropped)} of {len(questions)} questions need no document")
    return 0


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    """Replies by the question's id."""
    return {row["id"]: tuple(row["replies"]) for row in map(orjson.loads, path.read_bytes().splitlines())}


# --- the rules -------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    id: str
    answers: Sequence[str]
    replies: Sequence[str]

    @property
    def kind(self) -> AnswerKind:
        """CHOICE if any answer is one, else OPEN if any can be looked for, else NUMBER."""
        kinds = set(map(kind_of, self.answers))
        return next(kind for kind in (AnswerKind.CHOICE, AnswerKind.OPEN, AnswerKind.NUMBER) if kind in kinds)

    def is_right(self, reply: str) -> bool:
        if exact_match(_answer(reply), self.answers) == 1.0:
            return True
        texts = [answer for answer in self.answers if kind_of(answer) is AnswerKind.OPEN]
        return bool(texts) and sub_em(after_thinking(reply), texts) == 1.0


def judge(asked: Sequence[Asked]) -> list[str]:
    """The ids of the questions that need no document; every one must have the same number of replies.

    A reply's answer is its last box or, without one, all of it behind the thinking. What it takes to drop a question
    depends on what its answers are (``answers.kind_of``):

    ======  ==============================================================================================
    open    ANY reply equals an answer in SQuAD form, or has one as whole words, side by side
    number  ANY reply equals an answer in SQuAD form
    choice  ALL k replies are right, and guessing like this model would do that one time in five at most
    ======  ==============================================================================================

    Why: a coin answers half of all yes/no questions, so "any of 4" would drop 94% of those that nobody knows; and "no"
    as a substring stands in "know" and "not". The model's habit is its guess: where it says "yes" to a share p of all
    choice questions, it is right k times in a row by habit alone with probability p ** k::

        k = 4, half of its answers are yes     0.5 ** 4 = 0.06    yes to all four: dropped, it knows
        k = 4, it says yes to 9 in 10          0.9 ** 4 = 0.66    yes to all four: stays, it may be habit
                                               0.1 ** 4 = 0.00    no to all four:  dropped, it knows
    """
    choices = [one for one in asked if one.kind is AnswerKind.CHOICE]
    said = Counter(normalise_squad(_answer(reply)) for one in choices for reply in one.replies)

    def is_known(one: Asked) -> bool:
        if one.kind is not AnswerKind.CHOICE:
            return any(map(one.is_right, one.replies))
        guesses = [normalise_squad(answer) for answer in one.answers if kind_of(answer) is AnswerKind.CHOICE]
        habit = max(said[guess] for guess in guesses) / said.total()
        return all(map(one.is_right, one.replies)) and habit ** len(one.replies) <= CHANCE

    return [one.id for one in asked if is_known(one)]


def _answer(reply: str) -> str:
    text = after_thinking(reply)
    boxed = last_boxed(text)
    return text.strip() if boxed is None else boxed
