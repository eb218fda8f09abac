"""Attention over tries, divided into calls or as one block mask, is attention under the one mask of its definition."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.checkpoints import attention as module
from mem_agent.checkpoints.attention import TreeSeqParams, attention_calls, tree_attention, tree_seq_params, visible

torch.set_num_threads(1)
HEADS, GROUPS, CHANNELS = 4, 2, 16


@st.composite
def ends(draw, most=40):
    """Ends of subtrees of a random forest in depth-first order: each token hangs on one of the open path."""
    path: list[int] = []
    end: list[int] = []
    for token in range(draw(st.integers(1, most))):
        depth = draw(st.integers(0, len(path)))
        for k in path[depth:]:
            end[k] = token
        path = [*path[:depth], token]
        end.append(0)
    for k in path:
        end[k] = len(end)
    return end


def mask_of(end):
    indices = torch.arange(len(end))
    return visible(torch.tensor(end), indices[:, None], indices[None])


def qkv(tokens):
    generator = torch.Generator().manual_seed(0)
    shapes = [(tokens, heads, CHANNELS) for heads in (HEADS, GROUPS, GROUPS)]
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def by_definition(query, key, value, end):
    heads_first = (x.transpose(0, 1).unsqueeze(0) for x in (query, key, value))
    context = F.scaled_dot_product_attention(*heads_first, attn_mask=mask_of(end), enable_gqa=True)
    return context.squeeze(0).transpose(0, 1).flatten(1)


def test_who_sees_whom():
    """Token 0 with the branches 1 and 2 3."""
    assert mask_of([4, 2, 4, 4]).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]


@settings(deadline=None, max_examples=30)
@given(ends(), st.sampled_from([1, 3, 8, 256]))
def test_output_and_gradients_are_those_of_the_definition(end, dense):
    expected_inputs, inputs = qkv(len(end)), qkv(len(end))
    expected = by_definition(*expected_inputs, end)
    found = tree_attention(*inputs, tree_seq_params(end, len(end), torch.device("cpu"), dense), None)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)
    if dense == 1:  # the GPU's path, forward only and not compiled: what a CPU can show of it
        params = TreeSeqParams(block_mask=module._block_mask(torch.tensor(end)))
        context = tree_attention(*(x.detach() for x in inputs), params, None)
        torch.testing.assert_close(context, expected, atol=2e-6, rtol=1e-5)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for a, b in zip(inputs, expected_inputs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize(("end", "expected"), [
    ([1000] * 1000 + [1600] * 600 + [1900] * 300, [(1000, ()), (600, ()), (300, ())]),
    ([1900] * 1000 + [1600] * 600 + [1900] * 300, [(1000, ()), (600, (0,)), (300, (0,))]),
    ([1200] * 1000 + [1100] * 100 + [1200] * 100, [(1000, ()), (200, (0,))]),
    ([200] * 100 + [150] * 50 + [200] * 50, [(200, ())]),
])
def test_long_runs_are_called_alone_and_small_subtrees_together(end, expected):
    assert [(call.tokens, call.ancestors) for call in attention_calls(end)] == expected
    params = tree_seq_params(end, 1000, torch.device("cpu"))
    assert (params.masks[0] is None) == (end[0] == 1000)  # a row without a branch is plainly causal
    assert params.max_seqlen_q == 1000 and params.cu_seqlens_q.tolist() == [0, len(end)]
