"""What every task shares: what it is made from, what it makes, how its document grows, and the sentences around it.

A task is a pure function ``(rng, budget, count_tokens, haystack) -> Sample``: equal arguments give equal samples. It
draws its answers, says how a document of any size is built around them, and lets ``grown`` find the size.

How many tokens a size (characters, words: any whole number) makes depends on the tokenizer and is known only by
counting, and counting a document of a million tokens takes seconds. So ``fill`` learns the price of a step on small
documents first; then one or two full counts are enough. With one token per character,
``fill(lambda size: "x" * size, len, 1000)`` looks at 0, 60, 125 and 996 characters and returns 996.

The wording is every sentence that a model reads besides the haystack. The built-in sentences (``wording.yaml``) say
what RULER's say, in words of this project. Scores move with wording, so for figures to set beside published ones give
RULER's own sentences as a YAML file (``--wording FILE``): any of the built-in names, each a text with the same slots
in braces. ``{kind}`` and ``{kinds}`` are the singular and plural of number or uuid. ``example`` is what vt and cwe
show before the document, up to where that begins::

    needle: "A magic {kind} of {key} is {value}."
    niah_one: "Which magic {kind} of {keys} does the text state?"

The ``_document`` texts are what stands around the document, as RULER has words before it::

    cwe_document: "A list of words follows.\n{document}"

Documents with questions: ``qa_1`` of SQuAD, ``qa_2`` of HotpotQA, gold documents among others of the same file:

=========  ================================  =========================================================
file       a document                        a question's ``gold``, then ``own``
=========  ================================  =========================================================
SQuAD      one paragraph, without its title  its paragraph; the rest of the article, asked about or not
HotpotQA   title, newline, all sentences     supporting documents, or all; its other ones
=========  ================================  =========================================================

Documents are sorted, each there once, in the data's own spacing: samples are drawn from them by number, so a change
of either would change their bytes. Questions are shuffled: neighbours in a file are about one article, and a sample
of them should not be.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson
import yaml

from ...system.errors import MemAgentError, reason_of
from ..questions import PoolQuestion, read_questions
from ..rows import DataError

CountTokens = Callable[[str], int]


class RulerError(MemAgentError):
    """RULER data cannot be made from what was given."""


class LengthError(Exception):
    """No size of this document fits; the message says what is missing."""


# --- wording ---------------------------------------------------------------------------------------------------------
TEXTS: Mapping[str, str] = yaml.safe_load(Path(__file__).with_name("wording.yaml").read_text(encoding="utf-8"))
_DOCUMENT_MARK = "\0"


class Wording(NamedTuple):
    texts: Mapping[str, str] = TEXTS
    name: str = "built in"

    def text(self, name: str, **values: object) -> str:
        return self.texts[name].format(**values)

    def around(self, name: str, kind: str) -> tuple[str, str]:
        """What stands before and behind a document of ``name``, such as niah_one, whose values are of ``kind``: part
        of what the model reads, so of the length. ``cwe_document`` being ``"Words:\\n{document}"``::

            around("cwe", "")  ->  "Words:\\n", ""
        """
        document = self.text(f"{name}_document", document=_DOCUMENT_MARK, kind=kind, kinds=f"{kind}s")
        before, _, behind = document.partition(_DOCUMENT_MARK)
        return before, behind


def load_wording(path: Path) -> Wording:
    """The built-in wording with the texts of a YAML file in place of its own.

    Raises:
        RulerError: the file cannot be read, or has other names.
    """
    try:
        content = path.read_bytes()
        texts = dict(yaml.safe_load(content))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise RulerError(f"--wording {path}: is no mapping of names to texts ({reason_of(error)})") from None
    if unknown := texts.keys() - TEXTS.keys():
        raise RulerError(f"--wording {path}: {min(unknown)!r} is no name; allowed: {', '.join(TEXTS)}")
    return Wording({**TEXTS, **texts}, f"{path.name} sha256:{hashlib.sha256(content).hexdigest()[:16]}")


# --- haystacks -------------------------------------------------------------------------------------------------------
class Essay(NamedTuple):
    """Running text, repeated for as long as a sample needs it."""

    text: str
    name: str


class Corpus(NamedTuple):
    name: str
    documents: tuple[str, ...]
    questions: tuple[PoolQuestion, ...]


def read_essay(paths: Sequence[Path], wording: Wording) -> Essay:
    """The text of the files, of JSON its field ``text``, with every run of blanks and newlines as one blank; the
    wording's noise without files."""
    if not paths:
        return Essay(wording.texts["noise"], "repeated sentences (built in, no --haystack given)")
    texts = [orjson.loads(path.read_bytes())["text"] if path.suffix == ".json" else path.read_text("utf-8")
             for path in paths]
    text = " ".join(" ".join(texts).split())
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Essay(text, f"{'+'.join(path.name for path in paths)} sha256:{digest}")


_Found = tuple[str, Sequence[str], Sequence[str], Sequence[str]]
"""Question, answers, gold documents, and all documents among which it is asked, the gold ones too."""


def read_squad(path: Path, rng: Random) -> Corpus:
    """An original SQuAD file; questions without answers, and articles without others, are left out.

    Raises DataError.
    """
    found = list[_Found]()
    try:
        for article in orjson.loads(path.read_bytes())["data"]:
            texts = [paragraph["context"] for paragraph in article["paragraphs"]]
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    answers = [answer["text"] for answer in asked["answers"] if answer["text"].strip()]
                    if answers and not asked.get("is_impossible"):
                        found.append((asked["question"], answers, [paragraph["context"]], texts))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a SQuAD file ({reason_of(error)})") from None
    return _corpus(path, found, rng)


def read_hotpotqa(path: Path, rng: Random) -> Corpus:
    """A HotpotQA file of any shape. Raises DataError."""
    found = list[_Found]()
    for question in filter(None, read_questions(path)):
        paragraphs = {paragraph.title: paragraph for paragraph in question.paragraphs}.values()
        texts = [paragraph.document for paragraph in paragraphs]
        gold = [paragraph.document for paragraph in paragraphs if paragraph.gold] or texts
        found.append((question.question, question.answers, gold, texts))
    return _corpus(path, found, rng)


def _corpus(path: Path, found: Sequence[_Found], rng: Random) -> Corpus:
    documents = sorted({text for *_, texts in found for text in texts})
    numbers = {document: number for number, document in enumerate(documents)}
    questions = []
    for question, answers, gold, texts in found:
        needed, every = (tuple(dict.fromkeys(numbers[text] for text in each)) for each in (gold, texts))
        questions.append(PoolQuestion("", question, tuple(dict.fromkeys(answers)), needed, every))
    return Corpus(path.name, tuple(documents), tuple(rng.sample(questions, len(questions))))


READERS = {"squad": read_squad, "hotpotqa": read_hotpotqa}
"""Of the files with questions, by the name of their option."""


@dataclass(frozen=True, slots=True)
class Haystack:
    """All that a task may hide its answers in; ``corpus`` and ``question`` are for the QA tasks alone."""

    wording: Wording
    essay: Essay
    corpus: Corpus | None = None
    question: PoolQuestion | None = None
    reserved: int = 0
    """Tokens of a sample's length that are none of its text: the prompt around it, and the reply."""


# --- samples ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Sample:
    """What a task makes; fields are named as those of a file's entry."""

    context: str
    """The document: every answer can be derived from it alone."""
    input: str
    answers: tuple[str, ...]
    length_tokens: int
    """RULER's length, all that an engine must hold: example, document, question, answer prefix, and ``reserved``. It
    lies within 1 % below the budget."""
    answer_prefix: str
    example: str
    """A solved sample of another, shorter document, to be shown before ``context``; empty for most tasks."""
    extra: Mapping[str, Any]


MakeSample = Callable[[Random, int, CountTokens, Haystack], Sample]


def grown(
    build: Callable[[int], str], budget: int, count_tokens: CountTokens, haystack: Haystack, *, question: str,
    prefix: str, answers: Sequence[str], extra: Mapping[str, Any], example: str = "",
) -> Sample:
    """The sample whose document ``build`` makes, of the size that fits. Raises LengthError."""
    besides = count_tokens(question) + count_tokens(prefix) + haystack.reserved
    filled = fill(build, lambda context: count_tokens(example + context) + besides, budget)
    return Sample(filled.context, question, tuple(answers), filled.tokens, prefix, example, extra)


# --- length ----------------------------------------------------------------------------------------------------------
class Filled(NamedTuple):
    size: int
    context: str
    tokens: int


def shortest_allowed(budget: int) -> int:
    return budget - budget // 100


def fill(build: Callable[[int], str], count: Callable[[str], int], budget: int) -> Filled:
    """The document of a size whose tokens are at most ``budget`` and at least 99 % of it; the same for the same
    arguments.

    ``count`` must grow with the size, apart from a jitter smaller than that 1 %.

    Raises:
        LengthError: even the document of size 0 is longer than ``budget``, or neighbouring sizes jump over the window.
    """

    def measure(size: int) -> Filled:
        context = build(size)
        return Filled(size, context, count(context))

    target = budget - budget // 250
    under, over, price = measure(0), None, 4.0  # characters per token, mostly
    if under.tokens > budget:
        raise LengthError(f"takes at least {under.tokens} tokens with this tokenizer")
    rehearsals = iter((budget // 64, budget // 8))
    for turn in itertools.count():
        if under.tokens >= shortest_allowed(budget):
            return under
        if over is None:
            aim = next((tokens for tokens in rehearsals if tokens > 2 * under.tokens), target)
            size = under.size + max(1, int((aim - under.tokens) * price))
        elif over.size - under.size == 1:
            break
        elif turn % 3 == 2:  # bounds the number of counts where a straight line is a bad guess
            size = (under.size + over.size) // 2
        else:
            share = (target - under.tokens) / (over.tokens - under.tokens)
            guess = under.size + int(share * (over.size - under.size))
            size = min(max(guess, under.size + 1), over.size - 1)
        probe = measure(size)
        if probe.tokens > budget:
            over = probe
        else:
            price = (probe.size - under.size) / max(1, probe.tokens - under.tokens)
            under = probe
    assert over is not None
    raise LengthError(f"can have {under.tokens} or {over.tokens} tokens with this tokenizer, nothing between")
