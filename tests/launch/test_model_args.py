"""A model's description comes from the host's script that fits it in every number, or the launch says what differs."""

import json

import pytest

from mem_agent.config import ConfigError
from mem_agent.launch.model_args import describe, flag_values, model_args, read_model_config
from mem_agent.tests.helpers.fake_host import MODELS, ROTARY, SCRIPTLESS, SIBLINGS, make_host


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    return make_host(tmp_path_factory.mktemp("host") / "slime") / "scripts" / "models"


@pytest.mark.parametrize("name", MODELS)
def test_each_model_finds_its_family(name, scripts):
    family, found = model_args(scripts, MODELS[name] | ROTARY)
    assert family == ("" if name in SCRIPTLESS else SIBLINGS.get(name, name))
    assert found[found.index("--hidden-size") + 1] == str(MODELS[name]["hidden_size"])


def test_another_rotary_base_is_given_after_the_scripts_own(scripts):
    _, found = model_args(scripts, MODELS["qwen3-4b"] | ROTARY | {"rope_theta": 5e6})
    assert found[-2:] == ["--rotary-base", "5000000"]


@pytest.mark.parametrize(
    "changes",
    [{"num_hidden_layers": 40}, {"vocab_size": 152000}, {"head_dim": 80}, {"rms_norm_eps": 1e-5},
     {"tie_word_embeddings": False}, {"model_type": "llama"}],
)
def test_a_model_that_no_script_fits_is_described_by_its_own_numbers(changes, scripts):
    content = MODELS["qwen3-4b"] | ROTARY | changes
    assert model_args(scripts, content) == ("", describe(content))


def test_of_several_scripts_that_fit_differently_none_is_taken(tmp_path):
    scripts, content = make_host(tmp_path / "slime") / "scripts" / "models", MODELS["qwen3-4b"] | ROTARY
    text = (scripts / "qwen3-4b.sh").read_text()
    (scripts / "same.sh").write_text(text)
    assert model_args(scripts, content)[0] == "qwen3-4b"
    (scripts / "fewer.sh").write_text(text.replace("--num-query-groups 8", ""))  # Megatron takes 32 then
    (scripts / "base.sh").write_text(text.replace("1000000", "10000"))  # what decides is config.json's
    assert model_args(scripts, content)[0] == "qwen3-4b"
    (scripts / "other.sh").write_text(text.replace("--qk-layernorm", "--qk-layernorm --use-something"))
    assert model_args(scripts, content) == ("", describe(content))


@pytest.mark.parametrize("text", ["exit 3", "OTHER=(--a)"])
def test_a_script_that_describes_nothing_is_passed_over(text, tmp_path):
    scripts = make_host(tmp_path / "slime") / "scripts" / "models"
    (scripts / "broken.sh").write_text(text)
    assert model_args(scripts, MODELS["qwen3-4b"] | ROTARY)[0] == "qwen3-4b"


@pytest.mark.parametrize("text", ["{", '{"model_type": "qwen3"}'])
def test_a_config_is_read_with_its_rotary_base_or_names_its_file(text, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(MODELS["qwen3-4b"] | {"rope_parameters": {"rope_theta": 7e5, "rope_type": "default"}}))
    assert read_model_config(tmp_path)["rope_theta"] == 7e5
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_model_config(tmp_path)


def test_a_fraction_as_rotary_base_is_refused(scripts):
    with pytest.raises(ConfigError, match="rope_theta"):
        model_args(scripts, MODELS["qwen3-4b"] | ROTARY | {"rope_theta": 10000.5})


@pytest.mark.parametrize("name", sorted(MODELS.keys() - SCRIPTLESS - SIBLINGS.keys()))
def test_a_description_made_of_config_json_agrees_with_the_hosts_script(name, scripts):
    content = MODELS[name] | ROTARY
    made, said = flag_values(describe(content)), flag_values(model_args(scripts, content)[1])
    assert {flag: float(made[flag]) for flag in said if said[flag]} == {f: float(v) for f, v in said.items() if v}
    assert {flag for flag, value in said.items() if not value} <= made.keys()


@pytest.mark.parametrize("changes", [
    {"model_type": "mixtral"}, {"rope_scaling": {"rope_type": "llama3"}},
    {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
])
def test_what_is_no_plain_decoder_is_refused(changes, scripts):
    with pytest.raises(ConfigError, match="HF_CKPT"):
        model_args(scripts, MODELS["qwen3-4b"] | ROTARY | changes)
