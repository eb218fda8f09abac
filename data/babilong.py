"""BABILong: facts of bAbI hidden in books, as training rows and evaluation files in one folder.

    mem-agent prepare --babilong qa1,qa2 --lengths 0k,1k,4k --background novel.txt --tokenizer MODEL --output DIR

writes ``DIR/eval_qa1_1k.json`` and its like, and ``DIR/train.jsonl``. Facts come from bAbI's own files (``--babi``),
or else from a simulation of its worlds (``babi``). With ``--published RMT-team/babilong`` the evaluation files are the
published samples as they are.

Source: BABILong (Kuratov et al. 2024, arXiv 2406.10149). A document is made as there: sentences of at least ten tokens
of the background, from a random one on, until the length is reached less the facts; the last one cut to fit; the facts
in their order at random places between them. Of a background in several texts each sample takes one. Lengths are in
tokens of ``--tokenizer``, 1k being 1,000; the published sets count GPT-2's. ``0k`` is the facts alone, and so is a
length that the facts fill by themselves.

Invariants:
- a sample is a function of seed, side, task, number and inputs: more samples or lengths leave the others as they are,
  and evaluation asks the same questions at every length;
- no story of an evaluation file is trained on, and neither is the second half of a background text, which is
  evaluation's; rows of other lengths are of other stories, so that one training may follow another;
- a file that is there stays if it came from the same inputs and is refused otherwise (``eval_files.Manifest``).

Training rows come in runs of up to ``--questions`` that share their document, so that the trainer computes its
sections once for all of them. ``--together N`` does so in evaluation. Questions of one story depend on each other, so
an interval over them is too narrow; published samples are one a document, and so are these unless it is asked for.

Books name people, places and things too. In training half of the background's sentences have theirs replaced by bAbI's
("Mary had her feelings ...", "the kitchen of Israel", "milk was changed into apple"), so that a name alone is no fact.
"""

from __future__ import annotations

import argparse
import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, islice, product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson
from tqdm import tqdm

from ..rewards.babi import GIVERS, PEOPLE, PLACES, THINGS, read_fact
from ..system.cli import positive_number, stop_if_asked
from .babi import FACTS, Story, find_babi, read_babi, simulate
from .eval_files import eval_name, locked_manifest, sha256_of
from .rows import DataError, as_json_list, open_dataset

TRAIN = "train.jsonl"
LENGTHS = ("0k", "1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k", "512k", "1m", "10m")
LEAST_TOKENS = 10
"""Shorter sentences of a book are left out."""
_SENTENCE = re.compile(r"\S.*?[.!?][\"'\u201d\u2019)_]*(?=\s|$)")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}\b|^(?:He|She|They)\b")
_SPOT = re.compile(r"\bthe (?:house|room|door|city|land|town|country|world|field|mountain|sea|family|people|king)\b")
_STUFF = re.compile(
    r"\b(?:book|letter|word|water|bread|wine|oil|fire|stone|gold|sword|money|hand|heart|head|mind|blood|meat|hat)\b"
)
Count = Callable[[str], int]


class Book(NamedTuple):
    """Sentences, and how many tokens the first 0, 1, 2, ... of them have."""

    sentences: list[str]
    tokens: list[int]

    @classmethod
    def of(cls, sentences: Sequence[str], count: Count) -> Book:
        counted = [(sentence, count(f" {sentence}")) for sentence in sentences]
        kept = [(sentence, tokens) for sentence, tokens in counted if tokens >= LEAST_TOKENS]
        return cls([sentence for sentence, _ in kept], list(accumulate((n for _, n in kept), initial=0)))

    def passage(self, tokens: int, start: int, count: Count) -> list[str]:
        """So many tokens from sentence ``start`` on, beginning again at the end; the last sentence is cut to fit."""
        found: list[str] = []
        while tokens > 0:
            end = min(bisect_left(self.tokens, self.tokens[start] + tokens), len(self.sentences))
            found += self.sentences[start:end]
            tokens -= self.tokens[end] - self.tokens[start]
            start = 0
        while found and tokens < 0:
            shorter = found[-1].rpartition(" ")[0]
            tokens += count(f" {found[-1]}") - count(f" {shorter}") if shorter else -tokens
            found[-1:] = [shorter] if shorter else []
        return found


def read_books(paths: Sequence[Path], count: Count) -> list[tuple[Book, Book]]:
    """Of every text its first half, for training, and its second. Raises DataError."""
    books = []
    for path in paths:
        try:
            text = " ".join(path.read_text(encoding="utf-8").split())
        except (OSError, ValueError) as error:
            raise DataError(f"--background {path}: cannot be read as text ({error})") from None
        sentences = _SENTENCE.findall(text)
        half = len(sentences) // 2
        both = Book.of(sentences[:half], count), Book.of(sentences[half:], count)
        if not all(book.sentences for book in both):
            raise DataError(f"--background {path}: holds no sentences of {LEAST_TOKENS} tokens; name a book")
        books.append(both)
    return books


def hidden(story: Story, tokens: int, book: Book | None, random: Random, count: Count, renamed: bool = False) -> str:
    """The document of about ``tokens`` tokens; without a book, or of 0 tokens, the facts alone."""
    room = tokens - sum(count(f" {fact}") for fact in story.facts)
    if not tokens or room <= 0 or book is None:
        return " ".join(story.facts)
    passage = book.passage(room, random.randrange(len(book.sentences)), count)
    if renamed:
        passage = [_renamed(sentence, random) if random.random() < 0.5 else sentence for sentence in passage]
    places = sorted(random.choices(range(len(passage) + 1), k=len(story.facts)))
    pieces, done = list[str](), 0
    for place, fact in zip(places, story.facts, strict=True):
        pieces += [*passage[done:place], fact]
        done = place
    return " ".join([*pieces, *passage[done:]])


def _renamed(sentence: str, random: Random) -> str:
    """With bAbI's people, places and things in place of a book's; as it is where it would then be a fact."""
    named = _NAME.sub(lambda _: random.choice(PEOPLE + GIVERS), sentence)
    named = _SPOT.sub(lambda _: f"the {random.choice(PLACES)}", named)
    named = _STUFF.sub(lambda _: random.choice(THINGS), named)
    return sentence if read_fact(named) else named


# --- samples --------------------------------------------------------------------------------------------------------


def length_in_tokens(name: str) -> int:
    """``4k`` -> 4000, ``1m`` -> 1000000. Raises DataError."""
    if not (found := re.fullmatch(r"(\d+)([km]?)", name)):
        raise DataError(f"--lengths: {name!r}; allowed: numbers of tokens, such as {', '.join(LENGTHS)}")
    return int(found[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2]]


@dataclass(frozen=True)
class Samples:
    """What samples are made from."""

    seed: int
    babi: Path | None
    """bAbI's folder; None: simulated stories."""
    books: Sequence[tuple[Book, Book]]
    count: Count

    def stories(self, task: str, side: str, lengths: str = "") -> Iterator[Story]:
        """Stories without an end: bAbI's own, of ``side`` test or train, shuffled by the seed and over again; else
        simulated ones. Other ``lengths`` have others."""
        seed = f"{self.seed}/{side}{lengths}/{task}"
        if self.babi:
            found = list(read_babi(find_babi(self.babi, task, side)))
            while True:
                yield from Random(seed).sample(found, len(found))
        for number in itertools.count():
            yield simulate(task, Random(f"{seed}/{number}"))

    def entries(self, task: str, length: str, questions: int, together: int) -> Iterator[dict[str, Any]]:
        """An evaluation file of so many questions, at most ``together`` of one document."""
        stories, asking = self.stories(task, "test"), Random(f"{self.seed}/asked/{task}")
        for number in itertools.count():
            if not questions:
                return
            story, random = next(stories), Random(f"{self.seed}/hidden/{task}/{length}/{number}")
            asked = asking.sample(story.asked, min(together, len(story.asked)))[:questions]
            context = self._hidden(story, length, 1, random)
            for place, (question, answer) in enumerate(asked):
                yield {"index": f"{number}.{place}", "input": question, "answers": [answer], "task": "babilong",
                       "metadata": {"babi": task}, "context": context}
            questions -= len(asked)

    def rows(
        self, tasks: Sequence[str], lengths: Sequence[str], together: int, held_out: int
    ) -> Iterator[dict[str, Any]]:
        """Training rows without an end, the tasks in turn. Held out are as many stories as evaluation asks questions,
        so that it may ask fewer of one document."""
        random, drawn = Random(f"{self.seed}/train"), ",".join(lengths)
        known = {task: {story.facts for story in islice(self.stories(task, "test"), held_out)} for task in tasks}
        stories = {task: self.stories(task, "train", drawn) for task in tasks}
        for number, task in enumerate(cycle(tasks)):
            story, length = next(one for one in stories[task] if one.facts not in known[task]), random.choice(lengths)
            context = self._hidden(story, length, 0, random)
            asked = random.sample(story.asked, min(together, len(story.asked)))
            for place, (question, answer) in enumerate(asked):
                yield {"prompt": question, "label": answer, "metadata": {
                    "id": f"{task}/{number}.{place}", "ground_truth": [answer], "task": "babilong", "babi": task,
                    "length": length, "facts": story.facts, "context": context}}

    def _hidden(self, story: Story, length: str, half: int, random: Random) -> str:
        book = random.choice(self.books)[half] if self.books else None
        return hidden(story, length_in_tokens(length), book, random, self.count, renamed=not half)


def published(dataset: str, task: str, length: str) -> Iterator[dict[str, Any]]:
    """The samples of a set on the hub, whose configurations are lengths and splits tasks. Raises DataError."""
    for number, row in enumerate(open_dataset(dataset, task, length)):
        fields = row.fields
        yield {"index": number, "input": fields["question"].strip(), "answers": [fields["target"].strip()],
               "task": "babilong", "metadata": {"babi": task}, "context": fields["input"]}


# --- the command ----------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("with --babilong TASKS and --output FOLDER").add_argument
    add("--background", type=Path, nargs="+", default=[], metavar="FILE", help="texts that hide the facts")
    add("--tokenizer", metavar="MODEL", help="HF folder or id whose tokens are counted")
    add("--published", metavar="ID", help="evaluation files from the hub as they are: RMT-team/babilong")
    add("--babi", type=Path, metavar="FOLDER", help="bAbI's own files (simulated worlds)")
    add("--samples", type=positive_number, default=100, metavar="N", help="questions of each evaluation file (100)")
    add("--together", type=positive_number, default=1, metavar="N", help="evaluation questions of one document (1)")
    add("--train-lengths", default="", help="of training documents, drawn in turn (0k,1k)")
    add("--train-tasks", default="", metavar="TASKS", help="in turn, one perhaps several times (all once)")
    add("--questions", type=positive_number, default=4, metavar="N", help="training questions of one document (4)")


def write_babilong(args: argparse.Namespace, count: Count) -> None:
    """Write what is missing in ``args.output``, and say what is there.

    Args:
        count: the tokens of a text.

    Raises:
        DataError: an option cannot be used, or a file is there that was made otherwise.
    """
    tasks, trained_tasks = args.babilong.split(","), (args.train_tasks or args.babilong).split(",")
    if unknown := [task for task in tasks + trained_tasks if task not in FACTS]:
        raise DataError(f"--babilong: no task {unknown[0]!r}; allowed: {', '.join(FACTS)}")
    lengths, trained = ((given or "0k,1k").replace(",", " ").split() for given in (args.lengths, args.train_lengths))
    if any(map(length_in_tokens, trained if args.published else lengths + trained)) and not args.background:
        raise DataError("--background: name a text to hide the facts in, or ask for length 0k alone")
    samples = Samples(args.seed, args.babi, read_books(args.background, count), count)
    origin = {"kind": "babilong", "seed": args.seed, "tokenizer": Path(args.tokenizer).name,
              "background": list(map(sha256_of, args.background)),
              **({"babi": sha256_of(find_babi(args.babi, tasks[0], "test"))} if args.babi else {})}
    args.output.mkdir(parents=True, exist_ok=True)
    with locked_manifest(args.output) as manifest:
        for task, length in product(tasks, lengths):
            name, source = eval_name(f"{task}_{length}"), {"task": task, "length": length}
            if args.published:
                source |= {"kind": "babilong", "dataset": args.published}
                entries = published(args.published, task, length)
            else:
                source |= origin | {"samples": args.samples, "together": args.together}
                entries = samples.entries(task, length, args.samples, args.together)
            if not manifest.has(name, source):
                with manifest.draft(name, source) as file:
                    for line in as_json_list(entries):
                        stop_if_asked()
                        file.write(line)
            print(f"{args.output / name}: there")
        source = origin | {"tasks": trained_tasks, "rows": args.count, "lengths": trained,
                           "questions": args.questions, "held_out": args.samples}
        if not manifest.has(TRAIN, source):
            rows = samples.rows(trained_tasks, trained, args.questions, args.samples)
            with manifest.draft(TRAIN, source) as file:
                for row in tqdm(islice(rows, args.count), total=args.count, unit=" rows", disable=None):
                    stop_if_asked()
                    file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    print(f"{args.output / TRAIN}: {args.count} rows")
