"""RULER's thirteen standard configurations: needles, chains of variables, frequent words, documents with questions.

``filler(pieces, joint)`` is the text that the pieces make when written one after the other with ``joint`` between
them, cut after any number of characters. A cut may fall inside a word, as on a torn page. ``place`` puts statements
where a line (joint "\\n") or a sentence (joint " ") begins, never behind a torn word::

    text = filler(itertools.repeat("Rain. Wind."), "\\n")
    text(17)                                  "Rain. Wind.\\nRain."
    place(text(17), ["A=1"], [1.0], "\\n")    "Rain. Wind.\\nA=1\\nRain."

Nothing here asks the operating system for randomness, so a seed gives the same words, numbers and uuids everywhere.
The word lists are those of the package ``wonderwords``, cut down to plain lower-case words: one written with a hyphen
or a blank could not be told from two words.
"""

from __future__ import annotations

import itertools
import math
import string
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Literal, NamedTuple

from wonderwords import Defaults, RandomWord

from ...rewards.qa_metrics import STRING_MATCH_ALL, STRING_MATCH_PART
from .sample import CountTokens, Haystack, LengthError, MakeSample, RulerError, Sample, Wording, fill, grown

_SENTENCE_ENDS = (". ", "! ", "? ")
_LONGEST_SENTENCE = 2000


# --- draws -----------------------------------------------------------------------------------------------------------
@cache
def english(*kinds: str) -> tuple[str, ...]:
    """Plain words of the kinds, which are ``nouns``, ``adjectives`` and ``verbs`` (about 8 500 in all): sorted, each
    once."""
    lists = {kind: Defaults[kind.upper()] for kind in kinds}
    return tuple(RandomWord(enhanced_prefixes=False, **lists).filter(regex="[a-z]{2,}"))


def word_pair(rng: Random) -> str:
    """An adjective and a noun, as ``quiet-harbor``; there are about six million."""
    return f"{rng.choice(english('adjectives'))}-{rng.choice(english('nouns'))}"


DRAWS: Mapping[str, Callable[[Random], str]] = {
    "word": word_pair, "number": lambda rng: str(rng.randint(1_000_000, 9_999_999)),
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
}


def letters(alphabet: str, number: int) -> Callable[[Random], str]:
    return lambda rng: "".join(rng.choices(alphabet, k=number))


def draw_new(draw: Callable[[Random], str], rng: Random, taken: set[str], text: str = "") -> str:
    """The first draw that is neither ``taken`` nor part of ``text``; it is taken from then on."""
    drawn = draw(rng)
    while drawn in taken or drawn in text:
        drawn = draw(rng)
    taken.add(drawn)
    return drawn


# --- filler ----------------------------------------------------------------------------------------------------------
def filler(pieces: Iterator[str], joint: str) -> Callable[[int], str]:
    """Gives the first characters, so many as it is called with, of the pieces, which may never end. They are drawn as
    they are needed, and shorter texts are beginnings of longer ones.
    """
    text = next(pieces)

    def beginning(size: int) -> str:
        nonlocal text
        parts, length = [text], len(text)
        while length < size:
            parts.append(joint + next(pieces))
            length += len(parts[-1])
        text = "".join(parts)
        return text[:size]

    return beginning


def place(filler: str, statements: Sequence[str], depths: Sequence[float], joint: str) -> str:
    """The filler with each statement at its depth (0 = at the start, 1 = before the last line or sentence).

    Statements keep their order: the depths must not fall.
    """
    parts, done = [], 0
    for statement, depth in zip(statements, depths, strict=True):
        position = _beginning_before(filler, int(depth * len(filler)), joint)
        parts += [filler[done:position], statement, joint]
        done = position
    return "".join([*parts, filler[done:]])


def _beginning_before(filler: str, position: int, joint: str) -> int:
    """Where the line or sentence that holds ``position`` begins; a word, if no sentence ends near."""
    if joint == "\n":
        return filler.rfind("\n", 0, position) + 1
    nearest = max(filler.rfind(end, max(0, position - _LONGEST_SENTENCE), position) for end in _SENTENCE_ENDS)
    return nearest + 2 if nearest >= 0 else filler.rfind(" ", 0, position) + 1


# --- needles and chains ----------------------------------------------------------------------------------------------
_ESSAY_DEPTHS = [round(100 * step / 39) / 100 for step in range(40)]
"""RULER's 40 places from the start to the end, in whole percents."""
_EXAMPLE_TOKENS = 500
_NAME, _EXAMPLE_NAME = letters(string.ascii_uppercase, 5), letters(string.ascii_uppercase, 3)


class Niah(NamedTuple):
    """One configuration of the needle task."""

    haystack: Literal["noise", "essay", "needles"]
    """One line of short sentences, over and over; running text; needles of other keys, so that nearly every line is a
    distractor."""
    key: Literal["word", "uuid"] = "word"
    value: Literal["number", "uuid"] = "number"
    keys: int = 1
    """How many keys have needles besides those of the haystack."""
    values: int = 1
    """Needles per key, each with a value of its own."""
    queries: int = 1
    """How many of the keys are asked for."""

    @property
    def words(self) -> str:
        """What its texts in a wording begin with."""
        return "niah_one" if self.queries * self.values == 1 else "niah_many"


def niah(form: Niah, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> Sample:
    """Needles in a haystack, and a question for the values of some of their keys.

    No two needles of a document share a key (unless it is the multivalue key) or a value; in an essay, neither keys
    nor values stand in the text already. The answers are in the order of the question. Example (keys=2)::

        context  "... the tide. A magic number of red-fox is 4021877. Nobody spoke. A magic number of odd-key is
                 1350026."
        input    "Which magic number of odd-key does the text state?"
        answers  ("1350026",)
    """
    wording, taken = haystack.wording, set[str]()
    is_essay = form.haystack == "essay"
    avoid = haystack.essay.text if is_essay else ""
    kind = {"kind": form.value, "kinds": f"{form.value}s"}

    def needle(key: str, value: str) -> str:
        return wording.text("needle", key=key, value=value, **kind)

    def distractors() -> Iterator[str]:
        while True:
            key = draw_new(DRAWS[form.key], rng, taken)
            yield needle(key, draw_new(DRAWS[form.value], rng, taken))

    values: dict[str, list[str]] = {}
    for _ in range(form.keys):
        key = draw_new(DRAWS[form.key], rng, taken, avoid)
        values[key] = [draw_new(DRAWS[form.value], rng, taken, avoid) for _ in range(form.values)]
    needles = [needle(key, value) for key, own in values.items() for value in own]
    rng.shuffle(needles)
    asked = rng.sample(list(values), form.queries)
    if is_essay:
        depths = sorted(rng.sample(_ESSAY_DEPTHS, len(needles)))
        joint, source = " ", haystack.essay.name
        text = filler(itertools.repeat(haystack.essay.text), joint)
    else:
        depths = sorted(rng.random() for _ in needles)
        joint, source = "\n", "repeated sentences" if form.haystack == "noise" else "needles"
        text = filler(itertools.repeat(wording.texts["noise"]) if form.haystack == "noise" else distractors(), joint)
    kind["keys"] = asked[0] if len(asked) == 1 else f"{', '.join(asked[:-1])}, and {asked[-1]}"
    return grown(
        lambda size: place(text(size), needles, depths, joint), budget, count_tokens, haystack,
        question=wording.text(form.words, **kind), prefix=wording.text(f"{form.words}_prefix", **kind),
        answers=[value for key in asked for value in values[key]],
        extra={"haystack": source, "keys": asked, "depths": [round(depth, 4) for depth in depths]},
    )


class _Chain:
    """Variables of which all have one value: the first gets it, each other one that of the variable before it."""

    def __init__(self, rng: Random, hops: int, is_example: bool, wording: Wording, taken: set[str]) -> None:
        name = _EXAMPLE_NAME if is_example else _NAME
        self.variables = [draw_new(name, rng, taken, wording.texts["noise"]) for _ in range(hops + 1)]
        self.value = draw_new(lambda rng: str(rng.randint(10_000, 99_999)), rng, taken)
        self.depths = sorted(rng.random() for _ in self.variables)
        self.question, self.prefix = (
            wording.text(text, value=self.value, count=len(self.variables)) for text in ("vt", "vt_prefix")
        )
        self._filler = filler(itertools.repeat(wording.texts["noise"]), "\n")

    def document(self, size: int) -> str:
        pairs = itertools.pairwise(self.variables)
        statements = [f"VAR {self.variables[0]} = {self.value}", *(f"VAR {new} = VAR {old}" for old, new in pairs)]
        return place(self._filler(size), statements, self.depths, "\n")


def variable_tracking(hops: int, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> Sample:
    """A chain of ``hops`` + 1 assignments, in their order, scattered over a document of short sentences.

    A solved example comes before, as in RULER: a document of at most 500 tokens with its question, in which a chain
    as long has names of 3 letters and a value of its own (``variable_tracking.py``, c3f5e3b); its answers come on top
    of the 500. All variables are different, the example's too. Example with 2 hops::

        VAR QWERT = 48213  ...  VAR ASDFG = VAR QWERT  ...  VAR ZXCVB = VAR ASDFG
        answers for 48213: QWERT, ASDFG, ZXCVB
    """
    wording, taken = haystack.wording, set[str]()
    chain = _Chain(rng, hops, False, wording, taken)
    other = _Chain(rng, hops, True, wording, taken)

    def example(context: str, answers: str) -> str:
        framed = wording.text("vt_document", document=context)
        return wording.text("example", context=framed, question=other.question, prefix=other.prefix, answers=answers)

    shown = fill(other.document, lambda context: count_tokens(example(context, "")), _EXAMPLE_TOKENS).context
    return grown(
        chain.document, budget, count_tokens, haystack, question=chain.question, prefix=chain.prefix,
        answers=chain.variables, example=example(shown, " ".join(other.variables)),
        extra={"haystack": "repeated sentences", "value": chain.value,
               "depths": [round(depth, 4) for depth in chain.depths]},
    )


# --- common words ----------------------------------------------------------------------------------------------------
COMMON_WORDS = 10
_SHORT = 4096
_SIZES_PER_ITEM = 32
"""The steps in which a list grows: whole items, and characters of the item that is cut."""
FREQUENT_WORDS = 3
DOTS = "..."
_COINED = letters(string.ascii_lowercase, 6)


def common_words(rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> Sample:
    """A numbered list in which ten words occur far more often than all others.

    ====================  ===================  ====================
    length                each common word     each uncommon word
    ====================  ===================  ====================
    4096 tokens or more   30 times             3 times
    less                  6 times              once
    ====================  ===================  ====================

    A solved example comes before, as in RULER: a list of 10 common words 10 times and 30 uncommon ones 3 times; under
    4096 tokens 3 times, and 10 once (``common_words_extraction.py``, c3f5e3b). Its words are none of the document's,
    so that no answer can be copied from it.

    The list grows by uncommon words. The last of them may occur less often than its fellows, and the last item of
    all, an uncommon one, may be cut short so that the list ends where the budget does. No word of the list contains a
    common word, other than that common word itself; so an answer found in a reply really is that answer. Example (2
    common words 3 times, uncommon once, the last item cut)::

        1. tea 2. oak 3. tea 4. ship 5. oak 6. oak 7. tea 8. lam
    """
    often, seldom = (30, 3) if budget >= _SHORT else (6, 1)
    common, uncommon = _split(rng)
    order = rng.getrandbits(64)
    drawn: list[str] = []

    def build(size: int) -> str:
        items, characters = divmod(size, _SIZES_PER_ITEM)
        drawn.extend(itertools.islice(uncommon, max(0, items // seldom + 1 - len(drawn))))
        words = common * often + [drawn[item // seldom] for item in range(items)]
        Random(order).shuffle(words)
        return _numbered(words) + f" {len(words) + 1}. {drawn[items // seldom]}"[:characters]

    wording = haystack.wording
    question, prefix = (wording.text(name, count=COMMON_WORDS) for name in ("cwe", "cwe_prefix"))
    listed, answers = _example(Random(rng.getrandbits(64)), budget, uncommon)
    framed = wording.text("cwe_document", document=listed)
    return grown(
        build, budget, count_tokens, haystack, question=question, prefix=prefix, answers=common,
        example=wording.text("example", context=framed, question=question, prefix=prefix, answers=answers),
        extra={"haystack": "words", "frequencies": [often, seldom]},
    )


def _example(rng: Random, budget: int, unused: Iterator[str]) -> tuple[str, str]:
    """The list of an example and its answers; the words are taken from ``unused``."""
    number, often, seldom = (40, 10, 3) if budget >= _SHORT else (20, 3, 1)
    words = list(itertools.islice(unused, number))
    common, uncommon = words[:COMMON_WORDS], words[COMMON_WORDS:]
    listed = common * often + uncommon * seldom
    rng.shuffle(listed)
    return _numbered(listed), _numbered(common)


def _numbered(words: Sequence[str]) -> str:
    return " ".join(f"{place}. {word}" for place, word in enumerate(words, start=1))


def _split(rng: Random) -> tuple[list[str], Iterator[str]]:
    """The common words, and the others without end: adjective-noun pairs once the English words are used up."""
    words = list(english("nouns", "adjectives", "verbs"))
    words = rng.sample(words, len(words))
    common: list[str] = []
    for word in words:
        if len(common) < COMMON_WORDS and not any(word in other or other in word for other in common):
            common.append(word)
    pairs, taken = Random(rng.getrandbits(64)), set[str]()
    endless = itertools.chain(words, (draw_new(word_pair, pairs, taken) for _ in itertools.repeat(None)))
    return common, (word for word in endless if not any(answer in word for answer in common))


# --- frequent words --------------------------------------------------------------------------------------------------
def frequent_words(rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> Sample:
    """A text of coined words whose frequencies follow a Zeta distribution with exponent 2.

    Of ``n`` words the one of rank k occurs ``floor(n / (k² ζ(2)))`` times, ζ(2) = π²/6. The first rank is not a word
    but dots, which the question tells to ignore; the answers are the ranks 2 to 4. For n = 100::

        rank     1 (dots)  2   3  4  5  6  7  8
        times    60        15  6  3  2  1  1  0

    A text is that of the largest ``n`` which fits, and of the words by which the next one is longer the first that
    fit. So a text one word longer is the same text with one word put in. Every answer occurs more often than all
    words that are no answers.
    """
    order = rng.getrandbits(64)
    taken = set[str]()
    ranked = [DOTS, *(draw_new(_COINED, rng, taken) for _ in range(FREQUENT_WORDS))]
    places: list[tuple[Random, list[float]]] = []

    def build(words: int) -> str:
        times = counts_within(words)
        while len(ranked) < len(times):
            ranked.append(draw_new(_COINED, rng, taken))
        while len(places) < len(times):
            places.append((Random(f"{order}/{len(places)}"), []))
        text: list[tuple[float, str]] = []
        for word, number, (draws, drawn) in zip(ranked, times, places, strict=False):
            drawn += [draws.random() for _ in range(number - len(drawn))]
            text += [(place, word) for place in drawn[:number]]
        return " ".join(word for _, word in sorted(text))

    question, prefix = (haystack.wording.text(name, count=FREQUENT_WORDS) for name in ("fwe", "fwe_prefix"))
    sample = grown(build, budget, count_tokens, haystack, question=question, prefix=prefix,
                   answers=ranked[1 : FREQUENT_WORDS + 1], extra={})
    times = counts_within(len(sample.context.split()))[: FREQUENT_WORDS + 2]
    if len(times) < FREQUENT_WORDS + 2 or times[-2] == times[-1]:
        raise LengthError("needs more words for its answers to stand out")
    return replace(sample, extra={"haystack": "coined words", "frequencies": times})


def zeta_counts(words: int) -> list[int]:
    """How often each rank occurs among ``words`` words, rounded down, as far as that is not 0."""
    times = (int(words * (6 / math.pi**2) / rank**2) for rank in itertools.count(1))
    return list(itertools.takewhile(bool, times))


def counts_within(total: int) -> list[int]:
    """The counts of a text of ``total`` words."""
    first_longer = total + bisect_right(range(total, 2 * total + 1), total, key=lambda words: sum(zeta_counts(words)))
    times, longer = zeta_counts(first_longer - 1), zeta_counts(first_longer)
    for rank, (now, then) in enumerate(itertools.zip_longest(times, longer, fillvalue=0)):
        if now < then and sum(times) < total:
            times[rank:] = [then, *times[rank + 1 :]]
    return times


# --- documents with questions ----------------------------------------------------------------------------------------
def document_qa(rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> Sample:
    """The question's gold documents, each whole and once, among others in this order until the length is reached: its
    own, then the rest of the file, both shuffled; when all are used up, they come again. All but the last are shuffled
    together with the gold ones; the last may be cut short so that the text ends where the budget does.

    Example, document 2 gold, 5 its own, 6 documents::

        Document 1:\\n<5>\\n\\nDocument 2:\\n<2>\\n\\nDocument 3:\\n<beginning of 0>
    """
    corpus, question = haystack.corpus, haystack.question
    assert corpus is not None and question is not None
    used = {*question.gold, *question.own}
    rest = [number for number in range(len(corpus.documents)) if number not in used]
    others = [*rng.sample(question.own, len(question.own)), *rng.sample(rest, len(rest))]
    if not others:
        raise RulerError(f"{corpus.name}: no document besides those that one question needs; give a larger file")
    endless, drawn = itertools.cycle(others), list[int]()
    order = rng.getrandbits(64)

    def entry(place: int, number: int) -> str:
        return f"\n\nDocument {place}:\n{corpus.documents[number]}"

    def build(size: int) -> str:
        """The gold documents and the first ``size`` characters of what is added to them."""
        for whole in itertools.count():
            if whole == len(drawn):
                drawn.append(next(endless))
            added = entry(len(question.gold) + whole + 1, drawn[whole])
            if len(added) > size:
                break
            size -= len(added)
        numbers = [*question.gold, *drawn[:whole]]
        Random(order).shuffle(numbers)
        entries = [entry(place, number) for place, number in enumerate(numbers, start=1)]
        return "".join([*entries, added[:size]]).removeprefix("\n\n")

    wording = haystack.wording
    return grown(build, budget, count_tokens, haystack, question=wording.text("qa", question=question.question),
                 prefix=wording.text("qa_prefix"), answers=question.answers, extra={"haystack": corpus.name})


# --- all tasks -------------------------------------------------------------------------------------------------------
class RulerTask(NamedTuple):
    """``make(rng, budget, count_tokens, haystack)`` makes one sample, without what is around its document."""

    make: MakeSample
    reply_tokens: int
    """How long a reply may be (``tokens_to_generate`` in ``data/synthetic/constants.py``, c3f5e3b)."""
    words: str
    """What its texts in a wording begin with."""
    metric: str = STRING_MATCH_ALL
    """How a reply is scored."""
    raw: Literal["squad", "hotpotqa"] | None = None
    """The file that it is made from, if any."""
    essay: bool = False
    kind: str = ""
    """Of the values that are asked for."""


NIAH = {
    "niah_single_1": Niah("noise"),
    "niah_single_2": Niah("essay"),
    "niah_single_3": Niah("essay", value="uuid"),
    "niah_multikey_1": Niah("essay", keys=4),
    "niah_multikey_2": Niah("needles"),
    "niah_multikey_3": Niah("needles", key="uuid", value="uuid"),
    "niah_multivalue": Niah("essay", values=4),
    "niah_multiquery": Niah("essay", keys=4, queries=4),
}
TASKS: dict[str, RulerTask] = {
    **{name: RulerTask(partial(niah, form), 128, form.words, essay=form.haystack == "essay", kind=form.value)
       for name, form in NIAH.items()},
    "vt": RulerTask(partial(variable_tracking, 4), 30, "vt"),
    "cwe": RulerTask(common_words, 120, "cwe"),
    "fwe": RulerTask(frequent_words, 50, "fwe"),
    "qa_1": RulerTask(document_qa, 32, "qa", STRING_MATCH_PART, raw="squad"),
    "qa_2": RulerTask(document_qa, 32, "qa", STRING_MATCH_PART, raw="hotpotqa"),
}
