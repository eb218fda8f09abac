"""Parallel sizes follow from model size, GPUs and the longest row; what the user gives is kept or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.config import Config, ConfigError
from mem_agent.launch.layout import ENGINE_MEMORY, GIB, Gpus, derive_layout, divide
from mem_agent.launch.model_args import ModelSize

SMALL = ModelSize(596_049_920, layers=28, hidden=1024, heads=16, kv_heads=8, vocab=151936)
SEVEN = ModelSize(7_615_283_200, layers=28, hidden=3584, heads=28, kv_heads=4, vocab=152064)
SEVENTY = ModelSize(70_553_706_496, layers=80, hidden=8192, heads=64, kv_heads=8, vocab=128256)
NODE = Gpus(1, 8, 80 * GIB)

CASES = [
    # model, GPUs, longest row -> tp, cp, pp, GPUs per engine
    (SMALL, Gpus(1, 1, 24 * GIB), 1200, (1, 1, 1, 1)),
    (SMALL, NODE, 8600, (1, 1, 1, 1)),
    (SEVEN, NODE, 8600, (2, 1, 1, 1)),  # 6 x 7.6 + 12 x 7.6 / 8 = 57 GB at tp 1, half of 80 GiB is 43
    (SEVEN, Gpus(1, 4, 80 * GIB), 8600, (4, 1, 1, 1)),  # 22.8 + 22.8 GB at tp 2 is still too much
]


@pytest.mark.parametrize("model,gpus,row,expected", CASES)
def test_the_smallest_sizes_that_hold_the_longest_row(model, gpus, row, expected):
    made = derive_layout(model, gpus, row, Config())
    assert (made.tp, made.cp, made.pp, made.engine_gpus) == expected
    assert made.tokens_per_gpu * made.cp >= row and made.colocate and made.rollout_gpus == gpus.total


@pytest.mark.parametrize("text,given,rest", [
    ("", {}, []),
    ("--lr 5e-6 --context-parallel-size 2", {"cp": 2}, ["--lr", "5e-6"]),
    ("--pipeline-model-parallel-size=2 --rollout-num-gpus 6 --rollout-num-gpus 4",  # the last one wins
     {"pp": 2, "rollout_gpus": 4}, []),
    ("--rollout-num-gpus-per-engine 2 --x 'a b'", {"engine_gpus": 2}, ["--x", "a b"]),
    ("--vllm-gpu-memory-utilization 0.5", {"engine_memory": 0.5}, []),
    ("--context-parallel 2", {}, ["--context-parallel", "2"]),  # the hosts know no abbreviations either
])
def test_the_flags_of_the_division_are_read_and_the_others_left(text, given, rest):
    nothing = {"pp": 0, "cp": 0, "engine_gpus": 0, "rollout_gpus": 0, "engine_memory": ENGINE_MEMORY}
    found, others = divide(Config(host="slime", host_args=text))
    assert (vars(found), others) == (nothing | given, rest)


def test_a_model_of_many_machines_is_split_in_pipeline_stages():
    made = derive_layout(SEVENTY, Gpus(8, 8, 80 * GIB), 8600, Config())
    assert made.tp == 8 and made.pp > 1 and made.engine_gpus == 8
    assert made.data_parallel * made.tp * made.pp * made.cp == 64


def test_long_rows_are_divided_by_context_parallelism():
    memory = Gpus(1, 8, 24 * GIB)
    short, long = (derive_layout(SMALL, memory, row, Config(tp=1)) for row in (2000, 16000))
    assert short.cp == 1 and long.cp > 1 and long.tokens_per_gpu * long.cp >= 16000


def test_given_sizes_are_kept_and_all_four_overrule_the_estimate():
    config = Config(host="slime", tp=4, max_tokens_per_gpu=5000,
                    host_args="--context-parallel-size 2 --rollout-num-gpus-per-engine 2")
    made = derive_layout(SEVEN, NODE, 8600, config)
    assert (made.tp, made.cp, made.tokens_per_gpu, made.engine_gpus) == (4, 2, 5000, 2)
    config = Config(host="slime", tp=8, max_tokens_per_gpu=4096,
                    host_args="--context-parallel-size 1 --pipeline-model-parallel-size 1 "
                              "--rollout-num-gpus-per-engine 8")
    assert derive_layout(SEVENTY, NODE, 8600, config).tokens_per_gpu == 4096


@pytest.mark.parametrize("share,engine_gpus", [("0.9", 4), ("0.5", 8)])  # 4 x 70.6e9 bytes over 80 GiB
def test_an_engine_takes_as_many_gpus_as_its_share_of_memory_asks_for(share, engine_gpus):
    config = Config(host="slime", host_args=f"--sglang-mem-fraction-static {share}")
    assert derive_layout(SEVENTY, Gpus(8, 8, 80 * GIB), 8600, config).engine_gpus == engine_gpus


@pytest.mark.parametrize(
    "nodes,given,expected",
    [(1, "", (1, 4, 4)), (1, "--rollout-num-gpus 6", (1, 2, 6)), (4, "--rollout-num-gpus 8", (3, 8, 8))],
)
def test_asynchronous_training_divides_the_gpus(nodes, given, expected):
    config = Config(host="slime", fully_async=True, host_args=given)
    made = derive_layout(SMALL, Gpus(nodes, 8, 80 * GIB), 4000, config)
    assert (made.train_nodes, made.train_per_node, made.rollout_gpus) == expected and not made.colocate


@pytest.mark.parametrize(
    "model,gpus,config,setting",
    [
        (SEVEN, Gpus(1, 1, 24 * GIB), {}, "use 11 or more"),
        (SMALL, Gpus(1, 1, 24 * GIB), {}, "MEM_CHUNK_TOKENS"),
        (SEVENTY, Gpus(1, 8, 24 * GIB), {}, "MAX_TOKENS_PER_GPU"),
        (SEVEN, NODE, {"tp": 8}, "TP=8"),  # 28 heads
        (SMALL, Gpus(1, 1, 80 * GIB), {"fully_async": True}, "FULLY_ASYNC"),
        (SMALL, Gpus(2, 8, 80 * GIB), {"fully_async": True, "host_args": "--rollout-num-gpus 3"}, "HOST_ARGS"),
        (SMALL, NODE, {"fully_async": True, "host_args": "--rollout-num-gpus 8"}, "HOST_ARGS"),
        (SMALL, NODE, {"host_args": "--rollout-num-gpus-per-engine 3"}, "HOST_ARGS"),
        (SMALL, NODE, {"host_args": "--context-parallel-size 3"}, "HOST_ARGS"),
        (SMALL, NODE, {"host_args": "--rollout-num-gpus"}, "HOST_ARGS"),
    ],
)
def test_what_cannot_be_divided_names_what_would_help(model, gpus, config, setting):
    with pytest.raises(ConfigError, match=setting):
        derive_layout(model, gpus, 8600, Config(host="slime", **config))


@given(
    parameters=st.floats(1e8, 4e10), nodes=st.integers(1, 8), per_node=st.sampled_from([1, 2, 4, 8]),
    memory=st.sampled_from([24, 40, 80, 141]), row=st.integers(500, 40000), asynchronous=st.booleans(),
)
def test_every_layout_divides_the_gpus_and_holds_the_row(parameters, nodes, per_node, memory, row, asynchronous):
    model = ModelSize(int(parameters), layers=32, hidden=4096, heads=32, kv_heads=8, vocab=152064)
    gpus = Gpus(nodes, per_node, memory * GIB)
    config = Config(fully_async=asynchronous)
    enough = 18 * parameters <= 0.2 * nodes * per_node * memory * GIB and row <= 8000 and memory >= 80
    enough = enough and not asynchronous and per_node >= 4 and nodes in (1, 2, 4, 8)  # which divide 32 layers
    try:
        made = derive_layout(model, gpus, row, config)
    except ConfigError:
        assert not enough
        return
    assert made.data_parallel * made.tp * made.cp * made.pp == made.train_gpus
    assert made.tokens_per_gpu * made.cp >= row and made.tp <= per_node
    assert made.rollout_gpus % made.engine_gpus == 0
    used = made.train_gpus if made.colocate else made.train_gpus + made.rollout_gpus
    assert used == gpus.total
