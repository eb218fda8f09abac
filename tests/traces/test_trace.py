"""Traces on disk are read as they were written; what is none is named. Pieces joined are the reply."""

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer
from mem_agent.traces.trace import (
    Trace,
    TraceDocument,
    TraceError,
    TraceTurn,
    line_of,
    pieces_of,
    read_traces,
    trace_files,
)

DOCUMENT = TraceDocument(id="9f", sections=("Ann has", "silver."))
TURN = TraceTurn(kind="memory", sections=(0,), reply="metal", memory="metal", pieces=("met", "al"),
                 log_probs=(-0.25, -0.5), rewards={"recall": 0.5}, gold=False)
TRACE = Trace(id="12-3-0", rollout=12, group="3", question="Which?", golds=("silver",), document="9f", turns=(TURN,),
              reward=1.0, reward_parts={"answer": 1.0}, outcome="completed")


def read(tmp_path, *lines):
    (tmp_path / "x.jsonl").write_bytes(b"".join(lines))
    return list(read_traces(tmp_path / "x.jsonl"))


def test_lines_are_read_as_they_were_written_and_what_a_later_version_added_is_ignored(tmp_path):
    records = [DOCUMENT, TRACE, Trace(id="x")]
    assert read(tmp_path, *map(line_of, records)) == records
    assert read(tmp_path, line_of(DOCUMENT).replace(b'"id"', b'"later":1,"id"')) == [DOCUMENT]


@pytest.mark.parametrize(("line", "named"), [
    (b"{", ""), (b"[]", ""), (b"{}", ""), (b'{"kind":"x"}', ""), (b'{"kind":"trajectory"}', "id"),
    *((orjson.dumps(orjson.loads(line_of(TRACE)) | {name: wrong}), name) for name, wrong in (
        ("turns", "x"), ("turns", [1]), ("scores", None), ("golds", "silver"), ("rollout", 1.5), ("question", None))),
], ids=str)
def test_what_is_no_trace_is_named_by_file_line_and_field(tmp_path, line, named):
    with pytest.raises(TraceError, match=rf"x\.jsonl: line 2 is no trace \({named}"):
        read(tmp_path, line_of(TRACE), line + b"\n")


def test_what_json_and_numpy_have_for_numbers(tmp_path):
    values = orjson.loads(line_of(TRACE)) | {"reward_parts": {"a": None, "b": True}}
    (found,) = read(tmp_path, orjson.dumps(values) + b"\n")
    assert found.reward_parts == {"a": None, "b": True}
    trace = Trace(id="x", reward=np.float32(0.5), accuracy=np.float64(1), scores={"mine": np.bool_(True)})
    assert read(tmp_path, line_of(trace)) == [Trace(id="x", reward=0.5, accuracy=1.0, scores={"mine": True})]


def test_half_a_line_at_the_end_is_not_read(tmp_path):
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "trajectories" / "50.jsonl").write_bytes(line_of(DOCUMENT) + line_of(TRACE) + line_of(TRACE)[:40])
    (file,) = trace_files(tmp_path)
    assert list(read_traces(file)) == [DOCUMENT, TRACE]


TODAY = b'''{"kind":"document","id":"4f78","sections":["tool axe.","animal dog."]}
{"kind":"trajectory","id":"3-24-0","rollout":3,"length":null,"question_id":"24","group":"24","sample":0,\
"question":"Which animal?","golds":["dog"],"document":"4f78","task":"qa","agent":"memagent","weight_version":"3",\
"response":"none","prediction":"none","outcome":"completed","failure":null,"failure_message":null,"reward":0.0,\
"reward_parts":{"answer":0.0},"accuracy":null,"scores":{},"advantage":-0.354,"counts":{"turns":2.0},"turns":[\
{"kind":"memory","sections":[0],"shown_memory":"","recalled":"","prompt":"","reply":"tool axe","memory":"tool axe",\
"gold":false,"stop":"stop","prompt_tokens":63,"cached_tokens":32,"rewards":{},"advantage":-0.354,\
"pieces":["tool"," axe",""],"log_probs":[-2.5354,null,0.0]}]}
'''


def test_files_of_earlier_versions_are_read_and_written_alike(tmp_path):
    (tmp_path / "rollout_000003.jsonl").write_bytes(TODAY)
    document, trace = read_traces(tmp_path / "rollout_000003.jsonl")
    assert document.sections == ("tool axe.", "animal dog.") and trace.turns[0].log_probs == (-2.5354, None, 0.0)
    assert line_of(document) + line_of(trace) == TODAY


# --- pieces ---------------------------------------------------------------------------------------------------------

VOCABULARY = Vocabulary(make_tokenizer())
BACKEND = VOCABULARY.tokenizer.backend_tokenizer
WORDS = {"▁red": 0, "▁key": 1, "s": 2, "<0xC3>": 3, "<0xBC>": 4, "▁": 5, "<unk>": 6}


def sentencepiece():
    """A decoder that drops the blank of the first word, as Llama 2's."""
    model = Tokenizer(models.BPE(vocab=WORDS, merges=[], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    model.decoder = decoders.Sequence(steps)
    return model


@given(st.text(max_size=40))
def test_the_pieces_of_any_text_are_that_text(text):
    ids = VOCABULARY.encode_text(text)
    whole = VOCABULARY.reply_text(ids)
    pieces = pieces_of(BACKEND, ids, whole)
    assert "".join(pieces) == whole and len(pieces) == len(ids)


@given(st.lists(st.integers(0, VOCABULARY.size + 5), max_size=60))
def test_so_are_those_of_any_tokens(ids):
    """Halves of characters, control tokens and padding of the vocabulary included."""
    whole = VOCABULARY.reply_text(ids)
    pieces = pieces_of(BACKEND, ids, whole)
    assert "".join(pieces) == whole and len(pieces) == len(ids)


@pytest.mark.parametrize("ids,pieces", [
    ([0, 1, 2, 1], ("red", " key", "s", " key")),
    ([0, 5, 3, 4, 2], ("red", " ", "", "ü", "s")),
], ids=["blanks", "characters"])
def test_a_blank_stands_with_its_word_and_a_character_with_its_last_token(ids, pieces):
    assert pieces_of(sentencepiece(), ids, sentencepiece().decode(ids)) == pieces
