"""MEM_IR=entropy and lexical: the measures by hand, and the rule of the frozen snapshot."""

import math
import random

import pytest

from mem_agent.rewards.intrinsic import novelty
from mem_agent.rewards.intrinsic.settings import EntropySettings, LexicalSettings
from mem_agent.rewards.intrinsic.text_reward import FILE, TextReward
from mem_agent.tests.helpers.intrinsic import answer

# Four letters, each a quarter: 2 bits. Three a and one b: 0.75 log2(4/3) + 0.25 log2(4) = 0.8113.
ENTROPY = {"": 0.0, "aaaa": 0.0, "abab": 1.0, "abcd": 2.0, "aaab": 0.75 * math.log2(4 / 3) + 0.5}


@pytest.mark.parametrize(("text", "bits"), ENTROPY.items())
def test_entropy_is_that_of_the_letters(text, bits):
    assert novelty.entropy(novelty.letters([text])) == pytest.approx(bits)


LINES = {
    "equal": ("a b c", "a b c", 0.0),
    "one dropped, one added": ("a b c", "a c d", 2 / 3),
    "one changed": ("a b c", "a x c", 1 / 3),
    "nothing in common": ("a b", "c d e", 1.0),
    "nothing there": ("", "a b", 1.0),
    "both empty": ("", "", 0.0),
    "another order": ("a b", "b a", 1.0),
}


@pytest.mark.parametrize(("one", "other", "expected"), LINES.values(), ids=LINES)
def test_lines_are_apart_by_the_edits_between_them(one, other, expected):
    assert novelty.lines_apart(one.split(), other.split()) == pytest.approx(expected)
    assert novelty.lines_apart(other.split(), one.split()) == pytest.approx(expected)


def test_words_are_apart_by_jaccard():
    apart = novelty.words_apart
    assert apart(frozenset("ab"), frozenset("bc")) == pytest.approx(2 / 3)
    assert (apart(frozenset("ab"), frozenset("ab")), apart(frozenset(), frozenset())) == (0.0, 0.0)
    assert apart(frozenset("ab"), frozenset("cd")) == 1.0


def test_at_most_so_many_lines_from_the_first_to_the_last():
    text = "\n\n".join(map(str, range(10)))
    assert novelty.chosen_lines(text, 4) == ("0", "3", "6", "9")
    assert novelty.chosen_lines(text, 1) == ("0",) and novelty.chosen_lines(" a \n\n b", 8) == ("a", "b")


def earned(reward, *texts):
    return [value for part in reward.batch_parts([answer("p", text) for text in texts]) for value in part.values()]


def test_golden_batches_by_lines():
    """Batch 1 meets no texts. Batch 2 meets "a b": raw of "a c" is 1/2, of "c d" 1; they meet an empty window. Batch 3
    is scaled by 1/2 to 1 and meets "a b", "a c", "c d": "a b" is 0, 1/2 and 1 apart, mean 1/2; "x y" 1."""
    reward = TextReward(LexicalSettings(weight=1.0))
    assert earned(reward, "a\nb") == [0.0]
    assert earned(reward, "a\nc", "c\nd") == [0.0, 0.0]
    assert earned(reward, "a\nb", "x\ny", "a\nz") == pytest.approx([0.0, 1.0, (2 / 3 - 0.5) / 0.5])
    assert reward.batch_parts([answer("p", "x")])[0].keys() == {"intrinsic_lexical"}


def test_golden_batches_by_letters():
    """Earlier text "ab"; the letters of "ab ab" are a a b b and a blank: 1.5219 bits, of "ab cd" 2.3219."""
    reward = TextReward(EntropySettings())
    assert earned(reward, "ab") == [0.0]
    assert earned(reward, "ab", "cd") == [0.0, 0.0]
    bounds = reward._window.bounds
    assert bounds == pytest.approx((0.8 * math.log2(2.5) + 0.2 * math.log2(5), math.log2(5)))
    assert all(0 <= value <= 1 for value in earned(reward, "cd", "zz", ""))


@pytest.mark.parametrize("settings", [EntropySettings(texts=5, window=4), LexicalSettings(texts=5, window=4),
                                      LexicalSettings(texts=5, measure="words")], ids=str)
def test_the_order_of_a_batch_changes_neither_rewards_nor_state(settings, tmp_path):
    draw = random.Random(0)
    one, other = TextReward(settings), TextReward(settings)
    for _ in range(6):
        batch = [answer(draw.choice("pq"), "\n".join(draw.choices("abcde", k=3)), draw.random() < 0.5)
                 for _ in range(7)]
        order = draw.sample(range(7), 7)
        told = one.expected_parts(batch)
        given, mixed = one.batch_parts(batch), other.batch_parts([batch[i] for i in order])
        assert given == told and [given[i] for i in order] == mixed
        files = []
        for name, reward in (("a", one), ("b", other)):
            (tmp_path / name).mkdir(exist_ok=True)
            reward.save(tmp_path / name)
            files.append((tmp_path / name / FILE).read_bytes())
        assert files[0] == files[1]
        assert len(one._texts) <= 5
    assert any(value for part in given for value in part.values())


def test_an_empty_text_earns_nothing_and_is_not_kept():
    reward = TextReward(LexicalSettings())
    for _ in range(3):
        assert earned(reward, "a", " ", "b")[1] == 0.0
    assert "" not in reward._texts and len(reward._texts) == 6
    assert reward.metrics()["intrinsic/texts"] == 6
