"""A model's description agrees with the hosts' own scripts, or the launch says that it has none."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from mem_agent.config import ConfigError
from mem_agent.launch.model_args import SCALED, describe, flag_values, model_size, read_model_config
from mem_agent.tests.helpers.fake_host import MODELS, ROTARY, make_model


def described(folder, name, **changes):
    return flag_values(describe(read_model_config(make_model(folder, name, **changes))))


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
            assert made[flag] == text or float(made[flag]) == float(text), (path, flag)


def test_a_description_in_full(tmp_path):
    assert described(tmp_path, "qwen2.5-7b") == {
        "--swiglu": "", "--use-rotary-position-embeddings": "", "--disable-bias-linear": "",
        "--group-query-attention": "", "--normalization": "RMSNorm", "--add-qkv-bias": "",
        "--untie-embeddings-and-output-weights": "", "--num-layers": "28", "--hidden-size": "3584",
        "--ffn-hidden-size": "18944", "--num-attention-heads": "28", "--num-query-groups": "4",
        "--vocab-size": "152064", "--kv-channels": "128", "--norm-epsilon": "1e-06", "--rotary-base": "1000000",
    }


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
    {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5} | SCALED | {"factor": 32.0}},
])
def test_what_megatron_could_not_run_is_refused(changes, tmp_path):
    with pytest.raises(ConfigError, match="HF_CKPT"):
        described(tmp_path, "qwen3-4b", **changes)


def test_sizes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODELS["qwen3-4b"] | ROTARY))
    size = model_size(read_model_config(tmp_path))
    assert size.parameters == pytest.approx(4.02e9, rel=0.001) and (size.heads, size.kv_heads) == (32, 8)
