"""The over-long share: DAPO's equation 13 with its 16,384 tokens and buffer of 4,096."""

import pytest

from mem_agent.rewards.overlong import overlong_share


@pytest.mark.parametrize(
    ("tokens", "share"), [(0, 0.0), (12288, 0.0), (12289, 1 / 4096), (14336, 0.5), (16384, 1.0), (20000, 1.0)]
)
def test_shares(tokens, share):
    assert overlong_share(tokens, 16384, 4096) == share
    assert overlong_share(tokens, 16384, 0) == 0.0
