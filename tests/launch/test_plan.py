"""What a plan follows from: the framework and the GPUs that are found, a description of the model as the hosts' own
scripts have it, parallel sizes from the model's size, GPUs and the longest row.
"""

import os
import subprocess
from pathlib import Path

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.launch.find_host import find_host
from mem_agent.launch.layout import GIB, derive_layout
from mem_agent.launch.model_args import SCALED, describe, flag_values, read_model_config
from mem_agent.launch.plan import ASSUMED_GIB, find_gpus
from mem_agent.tests.helpers.fake_host import MODELS, make_host, make_model

PACK = Path("/nowhere/mem_agent")

# --- who trains: one place decides, for scripts and launcher alike ---------------------------------------------------


def test_a_checkout_around_the_pack_a_named_one_an_imported_one_or_none(tmp_path, monkeypatch):
    assert find_host("auto", "", PACK) == ("local", None)
    root = make_host(tmp_path / "checkout", "vime")
    inside = root / "mem_agent"
    inside.symlink_to(tmp_path)  # counts by the path the user knows it by
    monkeypatch.chdir(tmp_path)
    for given in (("auto", "", inside), ("auto", "checkout", PACK), ("vime", str(root), PACK)):
        assert find_host(*given) == ("vime", root)
    assert find_host("local", str(root), inside) == ("local", None)
    monkeypatch.syspath_prepend(str(root))
    assert find_host("auto", "", PACK) == ("vime", root)


@pytest.mark.parametrize("host,root", [("verl", ""), ("auto", "/etc"), ("slime", "")])
def test_what_is_named_must_be_there(host, root):
    with pytest.raises(ValueError, match=f"HOST.*{root or host}"):
        find_host(host, root, PACK)


# --- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer,declared,found", [
    ("81559\n81559", 0, (2, 79.6)), ("81559\n81559", 1, (1, 79.6)),
    ("[No Permission]\n[N/A]", 0, (2, ASSUMED_GIB)),  # as with a memory of the CPU's
])
def test_gpus_are_those_declared_or_that_nvidia_smi_lists(tmp_path, monkeypatch, answer, declared, found):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    per_node, memory = find_gpus(Config(num_gpus=declared, num_nodes=2))
    assert (per_node, round(memory / GIB, 1)) == found


# --- the model ------------------------------------------------------------------------------------------------------


def described(folder, name, **changes):
    return flag_values(describe(read_model_config(make_model(folder, name, **changes))))


OTHERWISE_THERE = {("qwen2.5-1.5B", "--rotary-base")}
"""slime 624b824 has 10000, the released config.json 1000000."""


@pytest.mark.parametrize("host", ["SLIME_ROOT", "VIME_ROOT"])
def test_descriptions_agree_with_the_hosts_scripts(host, tmp_path):
    root, read = os.environ.get(host), 'source "$1" && printf "%s\\0" "${MODEL_ARGS[@]}"'
    if not root:
        pytest.skip(f"{host} is not set")
    scripts = [path for path in Path(root, "scripts", "models").glob("*.sh") if path.stem.lower() in MODELS]
    assert len(scripts) > 2
    for path in scripts:
        done = subprocess.run(["bash", "-c", read, "bash", str(path)], capture_output=True, text=True, check=True)
        said, made = flag_values(done.stdout.split("\0")[:-1]), described(tmp_path, path.stem.lower())
        for flag, text in said.items():
            if (path.stem, flag) in OTHERWISE_THERE:
                continue
            assert made[flag] == text or float(made[flag]) == float(text), (path, flag)


@pytest.mark.parametrize("changes,flags", [
    ({"rope_theta": 5e6, "rms_norm_eps": 1e-5}, {"--rotary-base": "5000000", "--norm-epsilon": "1e-05"}),
    ({"rope_theta": None, "rope_parameters": {"rope_theta": 7e5, "rope_type": "default"}},
     {"--rotary-base": "700000"}),
    ({"model_type": "llama", "head_dim": None, "num_key_value_heads": None},
     {"--kv-channels": "80", "--num-query-groups": "32"}),
    ({"rope_scaling": {"rope_type": "llama3"} | SCALED}, {"--use-rope-scaling": ""}),
])
def test_what_a_config_says_or_leaves_out(changes, flags, tmp_path):
    assert flags.items() <= described(tmp_path, "qwen3-4b", **changes).items()


@pytest.mark.parametrize("changes", [
    {"model_type": "mixtral"}, {"rope_parameters": {"rope_type": "linear", "factor": 8.0}},
    {"rope_scaling": {"rope_type": "llama3"} | SCALED | {"factor": 32.0}},  # Llama 3.2's
])
def test_what_megatron_could_not_run_is_refused(changes, tmp_path):
    with pytest.raises(ConfigError, match="HF_CKPT"):
        described(tmp_path, "qwen3-4b", **changes)


# --- its division ---------------------------------------------------------------------------------------------------

SMALL, SEVEN = MODELS["qwen3-0.6b"], MODELS["qwen2.5-7b"]
SEVENTY = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
           "intermediate_size": 28672, "vocab_size": 128256}


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
    (SMALL, 8, 80, {"fully_async": True, "num_nodes": 2, "host_args": "--rollout-num-gpus 3"}, "HOST_ARGS"),
    (SMALL, 8, 80, {"host_args": "--context-parallel-size 3"}, "HOST_ARGS"),
])
def test_what_cannot_be_divided_names_what_would_help(model, gpus, gib, settings, named):
    with pytest.raises(ConfigError, match=named):
        layout(model, gpus, gib, **settings)
