"""Question answering (``qa_1`` of SQuAD, ``qa_2`` of HotpotQA): gold documents among others of the same file.

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

import itertools
from collections.abc import Sequence
from pathlib import Path
from random import Random

import orjson

from ...system.errors import reason_of
from ..pool import PoolQuestion, read_questions
from ..rows import DataError
from .sample import Corpus, CountTokens, Haystack, RulerError, Sample, grown

_Found = tuple[str, Sequence[str], Sequence[str], Sequence[str]]
"""Question, answers, gold documents, and all documents among which it is asked, the gold ones too."""


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
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
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
    if not documents:
        raise DataError(f"{path}: no question with an answer among paragraphs")
    numbers = {document: number for number, document in enumerate(documents)}
    questions = []
    for question, answers, gold, texts in found:
        needed, every = (tuple(dict.fromkeys(numbers[text] for text in each)) for each in (gold, texts))
        questions.append(PoolQuestion("", question, tuple(dict.fromkeys(answers)), needed, every))
    return Corpus(path.name, tuple(documents), tuple(rng.sample(questions, len(questions))))
