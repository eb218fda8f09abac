"""A model's description comes from the host's script that fits it in every number, or the launch says what differs."""

import json

import pytest

from mem_agent.config import ConfigError
from mem_agent.launch.model_args import describe, flag_values, model_args, model_size, read_model_config
from mem_agent.tests.helpers.fake_host import MODELS, ROTARY, SCRIPTLESS, SIBLINGS, make_host


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    return make_host(tmp_path_factory.mktemp("host") / "slime") / "scripts" / "models"


@pytest.mark.parametrize("name", MODELS)
def test_each_model_finds_its_family(name, scripts):
    family, found = model_args(scripts, "", MODELS[name] | ROTARY)
    assert family == ("" if name in SCRIPTLESS else SIBLINGS.get(name, name))
    assert found[found.index("--hidden-size") + 1] == str(MODELS[name]["hidden_size"])


@pytest.mark.parametrize(
    "name,parameters",  # as the models' cards state them, in 1e9
    [("qwen3-4b", 4.02), ("qwen3-0.6b", 0.596), ("qwen2.5-7b", 7.62), ("qwen2.5-3b", 3.09), ("qwen2.5-0.5b", 0.494)],
)
def test_sizes_are_the_models_own(name, parameters):
    assert model_size(MODELS[name]).parameters / 1e9 == pytest.approx(parameters, rel=0.01)


def test_another_rotary_base_is_given_after_the_scripts_own(scripts):
    _, found = model_args(scripts, "", MODELS["qwen3-4b"] | ROTARY | {"rope_theta": 5e6})
    assert found[-2:] == ["--rotary-base", "5000000"]


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"num_hidden_layers": 40}, "--num-layers 36 there, num_hidden_layers 40"),
        ({"vocab_size": 152000}, "--vocab-size 151936 there"),
        ({"head_dim": 80}, "--kv-channels 128 there, head_dim 80"),
        ({"rms_norm_eps": 1e-5}, "--norm-epsilon 1e-6 there"),
        ({"tie_word_embeddings": False}, "tied embeddings True there, False in config.json"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "plain rotary positions there, yarn scaling"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "plain rotary positions there, linear scaling"),
        ({"model_type": "llama"}, "--qk-layernorm set there, model_type llama"),
    ],
)
def test_a_family_that_is_not_the_models_is_refused(changes, message, scripts):
    with pytest.raises(ConfigError) as error:
        model_args(scripts, "qwen3-4b", MODELS["qwen3-4b"] | ROTARY | changes)
    assert message in str(error.value)
    content = MODELS["qwen3-4b"] | ROTARY | changes
    if not changes.keys() & {"rope_scaling", "rope_parameters"}:
        assert model_args(scripts, "", content) == ("", describe(content))
        return
    with pytest.raises(ConfigError, match=r"none of .* fits; set MODEL_FAMILY"):
        model_args(scripts, "", content)


def test_several_that_fit_differently_are_not_guessed(tmp_path):
    scripts = make_host(tmp_path / "slime") / "scripts" / "models"
    text = (scripts / "qwen3-4b.sh").read_text()
    (scripts / "same.sh").write_text(text)
    assert model_args(scripts, "", MODELS["qwen3-4b"] | ROTARY)[0] == "qwen3-4b"
    (scripts / "other.sh").write_text(text.replace("--qk-layernorm", "--qk-layernorm --use-something"))
    with pytest.raises(ConfigError, match="several fit: other, qwen3-4b, same; set MODEL_FAMILY"):
        model_args(scripts, "", MODELS["qwen3-4b"] | ROTARY)


@pytest.mark.parametrize("text", ["exit 3", "OTHER=(--a)"])
def test_a_script_that_cannot_be_read_is_named(text, tmp_path):
    scripts = make_host(tmp_path / "slime") / "scripts" / "models"
    (scripts / "broken.sh").write_text(text)
    with pytest.raises(ConfigError, match=r"broken.sh: MODEL_ARGS cannot be read"):
        model_args(scripts, "broken", MODELS["qwen3-4b"] | ROTARY)


def written(folder, content):
    (folder / "config.json").write_text(json.dumps(content))
    return folder


def test_the_rotary_base_is_found_where_newer_configs_keep_it(tmp_path):
    rope = {"rope_parameters": {"rope_theta": 7e5, "rope_type": "default"}}
    assert read_model_config(written(tmp_path, MODELS["qwen3-4b"] | rope))["rope_theta"] == 7e5


@pytest.mark.parametrize("text", ["{", '{"model_type": "qwen3"}'])
def test_a_config_of_no_decoder_names_its_file(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_model_config(tmp_path)


def test_a_fraction_as_rotary_base_is_refused(scripts):
    with pytest.raises(ConfigError, match="takes whole numbers"):
        model_args(scripts, "", MODELS["qwen3-4b"] | ROTARY | {"rope_theta": 10000.5})


@pytest.mark.parametrize("name", sorted(MODELS.keys() - SCRIPTLESS - SIBLINGS.keys()))
def test_a_description_made_of_config_json_agrees_with_the_hosts_script(name, scripts):
    content = MODELS[name] | ROTARY
    made, said = flag_values(describe(content)), flag_values(model_args(scripts, name, content)[1])
    assert {flag: float(made[flag]) for flag in said if said[flag]} == {f: float(v) for f, v in said.items() if v}
    assert {flag for flag, value in said.items() if not value} <= made.keys()


@pytest.mark.parametrize("changes,reason", [
    ({"model_type": "mixtral"}, "type 'mixtral' with default rotary positions"),
    ({"rope_scaling": {"rope_type": "llama3"}}, "with llama3 rotary positions"),
])
def test_what_is_no_plain_decoder_is_not_described(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        describe(MODELS["qwen3-4b"] | ROTARY | changes)
