"""The rule by which a cluster's settings become a laptop's."""

from dataclasses import replace

import pytest

from mem_agent.config import Config
from mem_agent.launch.layout import Layout
from mem_agent.rehearsal.shrink import shrink, shrink_layout

CLUSTER = Layout(tp=1, pp=1, cp=1, tokens_per_gpu=9000, engine_gpus=1, colocate=True, train_nodes=4, train_per_node=8,
                 rollout_gpus=32, gpus_per_node=8)


def test_the_paper_s_7b_settings_and_an_agent_without_documents():
    small = shrink(Config(
        mem_chunk_tokens=5000, mem_max_memory=1024, mem_max_final=1024, mem_max_chunks=8, rollout_batch_size=128,
        n_samples_per_prompt=16, global_batch_size=128, lr=1e-6, reward="cosine", reward_args="max_length=9"))
    assert (small.mem_chunk_tokens, small.mem_max_chunks) == (128, 3)
    assert (small.mem_max_memory, small.mem_max_final) == (32, 32)
    assert (small.rollout_batch_size, small.n_samples_per_prompt, small.global_batch_size) == (2, 4, 4)  # two steps
    assert small.lr == 1e-3 and small.reward.endswith(":Coin")
    assert small.reward_args == "reward=cosine settings=max_length=9"
    small = shrink(Config(mem_chunk_tokens=9, rollout_batch_size=3, n_samples_per_prompt=2, global_batch_size=3))
    assert (small.mem_chunk_tokens, small.trajectories_per_rollout, small.step_trajectories) == (9, 4, 2)  # none grows
    small = shrink(Config(agent="chat", mem_max_final=300))
    assert (small.mem_max_final, small.mem_max_question, small.mem_chunk_tokens) == (128, 512, 2048)


@pytest.mark.parametrize("cluster,ranks,step,expected", [
    ({"tp": 2}, 2, 16, (2, 1, 1)),
    ({"pp": 2}, 2, 16, (1, 2, 1)),
    ({"tp": 8, "pp": 4}, 4, 16, (2, 1, 1)),  # two key-value heads
    ({}, 4, 8, (1, 1, 4)),
    ({}, 4, 6, (1, 1, 2)),
    ({"train_nodes": 1, "train_per_node": 1}, 2, 16, (1, 1, 1)),
])
def test_one_kind_of_parallelism_of_the_cluster_s_is_kept(cluster, ranks, step, expected):
    layout = shrink_layout(replace(CLUSTER, **cluster), ranks, 440, step)
    assert (layout.tp, layout.pp, layout.data_parallel) == expected and layout.tokens_per_gpu == 440
    assert not layout.colocate and layout.gpus_per_node == layout.train_gpus + layout.rollout_gpus
