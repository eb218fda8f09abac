"""What answers earn from a memory or from earlier texts: golden batches, any order, every edge."""

import asyncio
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.rewards.intrinsic.memory import (
    EntropySettings,
    Episodic,
    KnnPlusSettings,
    LexicalSettings,
    Store,
    TextReward,
    chosen_lines,
    entropy,
    lines_apart,
)
from mem_agent.rewards.reward import Answered
from mem_agent.system.errors import ConfigError


class Table:
    """An encoder of texts whose vectors a test chooses; it keeps what it was asked."""

    fingerprint = "table-1"

    def __init__(self, vectors):
        self.vectors, self.asked = vectors, []

    def encode(self, texts):
        self.asked += texts
        return np.array([self.vectors[text] for text in texts], np.float32)


def episodic(encoder, warmup=0, **settings):
    return Episodic(KnnPlusSettings(warmup=warmup, **settings), encoder)


def answer(question, text, right=False):
    return Answered(question, ("gold",), {}, text, {}, float(right), reasoning=text)


ROOT = math.sqrt(0.5)
# Questions p and q look along x and y. Answers: x, y, d between both, n = -x.
PLANE = Table({"p": (1, 0), "q": (0, 1), "x": (1, 0), "y": (0, 1), "d": (ROOT, ROOT), "n": (-1, 0)})
NOTHING = {"exploit": 0.0, "explore": 0.0}


def earned(reward, *batch):
    for one in batch:
        asyncio.run(reward.parts(one))  # its texts are embedded while the rollout runs
    return [{name.removeprefix("intrinsic_"): value for name, value in one.items()}
            for one in reward.batch_parts(list(batch))]


def test_golden_batches_of_one_question():
    """Raw terms, in the plane. Success x: from x to it 0, from d sqrt(2 - sqrt(2)) = 0.765, from y sqrt(2) = 1.414.
    Failure y: cosines of x, d, y with it are 0, 0.707, 1.

    Batch 1 has nothing to be compared with; it leaves success x, failure y. Batch 2 meets an empty window: 0, and
    leaves raw exploit 0, -0.765, -1.414 and raw explore 1, 0.293, 0, by which batch 3 is scaled. Memory holds
    successes x, x, d by then and failures y, y: c = (2 x + d) / 3 = (0.902, 0.236). From x to c: |(0.098, -0.236)| =
    0.2553; from y: |(-0.902, 0.764)| = 1.1825; from n: |(-1.902, -0.236)| = 1.9170.
    """
    reward = episodic(PLANE)
    assert earned(reward, answer("p", "x", True), answer("p", "y")) == [NOTHING] * 2
    assert earned(reward, answer("p", "y"), answer("p", "d", True), answer("p", "x", True)) == [NOTHING] * 3
    logged = reward.metrics()
    assert [logged[f"intrinsic/{name}"] for name in ("exploit_least", "exploit_most", "explore_least", "explore_most")
            ] == pytest.approx([-math.sqrt(2), 0.0, 0.0, 1.0], abs=2e-3)
    scaled = [(-raw + math.sqrt(2)) / math.sqrt(2) for raw in (0.2553, 1.1825)]
    assert earned(reward, answer("p", "x", True), answer("p", "y"), answer("p", "n")) == [
        pytest.approx({"exploit": scaled[0], "explore": 1.0}, abs=2e-3),
        pytest.approx({"exploit": scaled[1], "explore": 0.0}, abs=2e-3),
        pytest.approx({"exploit": 0.0, "explore": 1.0}, abs=2e-3),  # 1.9170 is beyond the window
    ]
    assert sorted(PLANE.asked) == ["d", "n", "p", "x", "y"]  # each once


def test_warm_up_counts_failed_questions_and_fills_the_window_meanwhile():
    reward = episodic(PLANE, warmup=2)
    for batch in (["pn"], ["px", "pd", "pn"], ["qn"]):  # raw explore 2, 1.707, 0; q is the second question to fail
        assert not any(one["explore"] for one in earned(reward, *(answer(q, text) for q, text in batch)))
    assert earned(reward, answer("p", "y"))[0]["explore"] == pytest.approx((1 - ROOT) / 2, abs=2e-3)


# --- any order, and from run to run ---------------------------------------------------------------------------------

QUESTIONS = ["What is 2 + 3?", "What  is 2 + 3? ", "How many legs has a cat?"]
TEXTS = ["It is 5.", "", "Cats walk. On four legs!", "I do not know.\nNo", "6"]
ANSWERS = st.lists(st.builds(answer, st.sampled_from(QUESTIONS), st.sampled_from(TEXTS), st.booleans()), min_size=1,
                   max_size=8)
MODES = {
    "knn+": lambda: episodic(HashingEncoder(), k=2, window=4, warmup=1),
    "entropy": lambda: TextReward(EntropySettings(window=4)),
    "lexical": lambda: TextReward(LexicalSettings(window=4)),
}


def saved(reward, folder):
    folder.mkdir(exist_ok=True)
    reward.save(folder)
    (file,) = folder.iterdir()
    return file.read_bytes()


@settings(max_examples=20)
@given(data=st.data(), mode=st.sampled_from(list(MODES)), rollouts=st.lists(ANSWERS, min_size=1, max_size=4))
def test_neither_order_nor_a_restart_changes_rewards_or_state(data, mode, rollouts, tmp_path_factory):
    one, other, folder = MODES[mode](), MODES[mode](), tmp_path_factory.mktemp("states")
    for batch in rollouts:
        order = data.draw(st.permutations(range(len(batch))))
        straight, mixed = one.batch_parts(batch), other.batch_parts([batch[i] for i in order])
        assert [straight[i] for i in order] == list(mixed)
        assert saved(one, folder / "a") == saved(other, folder / "b")
        other = MODES[mode]()
        other.load(folder / "b")
    assert all(0 <= value <= 1 for part in straight for value in part.values())


def test_a_memory_of_another_model_is_refused(tmp_path):
    saved(episodic(HashingEncoder()), tmp_path)
    with pytest.raises(ConfigError, match="MEM_IR"):
        episodic(PLANE).load(tmp_path)


# --- parts ----------------------------------------------------------------------------------------------------------


def test_a_store_is_first_in_first_out_on_both_levels_also_when_restored():
    """The docstring's example."""
    (a, b, c), keys = "abc", np.eye(3, dtype=np.float32)
    store, again = Store(keys=2, values=2), Store(keys=2, values=2)
    for question, key, value in ((a, 0, 1), (b, 1, 2), (a, 0, 3), (a, 0, 4)):
        store.add(question, keys[key], np.full((1, 3), value))
    again.restore(store.arrays())
    for one in (store, again):
        assert one.nearest(b, keys[0], 2)[:, 0].tolist() == [2, 3, 4]  # a stored question comes first
        one.add(c, keys[2], np.full((1, 3), 5))
        assert list(one.held) == [b, c] and one.nearest(a, keys[0], 9)[:, 0].tolist() == [2, 5]


def test_texts_are_apart_by_letters_and_by_lines():
    bits = {"": 0.0, "abab": 1.0, "abcd": 2.0, "aaab": 0.75 * math.log2(4 / 3) + 0.5}
    assert {text: entropy(Counter(text)) for text in bits} == pytest.approx(bits)
    lines = {("abc", "abc"): 0, ("abc", "acd"): 2 / 3, ("abc", "axc"): 1 / 3, ("ab", "cde"): 1, ("", "ab"): 1}
    assert {pair: lines_apart(*pair) for pair in lines} == pytest.approx(lines)
    assert chosen_lines("\n\n".join(map(str, range(10))), 4) == ("0", "3", "6", "9")


def test_golden_batches_by_lines():
    """Batch 1 meets no texts. Batch 2 meets "a b": raw of "a c" is 1/2, of "c d" 1; they meet an empty window. Batch 3
    is scaled by 1/2 to 1 and meets "a b", "a c", "c d": "a b" is 0, 1/2 and 1 apart, mean 1/2; "x y" 1."""
    reward = TextReward(LexicalSettings(weight=1.0))
    worth = [[value for (value,) in (part.values() for part in reward.batch_parts([answer("p", t) for t in texts]))]
             for texts in (["a\nb"], ["a\nc", "c\nd"], ["a\nb", "x\ny", "a\nz", " "])]
    assert worth == [[0.0], [0.0, 0.0], pytest.approx([0.0, 1.0, (2 / 3 - 0.5) / 0.5, 0.0])]
