"""Files of rows: training data, histories, evaluation's questions."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from mem_agent.data.asked import Asked, BadQuestion, LeftOut
from mem_agent.data.locomo import read_locomo
from mem_agent.data.longmemeval import read_longmemeval
from mem_agent.data.manifest import sha256_of
from mem_agent.data.personamem import read_personamem
from mem_agent.data.pool import read_questions
from mem_agent.data.questions import BadRow
from mem_agent.data.row_files import open_rows
from mem_agent.data.session_rows import read_rows as read_session_rows
from mem_agent.data.sources import open_file
from mem_agent.data.training_rows import Conversion
from mem_agent.evaluation.closed_book import _read_replies
from mem_agent.evaluation.questions import data_hash, load_questions
from mem_agent.rewards.ranked_row import read_history, read_row
from mem_agent.sessions.ranking import ASKED
from mem_agent.sessions.render import embedded_text, render_history
from mem_agent.sessions.wording import load_wording
from mem_agent.system import bounded_json
from mem_agent.tests.fuzz.target import Target, written
from mem_agent.tests.helpers.question_rows import COLUMNS, HOTPOTQA, MEMAGENT, MUSIQUE, PLAIN, SQUAD, SQUAD_FILE

OWN = {"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"], "context": "Document 1:\nAnn"}}
ROWS = [PLAIN, HOTPOTQA, {**HOTPOTQA, **COLUMNS}, MUSIQUE, SQUAD, MEMAGENT, OWN]
TALK = [{"role": "user", "content": "I moved to <session1> Lyon.", "has_answer": True},
        {"role": "Ann", "content": "How is it?"}]
HISTORY = {
    "question_id": "e4", "question": "Where?", "answer": "Lyon", "haystack_sessions": [TALK, TALK],
    "haystack_session_ids": ["s1", "s2"], "haystack_dates": ["2023/05/20 (Sat) 02:11", "2023/05/21"],
    "answer_session_ids": ["s1"], "question_type": "multi", "all_options": ["(a) x"], "question_date": "2023/05/30",
}
LOCOMO = [{
    "sample_id": "conv-26", "conversation": {
        "session_1_date_time": "1:56 pm", "session_1": [{"speaker": "Ann", "text": "Hi.", "blip_caption": "a cat"}]},
    "qa": [{"question": "Who?", "answer": 2022, "evidence": ["D1:3; D:2:4"], "category": 2},
           {"question": "Why?", "answer": "a; b", "evidence": ["D1:1"], "category": 3}],
}]
PERSONA_1 = [{
    "question_id": "q", "user_question_or_message": "What?", "all_options": '["(a) x", "(b) y"]',
    "correct_answer": "(a)", "shared_context_id": "c", "end_index_in_shared_context": 2,
    "distance_to_ref_in_tokens": 5, "context_length_in_tokens": 10, "distance_to_ref_in_blocks": 1,
}]
PERSONA_2 = [{
    "persona_id": 1, "user_query": "{'role': 'user', 'content': 'What?'}", "correct_answer": "x",
    "incorrect_answers": "['y', 'z']", "chat_history_32k_link": "history.json", "pref_type": "p",
    "related_conversation_snippet": "[{'role': 'user', 'content': 'Hi'}]",
}]
EVAL = [
    {"context": "Document 1:\nAnna\nhas the red key.", "input": "What has Anna?", "answers": ["a key"], "index": 0},
    {"input": "Reach 24.", "answers": ["6 * 4"], "index": 1, "task": "countdown", "reply_prefix": "So: ",
     "messages": [{"role": "system", "content": "Be brief."}], "metadata": {"numbers": [6, 4], "target": 24}},
    {"documents": [1, 0], "input": "x", "answers": ["y"], "id": "z", "metric": "string_match_all",
     "tokens_to_generate": 3},
]


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _dumped(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


def _converted(name: str) -> Callable[[bytes], None]:
    """Rows of a file as ``prepare_data`` takes them: a bad one is left out, and others follow."""

    def run(data: bytes) -> None:
        for needs in (True, False):
            conversion = Conversion(None, needs, 100, None)
            for row in open_file(written(name, data)).rows:
                assert row.fields is not None or (row.problem and "\n" not in row.problem)
                with suppress(BadRow):
                    conversion.row(row.fields or {})

    return run


def _built(found: Iterable[Asked]) -> None:
    """Whatever a question becomes that a stage reads: rendered, asked about."""
    for asked in found:
        assert asked.where
        try:
            question = asked.build()
        except (BadQuestion, LeftOut):
            continue
        history = render_history(question.sessions)
        assert history.count("</session>") == len(question.sessions)
        list(map(embedded_text, question.sessions))
        load_wording().ranking_prompt(question.question, history, ASKED, question.language, question.date)
        load_wording().chat_prompt(question.question, history, question.language, question.date, question.options)


def _histories(name: str, read: Callable[[Sequence[Path]], Iterable[Asked]]) -> Callable[[bytes], None]:
    return lambda data: _built(read([written(name, data)]))


def _persona(data: bytes) -> None:
    """Version 1, whose histories are in one file, and version 2, whose histories are linked."""
    history = written("persona/history.json", json.dumps({"chat_history": TALK}).encode())
    shared, questions = written("persona/shared.jsonl", _lines({"c": TALK})), written("persona/questions.json", data)
    for contexts in (shared, history.parent):
        _built(read_personamem([questions], contexts))


def _training_file(data: bytes) -> None:
    rows = open_rows(written("train.jsonl", data))
    for number in range(min(len(rows), 4)):
        rows.row(number)


def _parquet_file(data: bytes) -> None:
    rows = open_rows(written("train.parquet", data))
    for number in range(min(len(rows), 4)):
        rows.row(number)


def _raw(data: bytes) -> None:
    for _ in read_questions(written("raw.json", data)):
        pass


def _evaluated(data: bytes) -> None:
    corpus = written("eval/corpus.jsonl", _lines("Anna has.", "Ben is."))
    written("eval/eval_50.json", data)
    made_with = {"source": {}, "sha256": "", "bytes": 0, "corpus": {"file": corpus.name, "sha256": sha256_of(corpus)}}
    written("eval/manifest.json", json.dumps({"files": {"eval_50.json": made_with}}).encode())
    for entry in load_questions(corpus.parent, "50"):
        assert isinstance(entry.question.metadata.get("task") or "", str) and entry.question.prompt
    data_hash(corpus.parent, "50")


def _ranked(data: bytes) -> None:
    try:
        found = bounded_json.loads(data)  # as training files are read
    except ValueError:
        return
    if isinstance(found, dict) and "sessions" not in found:
        read_row(found)
    else:
        read_history(data.decode("utf-8", "replace"), 2)


def _replies(data: bytes) -> None:
    _read_replies(written("closed_book.jsonl", data), 1)


@cache
def _parquet(*rows: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([json.loads(row) for row in rows]), out)
    return out.getvalue()


RANKED = {"question": "Where?", "answers": ["Lyon"], "shown": 2, "session_tokens": [4, 5], "history_id": "h",
          "options": ["a"], "language": "en"}
STORED = {"sessions": [TALK, TALK], "ids": ["s1", "s2"], "dates": ["", ""]}
_JSON_WORDS = (b"[", b"{", b"]", b"}", b'"', b",", b"\\", b"\xef\xbb\xbf", b"\n", b'"context"', b"null", b"1e400")
TARGETS = (
    Target("rows_lines", _converted("rows.jsonl"), (_lines(*ROWS), _lines(OWN)), _JSON_WORDS),
    Target("rows_list", _converted("rows.json"), (*_dumped(ROWS, [PLAIN]), b"[]", b'[{"a": [1, 2]}, 7]'), _JSON_WORDS),
    Target("rows_csv", _converted("rows.csv"), (
        b'question,answers,context\nWho?,"[""Ann""]","Ann is."\nWhy?,x,y\n', b"question,answer\r\na,b\r\n"),
        (b'"', b",", b"\n", b"\r", b'"[', b"\0", b"question")),
    Target("rows_parquet", _converted("rows.parquet"), (_parquet(json.dumps(PLAIN)), _parquet(json.dumps(OWN)))),
    Target("raw_questions", _raw, _dumped([HOTPOTQA, MUSIQUE], SQUAD_FILE), _JSON_WORDS),
    Target("training_lines", _training_file, (_lines(OWN, OWN),), _JSON_WORDS),
    Target("training_parquet", _parquet_file, (_parquet(json.dumps(OWN)),)),
    Target("session_rows", _histories("sessions.json", read_session_rows), _dumped([HISTORY]),
           (b"session_1", b"<session0>", "中".encode(), b"[")),
    Target("longmemeval", _histories("long.json", read_longmemeval), _dumped([HISTORY]), (b"_abs", b"2023/05/20")),
    Target("locomo", _histories("locomo.json", read_locomo), _dumped(LOCOMO), (b"session_", b"D1:", b"D:0")),
    Target("personamem", _persona, _dumped(PERSONA_1, PERSONA_2), (b"history.json", b"(a)", b"[", b"(", b"'")),
    Target("eval_questions", _evaluated, _dumped(EVAL, EVAL[:1]), _JSON_WORDS),
    Target("ranked_rows", _ranked, _dumped(RANKED, STORED), (b"en", b"zh")),
    Target("closed_book", _replies, (_lines({"id": "a", "replies": ["x"]}),)),
)
