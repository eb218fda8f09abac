"""What a perfect cache of whole blocks computes: the measure of the rollout benchmark."""

import pytest

from mem_agent.benchmarks.rollout import ideal_prefill


@pytest.mark.parametrize(
    "requests,computed",
    [
        ([("abcd", "")], 4),
        ([("abcd", ""), ("abce", "")], 4 + 2),  # block ab is known
        ([("abcd", ""), ("abcd", "")], 4 + 2),  # of a known prompt its last token, so its last block, is computed
        ([("ab", "cdx"), ("abcde", "")], 2 + 1),  # a reply's blocks, all of whose tokens were fed, are known
        ([("ab", "cd"), ("abcde", "")], 2 + 3),  # d was sampled last and never fed
        ([("abcd", ""), ("xbcd", "")], 4 + 4),  # a block is known behind what came before it, not by itself
    ],
)
def test_ideal_prefill(requests, computed):
    assert ideal_prefill(requests, block=2) == computed
