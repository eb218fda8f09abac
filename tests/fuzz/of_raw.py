"""What evaluation data are made of: raw files whole, corpora, numbers of documents, essays, sentences, verdicts."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from mem_agent.data.document_store import DocumentStore
from mem_agent.data.download import _pinned
from mem_agent.data.haystack import HaystackError, haystack
from mem_agent.data.manifest import read_manifest, sha256_of
from mem_agent.data.options import Layout
from mem_agent.data.pool import Column, Corpora, PoolQuestion, load_corpora, read_questions
from mem_agent.data.published import published_ids
from mem_agent.data.questions import Question
from mem_agent.data.ruler_corpus import read_hotpotqa, read_squad
from mem_agent.data.selection import read_dropped
from mem_agent.evaluation.closed_book import _settings_in
from mem_agent.evaluation.questions import data_hash, load_questions
from mem_agent.rewards.answer_kinds import AnswerKind, kind_of
from mem_agent.rewards.qa_metrics import normalise_squad
from mem_agent.ruler.document_frame import frame_of
from mem_agent.ruler.maker import read_essay
from mem_agent.ruler.tasks import TASKS
from mem_agent.ruler.wording import _NAMES, Sentences, load_wording
from mem_agent.system.bounded_json import loads
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.fuzz.target import Target, scratch, written
from mem_agent.tests.helpers.question_rows import HOTPOTQA, MUSIQUE, SQUAD, SQUAD_FILE

_DOCUMENTS = 3
"""Numbers that ``_questions_of`` asks for."""


def _eval_file(entries: bytes, **beside: bytes) -> Path:
    for name, content in beside.items():
        written(f"eval/{name}", content)
    written("eval/eval_9.json", entries)
    return scratch() / "eval"


def _questions_of(folder: Path) -> None:
    for entry in load_questions(folder, "9"):
        assert entry.context.startswith("Document 1:\n")
    data_hash(folder, "9")


def _corpus_lines(data: bytes) -> None:
    """``corpus.jsonl`` beside an evaluation file that names its documents."""
    entries = [{"documents": [n, 0], "input": "Who?", "answers": ["Ann"], "index": n} for n in range(1, _DOCUMENTS)]
    folder = _eval_file(json.dumps(entries).encode(), **{"corpus.jsonl": data})
    made_with = {"source": {}, "sha256": "", "bytes": 0, "corpus": {"sha256": sha256_of(folder / "corpus.jsonl")}}
    written("eval/manifest.json", json.dumps({"files": {"eval_9.json": made_with}}).encode())
    _questions_of(folder)


def _published(data: bytes) -> None:
    """A published file, whose entries have numbers of documents, with the raw file beside it."""
    folder = _eval_file(data, **{"hotpot_dev_distractor_v1.json": json.dumps([HOTPOTQA, MUSIQUE]).encode()})
    raw = folder / "hotpot_dev_distractor_v1.json"
    with suppress(MemAgentError):
        published_ids(folder / "eval_9.json", raw)
    for entry in load_questions(folder, "9"):
        assert entry.question.prompt
    data_hash(folder, "9")


def _pool(data: bytes) -> None:
    """Raw files as synthesis reads them, and documents of their questions, against the rows of the file."""
    path = written("raw/pool.json", data)
    for as_published in (False, True):
        corpora: Corpora = load_corpora([path], as_published)
        rows = {row.id: row for _, row in read_questions(path) if isinstance(row, Question)}
        texts = corpora.pool.texts
        assert len({texts[number] for number in range(len(texts))}) == len(texts)
        for question in corpora.questions[:3]:
            kept = [paragraph for paragraph in rows[question.id].paragraphs
                    if as_published or "".join(paragraph.sentences).strip()]
            gold = {_letters(paragraph.document) for paragraph in kept if paragraph.gold}
            assert gold and {_letters(texts[number]) for number in question.gold} == gold
            assert {_letters(texts[number]) for number in question.paragraphs} >= {_letters(p.document) for p in kept}
            for layout in Layout:
                with suppress(HaystackError):
                    _is_haystack(texts, question, haystack(corpora.pool, question, 2, 1, layout), layout)


def _letters(text: str) -> str:
    return "".join(text.split())


def _is_haystack(texts: Column, question: PoolQuestion, found: tuple[int, ...], layout: Layout) -> None:
    assert len({*found}) == 2 and {*question.gold} <= {*found}
    strangers = {*found} - {*question.gold} - (set() if layout is Layout.CLEAN else {*question.own})
    answers = {form for answer in question.answers
               if kind_of(answer) is not AnswerKind.CHOICE and (form := normalise_squad(answer))}
    if layout is not Layout.PUBLISHED:
        assert not [form for number in strangers for form in answers if f" {form} " in
                    f" {normalise_squad(texts[number])} "]


def _ruler_corpus(data: bytes) -> None:
    """Each question's gold documents are those that its row names; the others of it are of the file."""
    path = written("raw/corpus.json", data)
    for read, rows in ((read_squad, _squad_gold), (read_hotpotqa, _hotpotqa_gold)):
        with suppress(MemAgentError):
            corpus = read(path)
            gold = rows(path)
            assert corpus.questions and len({*corpus.documents}) == len(corpus.documents)
            for question in corpus.questions:
                named = [corpus.documents[number] for number in sorted(question.gold)]
                assert named and (question.question, named) in gold
                assert not {*named} & {corpus.documents[number] for number in question.own}


def _squad_gold(path: Path) -> list[tuple[str, list[str]]]:
    """Every question with the paragraph that it stands under."""
    return [(asked["question"], [paragraph["context"]]) for article in loads(path.read_bytes())["data"]
            for paragraph in article["paragraphs"] for asked in paragraph["qas"]]


def _hotpotqa_gold(path: Path) -> list[tuple[str, list[str]]]:
    """Every question with the documents that it names, or with all; of a title that repeats the last one counts."""
    found = []
    for _, row in read_questions(path):
        if isinstance(row, Question):
            last = [paragraph for place, paragraph in enumerate(row.paragraphs)
                    if paragraph.title not in [later.title for later in row.paragraphs[place + 1 :]]]
            named = {p.document for p in last if p.gold} or {p.document for p in last}
            found.append((row.question, sorted(named)))
    return found


def _essay(data: bytes) -> None:
    texts = [read_essay([written(f"essay{suffix}", data)], Sentences()).text for suffix in (".json",)]
    with suppress(MemAgentError):
        texts.append(read_essay([written("essay.txt", data)], Sentences()).text)
    assert all(text and "\n" not in text for text in texts)


def _sentences(data: bytes) -> None:
    """Sentences that were not refused can be filled in, and are as long as they look."""
    wording = load_wording(written("wording.yaml", data))
    for name, names in _NAMES.items():
        text = getattr(wording, name)
        assert len(text.format(**dict.fromkeys(names, ""))) <= len(text)
    for task in TASKS:
        frame_of(task, wording)


def _stored(data: bytes) -> None:
    """A document in a store, under its right hash."""
    id = hashlib.sha256(data).hexdigest()[:16]
    written("raw.docs/documents.bin", data)
    written("raw.docs/index.jsonl", json.dumps({"id": id, "offset": 0, "bytes": len(data)}).encode())
    store = DocumentStore(scratch() / "raw.docs")
    try:
        store.get(id).encode()
    finally:
        store.close()


def _verdict(data: bytes) -> None:
    """What closed_book wrote, and what a folder was downloaded from."""
    path = written("closed/manifest.json", data)
    for read in (_settings_in, lambda path: _pinned(read_manifest(path.parent), "some/set")):
        with suppress(MemAgentError):
            read(path)
    assert all(isinstance(id, str) for id in read_dropped(path))


def _dumped(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


_NUMBERED = {"context": [1, 0], "input": "Who?", "answers": ["Ann"], "num_docs": 2, "index": 0}
_DOWNLOADED = {"source": {"kind": "download", "dataset": "some/set", "revision": "x"}, "sha256": "", "bytes": 1}
_JSON = (b"[", b"{", b"]", b"}", b'"', b",", b"\\", b"\xef\xbb\xbf", b"\n", b"null", b"1e400", b"\\ud800")
_WORDING = (b"needle: '{key}: {value}'\nqa_prefix: ''\n",
            b"vt: 'Which of {value}, {count}?'\ncwe_document: |\n  W: {document}\n")
TARGETS = (
    Target("corpus_lines", _corpus_lines, (b'"Ann\\nAnn is."\n"Bob\\nBob is."\n"Eve"\n',), _JSON),
    Target("published_file", _published, _dumped([_NUMBERED]), (*_JSON, b'"context"', b'"index"')),
    Target("raw_pool", _pool, _dumped([HOTPOTQA, MUSIQUE], SQUAD_FILE, [SQUAD]), _JSON),
    Target("ruler_corpus", _ruler_corpus, _dumped(SQUAD_FILE, [HOTPOTQA]), _JSON),
    Target("ruler_essay", _essay, (b'{"text": "Ann is here.\\nAnd Bob."}',), _JSON),
    Target("ruler_sentences", _sentences, _WORDING,
           (b"{key}", b"{", b"}", b":>9", b"!r", b"{{", b"'", b"needle: ", b"&a ", b"*a", b"[0]", b".x")),
    Target("stored_document", _stored, ("Zürich is here.".encode(), b""), (b"\xff", b"\xf0\x9f", b"\xed\xa0\x80")),
    Target("verdict", _verdict, _dumped({"dropped": ["a", "b"], "files": {"eval_50.json": _DOWNLOADED}}), _JSON),
)
