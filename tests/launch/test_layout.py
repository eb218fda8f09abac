"""Parallel sizes follow from model size, GPUs and the longest row; what the user gives is kept or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.config import Config, ConfigError
from mem_agent.launch.layout import ENGINE_MEMORY, GIB, derive_layout, divide
from mem_agent.launch.model_args import ModelSize

SMALL = ModelSize(596_049_920, layers=28, hidden=1024, heads=16, kv_heads=8, vocab=151936)
SEVEN = ModelSize(7_615_283_200, layers=28, hidden=3584, heads=28, kv_heads=4, vocab=152064)
SEVENTY = ModelSize(70_553_706_496, layers=80, hidden=8192, heads=64, kv_heads=8, vocab=128256)


def layout(model, gpus=8, gib=80, row=8600, **settings):
    return derive_layout(model, gpus, gib * GIB, row, Config(host="slime", **settings))


@pytest.mark.parametrize("model,gpus,gib,row,tp", [
    (SMALL, 1, 24, 1200, 1), (SMALL, 8, 80, 8600, 1),
    (SEVEN, 8, 80, 8600, 2),  # 6 x 7.6 + 12 x 7.6 / 8 = 57 GB at tp 1, half of 80 GiB is 43
    (SEVEN, 4, 80, 8600, 4),  # 22.8 + 22.8 GB at tp 2 is still too much
])
def test_the_smallest_size_that_holds_the_longest_row(model, gpus, gib, row, tp):
    made = layout(model, gpus, gib, row)
    assert (made.tp, made.engine_gpus) == (tp, 1) and made.data_parallel == gpus // tp
    assert made.tokens_per_gpu >= row and made.colocate and made.rollout_gpus == gpus


@pytest.mark.parametrize("text,given,rest", [
    ("--lr 5e-6 --context-parallel-size 2", {"cp": 2}, ["--lr", "5e-6"]),
    ("--pipeline-model-parallel-size=2 --rollout-num-gpus 6 --rollout-num-gpus 4",  # the last one wins
     {"pp": 2, "rollout_gpus": 4}, []),
    ("--vllm-gpu-memory-utilization 0.5 --x 'a b'", {"engine_memory": 0.5}, ["--x", "a b"]),
])
def test_the_flags_of_the_division_are_read_and_the_others_left(text, given, rest):
    nothing = {"pp": 1, "cp": 1, "engine_gpus": 0, "rollout_gpus": 0, "engine_memory": ENGINE_MEMORY}
    found, others = divide(Config(host="slime", host_args=text))
    assert (vars(found), others) == (nothing | given, rest)


def test_given_sizes_are_kept_and_overrule_the_estimate():
    made = layout(SEVEN, tp=4, max_tokens_per_gpu=5000,
                  host_args="--context-parallel-size 2 --rollout-num-gpus-per-engine 2")
    assert (made.tp, made.cp, made.tokens_per_gpu, made.engine_gpus, made.data_parallel) == (4, 2, 5000, 2, 1)
    made = layout(SEVENTY, num_nodes=8, host_args="--pipeline-model-parallel-size 4 --sglang-mem-fraction-static 0.9")
    assert (made.tp, made.pp, made.data_parallel, made.engine_gpus) == (4, 4, 4, 4)
    assert layout(SEVENTY, tp=8, max_tokens_per_gpu=4096).tokens_per_gpu == 4096


@pytest.mark.parametrize(
    "nodes,given,expected",
    [(1, "", (1, 4, 4)), (1, "--rollout-num-gpus 6", (1, 2, 6)), (4, "--rollout-num-gpus 8", (3, 8, 8))],
)
def test_asynchronous_training_divides_the_gpus(nodes, given, expected):
    made = layout(SMALL, row=4000, num_nodes=nodes, fully_async=True, host_args=given)
    assert (made.train_nodes, made.train_per_node, made.rollout_gpus) == expected and not made.colocate


@pytest.mark.parametrize("model,gpus,gib,settings,named", [
    (SEVEN, 1, 24, {}, "use more GPUs"),
    (SEVENTY, 8, 24, {}, "MAX_TOKENS_PER_GPU"),
    (SEVEN, 8, 80, {"tp": 8}, "TP=8"),  # 28 heads
    (SMALL, 1, 80, {"fully_async": True}, "FULLY_ASYNC"),
    (SMALL, 8, 80, {"fully_async": True, "num_nodes": 2, "host_args": "--rollout-num-gpus 3"}, "HOST_ARGS"),
    (SMALL, 8, 80, {"host_args": "--context-parallel-size 3"}, "HOST_ARGS"),
])
def test_what_cannot_be_divided_names_what_would_help(model, gpus, gib, settings, named):
    with pytest.raises(ConfigError, match=named):
        layout(model, gpus, gib, **settings)


@given(
    parameters=st.floats(1e8, 4e10), nodes=st.integers(1, 8), per_node=st.sampled_from([1, 2, 4, 8]),
    memory=st.sampled_from([24, 40, 80, 141]), row=st.integers(500, 40000), asynchronous=st.booleans(),
)
def test_every_layout_divides_the_gpus_and_holds_the_row(parameters, nodes, per_node, memory, row, asynchronous):
    model = ModelSize(int(parameters), layers=32, hidden=4096, heads=32, kv_heads=8, vocab=152064)
    try:
        made = layout(model, per_node, memory, row, num_nodes=nodes, fully_async=asynchronous)
    except ConfigError:
        return
    assert made.data_parallel * made.tp == made.train_gpus and made.tp <= per_node
    assert made.tokens_per_gpu >= row and made.rollout_gpus % made.engine_gpus == 0
    used = made.train_gpus if made.colocate else made.train_gpus + made.rollout_gpus
    assert used == nodes * per_node
