"""Questions about chat histories to the files that the sifter reads: ``mem-agent prepare-sessions``.

    mem-agent prepare-sessions --format locomo --input locomo10.json --dataset locomo --test-rows 400
    mem-agent prepare-sessions --format longmemeval --input longmemeval_m.json --dataset longmemeval_m \\
        --test-share 0.3 --split-order longmemeval_s.json
    mem-agent prepare-sessions --format personamem --input questions_32k.csv --contexts shared_contexts_32k.jsonl \\
        --dataset personamem_32k
    mem-agent prepare-sessions --format rows --input perltqa_zh.jsonl --dataset zh4o

Writes ``{output-dir}/{dataset}/{split}.parquet``. Without a test share every row goes to one split, ``test`` unless
named. With one, rows are divided: in the input's order, shuffled by the seed, the first 1 - share train (MemSifter's
split of LongMemEval: 0.3, seed 42). ``--test-rows`` divides the rows that are written, so that the test has exactly
as many.

Invariants:
- an output is the whole of its rows or does not change;
- every row that is not written is counted with its reason; bad ones are shown on stderr (the first 20 one by one);
- the split is a function of the ids, their order and the seed; with a share, rows left out do not move others;
- memory holds some histories, not a file: a JSON list is read entry by entry, and rows wait on disk until all are
  read. The contexts of PersonaMem's version 1, which many questions share, are read whole.

Exit codes: 0 rows were written, 1 no good row, 2 the input cannot be used, or the
output not written, 130 interrupted.

LoCoMo (Maharana et al. 2024, ``locomo10.json``). An entry is a conversation of two people over many sessions, and
questions about it::

    {"sample_id": "conv-26", "conversation": {"speaker_a": "Caroline", "speaker_b": "Melanie",
       "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [{"speaker": "Caroline", "dia_id": "D1:3",
       "text": ..., "blip_caption": "a photo of ..."}, ...], "session_2_date_time": ..., ...},
     "qa": [{"question": ..., "answer": 2022, "evidence": ["D1:3", "D2:4"], "category": 2}, ...]}

- a speaker's name is the role of a turn, so texts, tags and embeddings name who speaks;
- a picture is its caption, ``[photo: a photo of ...]``, behind the text that came with it;
- sessions are ``session_1`` ... in the order of their numbers; a date without a session is no session;
- evidence names turns, ``D8:6`` the sixth of session 8; its session is gold. Several in one text ("D8:6; D9:17") and
  broken ones ("D:11:26", "D30:05") are read; one whose session is not there is dropped. A question without any has no
  gold: its answer is measured, its ranking is not;
- numbers are texts; of category 3, open-domain, what stands before ";" is an accepted answer as well, as published;
- category 5, adversarial, asks what the conversation does not say, and its evidence leads to the wrong answer. It is
  skipped, as MemSifter's 1,536 of 1,986 questions tell it was there.

LongMemEval (Wu et al. 2025; ``longmemeval_s``, ``_m``, ``_oracle``). Entries have the columns of ``rewards.sessions``
except for two things::

    {"question_id": "e47becba", "question_type": "multi-session", "question": ..., "answer": "4" or 4,
     "question_date": "2023/05/30 (Tue) 23:40", "haystack_dates": [...], "haystack_session_ids": [...],
     "haystack_sessions": [[{"role": "user", "content": ..., "has_answer": true}, ...], ...],
     "answer_session_ids": ["answer_280352e9_1", ...]}

- ``_abs`` at the end of a question's id: an abstention question, which asks for what never happened. Its evidence
  sessions do not hold an answer, and LongMemEval's own retrieval scores skip it: its kind is ``abstention`` and it has
  no gold;
- the oracle's sessions are in no order of time: sessions are sorted by their dates, where all have one.

A session id that a history has twice is told apart by ``#2``, and both are gold if one is.

PersonaMem (Jiang et al. 2025), multiple choice. Version 1: ``questions_32k.csv`` (128k, 1M) and
``shared_contexts_32k.jsonl``, whose lines are ``{id: [messages]}``. A question is asked behind the first
``end_index_in_shared_context`` messages of the context ``shared_context_id``; the rest is the future. Each session
begins with a system message, the persona's description, which says the same every time and is kept in the first
session alone. ``correct_answer`` is "(c)", ``all_options`` a list of "(a) ...".

Version 2: ``benchmark.csv`` names a history file for each question, in ``chat_history_32k_link`` (128k), below the
folder of ``--contexts``. ``user_query`` is a message, ``correct_answer`` a text; with ``incorrect_answers`` it makes
options (a), (b) ... in an order that the question's id decides. Its histories do not say where sessions begin: they
are cut before a user's message once a session has 10 messages.

Accepted answers are the text of the right option and its letter "(c)". Gold sessions: version 2 quotes the messages
that tell (``related_conversation_snippet``), and gold are the sessions that hold one of them. Version 1 says how far
back they are, in blocks, tokens, and as a share of the context: the session there is gold, found by characters in
place of tokens, so by estimate; of neighbours at most 1.5% of the context off the one that the blocks name is taken.
How MemSifter found them is not published.
"""

from __future__ import annotations

import argparse
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from string import ascii_lowercase
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ..rewards.sessions import HistoryQuestion, question_in, row_of
from ..system.cli import one_line_errors, positive_number, stop_if_asked, whole_number
from ..system.errors import MemAgentError, reason_of
from ..system.files import naming, replacing
from .rows import BadRow, BadRows, DataError, NoGoodRows, literal, open_file

Fields = Mapping[str, Any]
Reader = Callable[[str, Fields], Iterable[dict[str, Any]]]
"""Of a name for an entry that has no id, and its fields: the row of each of its questions. Raises LookupError,
TypeError, ValueError or OSError where the entry is of another shape."""


# --- published formats -----------------------------------------------------------------------------------------------
def _text(fields: Fields, name: str) -> str:
    """A stripped text, a number as text; empty where there is none."""
    value = fields.get(name)
    return str(value).strip() if isinstance(value, str | int | float) and value == value else ""


def read_rows(name: str, fields: Fields) -> Iterable[dict[str, Any]]:
    """A row in the columns of ``rewards.sessions``. Sets in other languages come this way: a Chinese one (PerLTQA)
    needs nothing but ``question``, ``answer`` and ``haystack_sessions``. What else a row has travels along.
    """
    return [{**fields, "question_id": _text(fields, "question_id") or name}]


KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D:?(\d+):\s*\d+", re.I)


def read_locomo(name: str, fields: Fields) -> Iterator[dict[str, Any]]:
    conversation, name = fields["conversation"], _text(fields, "sample_id") or name
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    ids = [f"session_{number}" for number in numbers if conversation[f"session_{number}"]]
    talks = [[{"role": _text(turn, "speaker"), "content": _said(turn)} for turn in conversation[id]] for id in ids]
    dates = [_text(conversation, f"{id}_date_time") for id in ids]
    for number, asked in enumerate(fields["qa"]):
        kind, answer, given = KINDS[asked["category"]], _text(asked, "answer"), asked.get("evidence")
        answers = {"adversarial": [], "open-domain": [answer.split(";")[0].strip(), answer]}.get(kind, [answer])
        evidence = [str(each) for each in (given if isinstance(given, list) else [given]) if each is not None]
        named = {f"session_{int(session)}" for text in evidence for session in _TURN.findall(text)}
        yield {
            "question_id": f"{name}_{number}", "question": asked.get("question"), "answers": answers,
            "haystack_sessions": talks, "haystack_session_ids": ids, "haystack_dates": dates,
            "answer_session_ids": [id for id in ids if id in named], "question_type": kind,
            "sample_id": name, "category": asked["category"], "evidence": evidence,
        }


def _said(turn: Fields) -> str:
    caption = _text(turn, "blip_caption")
    return " ".join(filter(None, [_text(turn, "text"), f"[photo: {caption}]" if caption else ""]))


_DATE = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})\D*(?:(\d{1,2}):(\d{2}))?")


def read_longmemeval(name: str, fields: Fields) -> Iterable[dict[str, Any]]:
    id, talks = _text(fields, "question_id") or name, fields["haystack_sessions"]
    ids = list(map(str, fields["haystack_session_ids"]))
    dates = [str(date or "").strip() for date in fields.get("haystack_dates") or [""] * len(talks)]
    if not talks or not len(talks) == len(ids) == len(dates):
        raise BadRow(f"{len(talks)} sessions, {len(ids)} of their ids and {len(dates)} of their dates")
    times = [ids[: n + 1].count(each) for n, each in enumerate(ids)]
    names = [each if time == 1 else f"{each}#{time}" for each, time in zip(ids, times, strict=True)]  # a a -> a a#2
    found, order = list(filter(None, map(_DATE.search, dates))), list(range(len(talks)))
    if len(found) == len(dates):
        order.sort(key=lambda n: [int(part or 0) for part in found[n].groups()])
    evidence = set(map(str, fields.get("answer_session_ids") or ()))
    abstains = {"question_type": "abstention", "answer_session_ids": []} if id.endswith("_abs") else {}
    return [{
        **fields, "question_id": id, "answer_session_ids": [names[n] for n in order if ids[n] in evidence],
        "haystack_sessions": [talks[n] for n in order], "haystack_session_ids": [names[n] for n in order],
        "haystack_dates": [dates[n] for n in order], **abstains,
    }]


READERS: dict[str, Reader] = {"locomo": read_locomo, "longmemeval": read_longmemeval, "rows": read_rows}


# --- PersonaMem ------------------------------------------------------------------------------------------------------
SESSION_TURNS = 10
_NEAR = 0.015
_DISTANCES = ("distance_to_ref_in_tokens", "context_length_in_tokens", "distance_to_ref_in_blocks")
Talks = list[list[Fields]]
"""The messages of each session."""


def personamem_reader(contexts: Path | None, size: str) -> Reader:
    """``contexts`` is the JSONL file of version 1, or the folder that the links of version 2 start from; ``size``
    chooses among those links. Raises DataError."""
    if contexts is None or not contexts.exists():
        raise DataError(f"--contexts {contexts}: name PersonaMem's shared_contexts file, or its folder of histories")
    if contexts.is_dir():
        return partial(_linked_question, contexts, f"chat_history_{size}_link")
    # All of the file, some 100 MB at most.
    shared = {id: messages for row in open_file(contexts) for id, messages in row.fields.items()}
    return partial(_shared_question, shared)


def _shared_question(shared: Fields, name: str, fields: Fields) -> Iterable[dict[str, Any]]:
    options, label = literal(fields["all_options"]), _text(fields, "correct_answer").lower()
    right = [option for option in options if option.lower().startswith(label)]
    if len(right) != 1:
        raise BadRow(f"correct_answer {label!r:.20} begins {len(right)} of its {len(options)} options")
    messages, end = shared[_text(fields, "shared_context_id")], int(fields["end_index_in_shared_context"])
    talks = _sessions(messages[:end])
    gold = _by_distance(talks, fields)
    return [{
        "question_id": _text(fields, "question_id") or name, "question": fields["user_question_or_message"],
        "answers": [right[0][len(label) :].strip(), label], "haystack_sessions": talks, "answer_session_ids": gold,
        "question_type": fields.get("question_type"), "all_options": options,
        "shared_context_id": _text(fields, "shared_context_id"), "gold_by": "distance" if gold else "",
    }]


def _by_distance(talks: Talks, fields: Fields) -> list[str]:
    """The session that lies as far back as the evidence, of ``context_length_in_tokens``; none where nothing says."""
    try:
        tokens, length, blocks = (int(_text(fields, name)) for name in _DISTANCES)
        back, named = tokens / length, len(talks) - 1 - blocks
    except (ValueError, ZeroDivisionError):
        return []
    ends = list(accumulate(sum(len(message["content"]) for message in talk) for talk in talks))
    place, near = (1 - back) * ends[-1], _NEAR * ends[-1]
    spans = list(zip([0, *ends], ends, strict=False))
    if 0 <= named < len(talks) and spans[named][0] - near <= place <= spans[named][1] + near:
        return [f"session_{named}"]
    return [f"session_{next((n for n, end in enumerate(ends) if place < end), len(talks) - 1)}"]


def _linked_question(folder: Path, link: str, name: str, fields: Fields) -> Iterable[dict[str, Any]]:
    id = _text(fields, "question_id") or f"{_text(fields, 'persona_id')}_{name.rpartition('_')[2]}"
    asked, right = literal(fields["user_query"]), _text(fields, "correct_answer")
    texts = [right, *(text.strip() for text in literal(fields["incorrect_answers"]) if text.strip() != right)]
    random.Random(id).shuffle(texts)
    quoted = literal(fields.get("related_conversation_snippet"))
    quoted = quoted if isinstance(quoted, list) else [quoted]  # a single one may stand for a list
    told = {_text(message, "content") for message in quoted if isinstance(message, dict)} - {""}
    talks = _linked_sessions(folder / fields[link])
    gold = [f"session_{n}" for n, talk in enumerate(talks) if any(turn["content"].strip() in told for turn in talk)]
    return [{
        "question_id": id, "question": asked["content"] if isinstance(asked, dict) else asked,
        "answers": [right, f"({ascii_lowercase[texts.index(right)]})"], "haystack_sessions": talks,
        "answer_session_ids": gold, "question_type": fields.get("pref_type"),
        "all_options": [f"({letter}) {text}" for letter, text in zip(ascii_lowercase, texts, strict=False)],
        "gold_by": "quotation" if gold else "",
    }]


@lru_cache(maxsize=2)
def _linked_sessions(file: Path) -> Talks:
    found = orjson.loads(file.read_bytes())
    return _sessions(found["chat_history"] if isinstance(found, dict) else found)


def _sessions(messages: Sequence[Fields]) -> Talks:
    """Cut at system messages; with one at most, at a user's message behind ``SESSION_TURNS`` others."""
    marked = sum(message["role"] == "system" for message in messages) > 1
    talks, persona = list[list[Fields]]([[]]), ""
    for message in messages:
        is_system = message["role"] == "system"
        if is_system if marked else message["role"] == "user" and len(talks[-1]) >= SESSION_TURNS:
            talks.append([])
        if not is_system or message["content"] != persona:
            talks[-1].append(message)
        persona = message["content"] if is_system else persona
    return list(filter(None, talks))


# --- the command -----------------------------------------------------------------------------------------------------
@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent prepare-sessions", description="Write histories for the sifter.")
    add = parser.add_argument
    add("--format", required=True, choices=(*READERS, "personamem"), help="of the input; rows: the sifter's own")
    add("--input", required=True, type=Path, nargs="+", metavar="FILE", help="questions: JSON, CSV or parquet")
    add("--contexts", type=Path, metavar="PATH",
        help="personamem: its shared_contexts .jsonl, or the folder of version 2's histories")
    add("--size", default="32k", choices=("32k", "128k"), help="personamem, version 2: which histories (32k)")
    add("--output-dir", type=Path, default=Path("data"), metavar="DIR", help="(data)")
    add("--dataset", required=True, metavar="NAME", help="folder below it")
    one = parser.add_mutually_exclusive_group().add_argument
    one("--split", metavar="NAME", help="the file's name (test)")
    one("--test-share", type=float, metavar="S", help="divide rows: this share is the test")
    one("--test-rows", type=positive_number, metavar="N", help="divide rows: so many are the test")
    add("--seed", type=whole_number, default=42, help="of that division (42)")
    add("--split-order", type=Path, metavar="FILE", help="take ids and their order from this file")
    add("--with-gold", action="store_true", help="leave out questions without a gold session")
    args = parser.parse_args(argv)
    read = personamem_reader(args.contexts, args.size) if args.format == "personamem" else READERS[args.format]
    folder: Path = args.output_dir / args.dataset
    folder.mkdir(parents=True, exist_ok=True)
    bad, skipped = BadRows("prepare_sessions"), Counter[str]()
    places = dict[str, int | None]()  # of every question: where its row waits in ``spool``; None if it is left out
    with naming(folder), TemporaryFile(dir=folder) as spool, ExitStack() as files:
        for where, id, question in tqdm(_questions(args.input, read), unit=" questions", disable=None):
            if isinstance(question, str):
                bad.add(f"{where}: {question}")
            elif not question.sessions:
                bad.add(f"{where}: its history has no sessions")
            elif places.get(id) is not None:
                bad.add(f"{where}: question_id {id!r:.60} is that of a row before; give each its own")
            elif not question.answers and args.format != "rows":
                skipped[f"{question.kind}, without an answer"] += 1
            elif args.with_gold and not question.gold:
                skipped["without a gold session"] += 1
            else:
                places[id] = spool.tell()
                pickle.dump(row_of(question), spool)
            places.setdefault(id)
        bad.tell_rest()
        reasons = [f"{count} {reason}" for reason, count in [*skipped.most_common(), ("bad", bad.count)] if count]
        left_out = f"left out: {bad.count + skipped.total()} rows" + (f" ({'; '.join(reasons)})" if reasons else "")
        splits = _splits(args, read, places)
        if empty := [split for split, found in splits.items() if not found]:
            raise NoGoodRows(f"{args.input[0]}: no row for {' and '.join(empty)}; {left_out}; nothing is written")
        for split, found in splits.items():  # all are made before any is put in its place
            _write(spool, found, files.enter_context(replacing(folder / f"{split}.parquet")))
    print(*(f"{folder / split}.parquet: {len(found)} rows" for split, found in splits.items()), left_out, sep="\n")
    return 0


def _questions(paths: Sequence[Path], read: Reader) -> Iterator[tuple[str, str, HistoryQuestion | str]]:
    """Where each question stands, its id, and the question or why there is none. Raises DataError."""
    for path in paths:
        for number, row in enumerate(open_file(path)):
            stop_if_asked()
            where = f"{path.name}: {row.where}"
            try:
                for made in read(f"{path.stem}_{number}", row.fields):
                    id = made["question_id"]
                    try:
                        yield f"{where} ({id})", id, question_in(made)
                    except ValueError as error:
                        yield f"{where} ({id})", id, str(error)
            except BadRow as error:
                yield where, where, str(error)
            except (AttributeError, LookupError, TypeError, ValueError, OSError) as error:
                yield where, where, f"cannot be read ({reason_of(error)}); check --format"


def _splits(args: argparse.Namespace, read: Reader, places: Mapping[str, int | None]) -> dict[str, list[int]]:
    """Where the rows of each output wait. Raises DataError."""
    if not places:
        raise DataError(f"{', '.join(map(str, args.input))}: no row")
    written = {id: place for id, place in places.items() if place is not None}
    if not written:
        return {args.split or "test": []}  # all bad, as the lines above say
    if not (args.test_share or args.test_rows):
        return {args.split or "test": list(written.values())}
    order = list(written if args.test_rows else places)
    if args.split_order:
        order = list(dict.fromkeys(id for _, id, _ in _questions([args.split_order], read)))
        if absent := [id for id in written if id not in set(order)]:
            raise DataError(f"--split-order {args.split_order}: it lacks {absent[0]!r:.60}, which the input has")
    trains = len(order) - args.test_rows if args.test_rows else int(len(order) * (1 - args.test_share) + 1e-9)
    if not 0 < trains < len(order):
        raise DataError(f"{len(order) - trains} of {len(order)} to the test: both splits need some")
    random.Random(args.seed).shuffle(order)
    tested = set(order[trains:])
    return {"train": [place for id, place in written.items() if id not in tested],
            "test": [place for id, place in written.items() if id in tested]}


# --- the file --------------------------------------------------------------------------------------------------------
_ROWS, _CHARACTERS = 64, 32 << 20
"""Of a row group, at most about: a reader needs no more memory than that."""
_PAGE_ROWS = 4
"""Rows that are encoded together: a page is unpacked whole, and a history has millions of characters."""


def _write(spool: BinaryIO, places: Sequence[int], file: BinaryIO) -> None:
    """A parquet file of the rows at these places. Columns that no stage reads travel along; those of the first row
    group decide which there are, and of which type."""
    group, writer = list[dict[str, Any]](), None
    for place in places:
        spool.seek(place)
        group.append(pickle.load(spool))
        characters = sum(len(row["haystack_sessions"]) for row in group)
        if len(group) == _ROWS or characters >= _CHARACTERS or place == places[-1]:
            if writer is None:
                writer = pq.ParquetWriter(file, _schema(group), compression="zstd", write_batch_size=_PAGE_ROWS)
            writer.write_table(pa.Table.from_pylist(group, writer.schema))
            group = []
    if writer is not None:
        writer.close()


def _schema(rows: list[dict[str, Any]]) -> pa.Schema:
    """A column without any value is of texts, one of empty lists of lists of texts."""
    empty = {pa.null(): pa.string(), pa.list_(pa.null()): pa.list_(pa.string())}
    names = dict.fromkeys(name for row in rows for name in row)
    types = {name: pa.infer_type([row.get(name) for row in rows]) for name in names}
    types = {name: empty.get(kind, kind) for name, kind in types.items()}
    return pa.schema(types | {"haystack_sessions": pa.large_string()})
