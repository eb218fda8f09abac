"""Attention over tries, divided into calls, is attention under the one mask of its definition."""

import pytest
import torch
import torch.nn.functional as F

from mem_agent.checkpoints.attention import tree_attention, tree_seq_params, visible

torch.set_num_threads(1)


FORESTS = {
    "a chain": [6] * 6, "branches of branches": [12, 8, 5, 4, 5, 8, 7, 8, 12, 12, 11, 12],
    "three trees": [1, 9, 9, 5, 5, 9, 7, 9, 9, 13, 13, 13, 13],
    "long runs": [60] * 20 + [40] * 10 + [35] * 5 + [40] * 5 + [60] * 20,
}
"""Ends of subtrees in depth-first order."""


def mask_of(end):
    indices = torch.arange(len(end))
    return visible(torch.tensor(end), indices[:, None], indices[None])


def qkv(tokens):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(tokens, heads, 16, generator=generator, requires_grad=True) for heads in (4, 2, 2)]


def by_definition(query, key, value, end):
    heads_first = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
    context = F.scaled_dot_product_attention(*heads_first, attn_mask=mask_of(end), enable_gqa=True)
    return context.squeeze(0).transpose(0, 1).flatten(1)


def test_who_sees_whom():
    """Token 0 with the branches 1 and 2 3."""
    assert mask_of([4, 2, 4, 4]).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]


@pytest.mark.parametrize("dense", [1, 3, 8, 256])
@pytest.mark.parametrize("forest", FORESTS)
def test_output_and_gradients_are_those_of_the_definition(forest, dense):
    end = FORESTS[forest]
    expected_inputs, inputs = qkv(len(end)), qkv(len(end))
    expected = by_definition(*expected_inputs, end)
    found = tree_attention(*inputs, tree_seq_params(end, len(end), torch.device("cpu"), dense), None)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for a, b in zip(inputs, expected_inputs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=5e-6, rtol=1e-5)
