"""What answers earn from the memory: golden batches, the frozen snapshot, any order, and every edge."""

import asyncio
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.rewards.intrinsic.episodic import FILE
from mem_agent.tests.helpers.intrinsic import Table, answer, episodic

ROOT = math.sqrt(0.5)
# Questions p and q look along x and y. Answers: x, y, d between both, n = -x.
PLANE = Table({"p": (1, 0), "q": (0, 1), "x": (1, 0), "y": (0, 1), "d": (ROOT, ROOT), "n": (-1, 0)})


def parts_of(reward, *batch):
    return [{name.removeprefix("intrinsic_"): value for name, value in one.items()}
            for one in reward.batch_parts(list(batch))]


def exploits(reward, *batch):
    return [one["exploit"] for one in parts_of(reward, *batch)]


def explores(reward, *batch):
    return [one["explore"] for one in parts_of(reward, *batch)]


def raws(reward, *batch):
    return [(raw.exploit, raw.explore) for raw in reward._raws([reward._case(one) for one in batch])]


# --- golden batches --------------------------------------------------------------------------------------------------


def test_golden_batches_of_one_question():
    """Raw terms, in the plane. Success x: from x to it 0, from d sqrt(2 - sqrt(2)) = 0.765, from y sqrt(2) = 1.414.
    Failure y: cosines of x, d, y with it are 0, 0.707, 1.

    Batch 1 has nothing to be compared with; it leaves success x, failure y. Batch 2 meets an empty window: 0, and
    leaves raw exploit 0, -0.765, -1.414 and raw explore 1, 0.293, 0, by which batch 3 is scaled. Memory holds
    successes x, x, d by then and failures y, y: c = (2 x + d) / 3 = (0.902, 0.236). From x to c: |(0.098, -0.236)| =
    0.2553; from y: |(-0.902, 0.764)| = 1.1825; from n: |(-1.902, -0.236)| = 1.9170.
    """
    reward = episodic(PLANE)
    nothing = {"exploit": 0.0, "explore": 0.0}
    first = [answer("p", "x", True), answer("p", "y")]
    assert parts_of(reward, *first) == [nothing, nothing]
    second = [answer("p", "y"), answer("p", "d", True), answer("p", "x", True)]
    assert raws(reward, *second) == [pytest.approx(pair, abs=2e-3) for pair in
                                     [(-math.sqrt(2), 0.0), (-0.7654, 0.2929), (0.0, 1.0)]]
    assert parts_of(reward, *second) == [nothing] * 3
    third = [answer("p", "x", True), answer("p", "y"), answer("p", "n")]
    scaled = [(-raw + math.sqrt(2)) / math.sqrt(2) for raw in (0.2553, 1.1825)]
    assert parts_of(reward, *third) == [
        pytest.approx({"exploit": scaled[0], "explore": 1.0}, abs=2e-3),
        pytest.approx({"exploit": scaled[1], "explore": 0.0}, abs=2e-3),
        pytest.approx({"exploit": 0.0, "explore": 1.0}, abs=2e-3),  # 1.9170 is beyond the window; so is 1 - 0
    ]


def test_weights_are_those_of_the_settings_and_anneal_with_the_rollouts():
    def earned(**settings):
        reward = episodic(PLANE, **settings)
        for _ in range(2):
            reward.batch_parts([answer("p", "x", True), answer("p", "y")])
        return parts_of(reward, answer("p", "x", True))[0]

    assert earned() == pytest.approx({"exploit": 1.0, "explore": 1.0}, abs=2e-3)
    assert earned(exploit=0.5, explore=0.3) == pytest.approx({"exploit": 0.5, "explore": 0.3}, abs=2e-3)
    assert earned(anneal=0.5) == pytest.approx({"exploit": 1.0, "explore": 0.25}, abs=2e-3)


def test_the_sentence_level_takes_the_mean_and_stores_each_sentence():
    table = Table({"p": (1, 0), "Go x.": (1, 0), "Go y.": (0, 1)})
    reward = episodic(table, level="sentence")
    reward.batch_parts([answer("p", "Go x. Go y.", True), answer("p", "Go x.")])
    assert reward.metrics()["intrinsic/success_vectors"] == 2
    # c = (1/2, 1/2), each sentence sqrt(1/2) from it; failure x: 1 - 1 and 1 - 0.
    assert raws(reward, answer("p", "Go y. Go x."), answer("p", "Go y.")) == [
        pytest.approx((-ROOT, 0.5), abs=2e-3), pytest.approx((-ROOT, 1.0), abs=2e-3)
    ]


# --- score, then write -----------------------------------------------------------------------------------------------


def test_an_answer_is_not_compared_with_itself():
    """As published a wrong answer was stored before it was scored, and had novelty 0; a right one was its own mean."""
    reward = episodic(PLANE)
    reward.batch_parts([answer("p", "x", True), answer("p", "y")])
    (raw,) = raws(reward, answer("p", "n"))
    assert raw == pytest.approx((-2.0, 1.0), abs=2e-3)
    reward.batch_parts([answer("p", "n")])
    assert raws(reward, answer("p", "n"))[0][1] == pytest.approx(0.0, abs=2e-3)


def test_both_questions_of_a_batch_use_their_own_key():
    reward = episodic(PLANE)
    batch = [answer("p", "x", True, group=0), answer("q", "y", True, group=1), answer("p", "d", group=0),
             answer("q", "n", group=1)]
    reward.batch_parts(batch)
    # d failed at p, n at q: d is new at q (cosine with n is -0.707), as n is at p.
    assert raws(reward, answer("p", "x"), answer("q", "x"), answer("p", "d"), answer("q", "d")) == [
        pytest.approx(pair, abs=2e-3)
        for pair in [(0.0, 1 - ROOT), (-math.sqrt(2), 2.0), (-0.7654, 0.0), (-0.7654, 1 + ROOT)]
    ]
    told = reward.metrics()
    assert [told[f"intrinsic/{name}"] for name in ("success_questions", "failure_questions")] == [2, 2]


def test_expected_parts_are_what_the_batch_then_gives_and_change_nothing():
    reward = episodic(HashingEncoder(), warmup=2)
    for number in range(4):
        batch = [answer(f"What is {q} times {number}?", f"It is {q * number + s}", s == 0, group=q)
                 for q in range(4) for s in range(3)]
        told = [part for q in range(4) for part in reward.expected_parts(batch[3 * q : 3 * q + 3])]
        assert told == list(reward.expected_parts(batch)) == list(reward.batch_parts(batch))
    assert any(value for part in told for value in part.values())


# --- any order -------------------------------------------------------------------------------------------------------

QUESTIONS = ["What is 2 + 3?", "What  is 2 + 3? ", "How many legs has a cat?"]
TEXTS = ["It is 5.", "5", "", "Cats walk. On four legs!", "I do not know.", "6"]
ANSWERS = st.lists(st.builds(answer, st.sampled_from(QUESTIONS), st.sampled_from(TEXTS), st.booleans()), min_size=1,
                   max_size=8)


def state(reward, folder):
    folder.mkdir(parents=True, exist_ok=True)
    reward.save(folder)
    return (folder / FILE).read_bytes()


@settings(max_examples=25)
@given(data=st.data(), rollouts=st.lists(ANSWERS, min_size=1, max_size=4),
       level=st.sampled_from(["response", "sentence"]), k=st.integers(1, 3))
def test_the_order_of_a_batch_changes_neither_rewards_nor_state(data, rollouts, level, k, tmp_path_factory):
    small = {"keys": 2, "values": 3, "window": 4, "level": level}
    one, other = (episodic(HashingEncoder(), k, **small) for _ in range(2))
    folder = tmp_path_factory.mktemp("states")
    for batch in rollouts:
        order = data.draw(st.permutations(range(len(batch))))
        given_, mixed = one.batch_parts(batch), other.batch_parts([batch[i] for i in order])
        assert [given_[i] for i in order] == list(mixed)
        assert state(one, folder / "a") == state(other, folder / "b")
    assert all(0 <= value <= 1 for part in given_ for value in part.values())


@settings(max_examples=15)
@given(rollouts=st.lists(ANSWERS, min_size=2, max_size=5), cut=st.integers(0, 4))
def test_a_memory_that_was_saved_and_loaded_goes_on_as_if_it_had_not_been(rollouts, cut, tmp_path_factory):
    small = {"keys": 2, "values": 3, "window": 4, "warmup": 1}
    unbroken, other = (episodic(HashingEncoder(), **small) for _ in range(2))
    folder = tmp_path_factory.mktemp("states")
    for number, batch in enumerate(rollouts):
        if number > cut:
            state(other, folder)
            other = episodic(HashingEncoder(), **small)
            other.load(folder)
        assert unbroken.batch_parts(batch) == other.batch_parts(batch)
        assert state(unbroken, folder / "a") == state(other, folder / "b")


# --- edges -----------------------------------------------------------------------------------------------------------


def test_without_successes_exploit_is_nothing_and_without_failures_explore():
    reward = episodic(PLANE)
    for texts in ("n", "xdn", "y"):
        parts = parts_of(reward, *(answer("p", text) for text in texts))
        assert [one["exploit"] for one in parts] == [0.0] * len(texts)
    assert parts[0]["explore"] > 0
    assert "intrinsic/exploit_least" not in reward.metrics()  # nothing entered its window
    reward = episodic(PLANE)
    for texts in ("n", "xdn", "y"):
        parts = parts_of(reward, *(answer("p", text, True) for text in texts))
        assert [one["explore"] for one in parts] == [0.0] * len(texts)
    assert parts[0]["exploit"] > 0


def test_warm_up_counts_failed_questions_and_rollouts_and_fills_the_window_meanwhile():
    reward = episodic(PLANE, warmup=2)
    assert explores(reward, answer("p", "n")) == [0.0]
    assert explores(reward, *(answer("p", text) for text in "xdn")) == [0.0] * 3  # raw 2, 1.707, 0
    assert explores(reward, answer("q", "n")) == [0.0]  # the second question to fail
    assert explores(reward, answer("p", "y")) == pytest.approx([(1 - ROOT) / 2], abs=2e-3)  # by d, window 0 to 2
    reward = episodic(PLANE, warmup_rollouts=3)
    for texts in ("n", "xd", "n"):
        assert not any(explores(reward, *(answer("p", text) for text in texts)))
    assert explores(reward, answer("p", "y")) == pytest.approx([(1 - ROOT) / 2], abs=2e-3)


def test_a_window_of_equal_values_gives_nothing():
    reward = episodic(PLANE)
    for _ in range(4):
        assert parts_of(reward, answer("p", "x", True)) == [{"exploit": 0.0, "explore": 0.0}]


def test_an_answer_that_says_nothing_earns_nothing_and_is_not_kept():
    reward = episodic(PLANE)
    for _ in range(3):
        empty = parts_of(reward, answer("p", "x", True), answer("p", "y"), answer("p", " \n"), answer("p", ""))[2:]
        assert empty == [{"exploit": 0.0, "explore": 0.0}] * 2
    assert reward.metrics()["intrinsic/failure_vectors"] == 3
    with_none = episodic(PLANE)
    assert with_none.batch_parts([answer("p", "")]) == [{"intrinsic_exploit": 0.0, "intrinsic_explore": 0.0}]


def test_more_neighbours_than_questions_are_all_of_them():
    reward = episodic(PLANE, k=30)
    reward.batch_parts([answer("p", "x", True), answer("q", "y", True)])
    assert raws(reward, answer("p", "x"))[0][0] == pytest.approx(-ROOT, abs=2e-3)  # the mean of both questions'


def test_between_the_thresholds_an_answer_is_neither():
    reward = episodic(PLANE, success=0.9, failure=0.1)
    half = replace(answer("p", "x"), accuracy=0.5)
    reward.batch_parts([half])
    assert reward.metrics()["intrinsic/success_vectors"] == 0
    reward.batch_parts([replace(half, accuracy=0.9), replace(half, accuracy=0.1)])
    told = reward.metrics()
    assert (told["intrinsic/success_vectors"], told["intrinsic/failure_questions"]) == (1, 0)


def test_without_exploration_failures_are_not_even_kept():
    reward = episodic(PLANE, plus=False)
    reward.batch_parts([answer("p", "x"), answer("p", "y", True)])
    assert parts_of(reward, answer("p", "x"))[0].keys() == {"exploit"}
    assert not any("failure" in name for name in reward.metrics())


def test_the_reply_may_count_in_place_of_the_reasoning():
    table = Table({"p": (1, 0), "x": (1, 0), "<r>x</r>": (0, 1)})
    for text, read in (("reasoning", "x"), ("reply", "<r>x</r>")):
        table.asked.clear()
        episodic(table, text=text).batch_parts([answer("p", "<r>x</r>", reasoning="x")])
        assert table.asked == ["p", read]


# --- early, and in batches -------------------------------------------------------------------------------------------


def test_texts_are_embedded_while_the_rollout_runs_and_once():
    table = Table({"p": (1, 0), **{f"t{n}": (math.cos(n), math.sin(n)) for n in range(20)}})
    reward = episodic(table)
    batch = [answer("p", f"t{n}", n % 2 == 0) for n in range(20)]

    async def rollout():
        return await asyncio.gather(*(reward.parts(one) for one in batch))

    assert asyncio.run(rollout()) == [one.parts for one in batch]
    assert sorted(table.asked) == sorted({"p", *(f"t{n}" for n in range(20))})
    table.asked.clear()
    reward.batch_parts(batch), reward.expected_parts(batch)
    assert table.asked == []
