"""The store of vectors and token counts: nothing twice, killed anywhere, never mixed."""

import os
import signal

import numpy as np

from mem_agent.memsifter.vectors import Store, TokenCounter, VectorStore
from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.sessions.records import Session, Turn
from mem_agent.sessions.wording import render_session
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

TEXTS = [f"text {number}" for number in range(1200)]
VALUES = np.arange(3600, dtype=np.float32).reshape(1200, 3)


def store(folder):
    return Store(folder, "float32", lambda texts: VALUES[[TEXTS.index(text) for text in texts]])


def test_values_are_computed_once_and_kept(tmp_path):
    first = store(tmp_path)
    assert first.missing([*TEXTS[:3], TEXTS[0]]) == TEXTS[:3]
    first.add(TEXTS[:2], VALUES[5:7])
    expected = np.concatenate([VALUES[5:7], VALUES[2:]])
    assert np.array_equal(first.values(TEXTS), expected)
    again = Store(tmp_path, "float32", None)
    assert np.array_equal(again.values(TEXTS), expected) and again.missing(["another", *TEXTS]) == ["another"]


def test_killed_while_it_writes_it_has_what_was_written(tmp_path):
    child = os.fork()
    if child == 0:
        store(tmp_path).values(TEXTS[:10])
        half = store(tmp_path)
        half._base.execute("INSERT INTO vectors VALUES (?, ?)", (b"key", b"value"))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert store(tmp_path).missing(TEXTS[:20]) == TEXTS[10:20]


def test_another_model_has_its_own_folder(tmp_path):
    class Other(HashingEncoder):
        name, fingerprint = "org/other", "abc"

        def encode(self, texts):
            return -super().encode(texts)

    mine = VectorStore(tmp_path, HashingEncoder()).values(["a", "b"])
    assert np.array_equal(VectorStore(tmp_path, Other()).values(["b", "a"]), -mine[::-1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hashing-384-1-4", "org-other-abc"]


def test_numbers_of_sessions_cost_no_more_than_counted(tmp_path):
    make_tokenizer().save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "config.json").write_text("{}")
    sessions = tuple(Session(f"{n}", (Turn("user", f"note {n}"),), "2023") for n in range(120))
    counts = TokenCounter(tmp_path / "store", str(tmp_path / "tokenizer")).sessions(sessions)
    assert TokenCounter(tmp_path / "store", str(tmp_path / "tokenizer")).sessions(sessions) == counts
    shown = "".join(f"{render_session(session, n)}\n" for n, session in enumerate(sessions))
    assert len(make_tokenizer()(shown)["input_ids"]) <= sum(counts)
