"""Python that comes with a model runs where TRUST_REMOTE_CODE says so, and nowhere else."""

import json

import pytest

from mem_agent.agents.embedding import Embedding
from mem_agent.checkpoints.bridge import UnsupportedModel, load_hf_config
from mem_agent.checkpoints.foreign_code import refuse_foreign_code
from mem_agent.checkpoints.hf_model import load_vocabulary
from mem_agent.config import Config, ConfigError
from mem_agent.hooks.reader import Reader
from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.ruler.sample import RulerError
from mem_agent.ruler.tokens import load_tokenizer
from mem_agent.serving.engine import engine_command
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

CODE = """
from pathlib import Path
from transformers import PretrainedConfig, PreTrainedTokenizerFast

(Path({folder!r}) / "ran").touch()

class Mine(PreTrainedTokenizerFast):
    pass

class MineConfig(PretrainedConfig):
    model_type = "mine"
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder whose tokenizer and configuration are Python of its own, which leaves a file ``ran``."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "model"
    make_tokenizer().save_pretrained(folder)
    (folder / "mine.py").write_text(CODE.format(folder=str(tmp_path)))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": [None, "mine.Mine"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    own = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.MineConfig", "AutoModel": "mine.Mine"}}
    (folder / "config.json").write_text(json.dumps(own))
    return folder


REFUSED = [
    (load_vocabulary, ConfigError, "the tokenizer of .* is Python of its own; .* TRUST_REMOTE_CODE=1"),
    (lambda folder: Reader(str(folder), Config(), {}), ConfigError, "is Python of its own; .* TRUST_REMOTE_CODE=1"),
    (lambda folder: refuse_foreign_code(folder, False), ConfigError, "/config.json names Python .* TRUST_REMOTE_"),
    (load_tokenizer, RulerError, "--tokenizer .*: cannot be loaded"),
    (load_hf_config, UnsupportedModel, "custom code"),
    (Embedding, ConfigError, "an embedding model that is Python of its own is never run"),
    (lambda folder: SentenceEncoder("x", folder).encode(["a"]), ConfigError, "cannot be loaded"),
]


@pytest.mark.parametrize("load,error,message", REFUSED)
def test_python_of_a_model_is_not_run(model, tmp_path, monkeypatch, load, error, message):
    monkeypatch.setattr("builtins.input", lambda _: "y")  # transformers would ask whoever sits there
    with pytest.raises(error, match=message) as told:
        load(model)
    assert len(str(told.value).splitlines()) == 1 and not (tmp_path / "ran").exists()


def test_it_is_run_where_the_user_says_so(model, tmp_path):
    refuse_foreign_code(model, True)
    assert load_vocabulary(model, trusted=True).encode_text("key") and (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [
    {"auto_map": {"AutoConfig": "a.B"}}, {"text_config": {"auto_map": {"AutoConfig": "a.B"}}}, [{"auto_map": ["a.B"]}],
])
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "processor_config.json"])
def test_it_is_found_wherever_settings_name_it(tmp_path, content, name):
    (tmp_path / name).write_text(json.dumps(content).replace("_map", r"\u005fmap"))
    with pytest.raises(ConfigError, match=f"/{name} names Python"):
        refuse_foreign_code(tmp_path, False)


@pytest.mark.parametrize("content, problem", [
    (b"{", "not JSON: Expecting"), (b"[" * 100_000, "nested deeper"), (b"\xff", "not JSON: .*decode"),
])
def test_a_file_that_is_no_json_is_one_line(tmp_path, content, problem):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"/config\.json is {problem}"):
        refuse_foreign_code(tmp_path, False)


def test_a_number_without_end_is_one_that_some_models_have(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}')
    refuse_foreign_code(tmp_path, False)


def test_a_way_of_its_own_to_generate_is_python_as_well(tmp_path):
    (tmp_path / "custom_generate").mkdir()
    refuse_foreign_code(tmp_path, False)
    (tmp_path / "custom_generate" / "generate.py").touch()
    with pytest.raises(ConfigError, match=r"/generate\.py is Python that comes with the model; .*=1"):
        refuse_foreign_code(tmp_path, False)
    refuse_foreign_code(tmp_path, True)


def test_engines_are_told_what_the_user_said(tmp_path):
    for trusted in (False, True):
        command = engine_command(Config(trust_remote_code=trusted), tmp_path, 1, "cpu", 0)
        assert ("--trust-remote-code" in command) == trusted
