"""How MemAgent's evaluation reads a reply; beside its own function where MEMAGENT_ROOT names a checkout."""

import importlib.util
import random

import pytest

from mem_agent.rewards.the_answer_is import the_answer_is
from mem_agent.tests.helpers.published import MEMAGENT, checkout

# Made with the published extract_answer (MemAgent 76b7a65).
GOLDEN = [
    ("Therefore, the answer is **Rome**.", "Rome"),
    ("the answer is Paris. No, the answer is Rome", "Rome"),
    ("The Answer Is Rome", None),
    ("the answer is", ""),
    ("the answer is ...", ""),
    ("the answer is . U.S.A. .", "U.S.A."),  # dots at both ends go once
    ("the answer is St. Ives. Goodbye.", "St. Ives. Goodbye"),
    ("the *answer* is Rome", "Rome"),  # asterisks go first, so they may stand in the mark
    ("the answer is Rome.<｜end▁of▁sentence｜>", "Rome"),
    ("the answer is <｜Assistant｜> Rome\n", "Rome"),
    ("the answer is\n\nRome\n.\n", "Rome"),
    ("the  answer is Rome", None),
    ("\\boxed{Rome}", None),
    ("", None),
]


@pytest.mark.parametrize("reply,answer", GOLDEN)
def test_golden_answers(reply, answer):
    assert the_answer_is(reply) == answer


def test_is_the_published_function():
    path = checkout(MEMAGENT) / "taskutils" / "memory_eval" / "utils" / "__init__.py"
    spec = importlib.util.spec_from_file_location("published_utils", path)
    published = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(published)
    rng = random.Random(0)
    parts = ["the answer is", "The answer is", "the answer", "*", "**", ".", " ", "\n", "Rome", "U.S.", "\\boxed{x}",
             "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜", "the ", "answer is", "\t", "\u00a0", "é"]
    replies = ["".join(rng.choices(parts, k=rng.randint(0, 12))) for _ in range(5000)]
    assert sum("the answer is" in reply for reply in replies) > 1000
    differing = [reply for reply in replies if the_answer_is(reply) != published.extract_answer(reply)]
    assert differing == []
