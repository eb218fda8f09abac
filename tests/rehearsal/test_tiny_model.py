"""The random model of a rehearsal: what it takes of the user's, and how a model ends of which none can be made."""

import json

import pytest

from mem_agent.checkpoints.hf_folder import UnsupportedModel
from mem_agent.config import ConfigError
from mem_agent.launch.model_args import read_model_config
from mem_agent.rehearsal.shrink import shrink_model
from mem_agent.rehearsal.tiny_model import write_tiny_model
from mem_agent.tests.helpers.fake_host import make_model


def tiny(tmp_path, **changes):
    given = make_model(tmp_path / "given", "qwen3-4b", vocab_size=400, **changes)
    write_tiny_model(shrink_model(read_model_config(given)), given, tmp_path / "tiny")
    return json.loads((tmp_path / "tiny" / "config.json").read_text())


@pytest.mark.parametrize("name", ["tokenizer_notes.txt", "vocab.txt", "generation_config.json"])
def test_a_strangers_link_takes_nothing_of_the_user_along(tmp_path, name):
    (tmp_path / "given").mkdir()
    (tmp_path / ".netrc").write_text("hunter2")
    (tmp_path / "given" / name).symlink_to("../.netrc")
    with pytest.raises(UnsupportedModel, match=rf"/given/{name}: a link out of the model's folder, which is"):
        tiny(tmp_path)
    assert not (tmp_path / "tiny" / name).exists()


def test_what_is_no_file_is_no_part_of_a_tokenizer(tmp_path):
    for folder in ("chat_templates", "tokenizer"):
        (tmp_path / "given" / folder).mkdir(parents=True)
    (tmp_path / "given" / "vocab.bin").symlink_to("/dev/null")  # /dev/zero fills a disk
    tiny(tmp_path)
    assert not {"chat_templates", "tokenizer", "vocab.bin"} & {path.name for path in (tmp_path / "tiny").iterdir()}


@pytest.mark.parametrize("said,kept", [(-1, None), (None, None), (0, 0), (399, 399)])
def test_minus_one_means_no_padding(tmp_path, said, kept):
    assert tiny(tmp_path, pad_token_id=said).get("pad_token_id") == kept


@pytest.mark.parametrize("changes,reason", [
    ({"pad_token_id": 400}, "AssertionError: Padding_idx must be within num_embeddings"),
    ({"use_cache": "x"}, "Validation error for field 'use_cache'"),
    ({"sliding_window": "x"}, "Validation error for field 'sliding_window'"),
    ({"hidden_act": "nope"}, "KeyError: 'nope'"),
])
def test_a_model_that_cannot_be_made_is_one_line(tmp_path, changes, reason):
    with pytest.raises(ConfigError, match=r"^HF_CKPT='.*/given': no small model of its family can be made: ") as error:
        tiny(tmp_path, **changes)
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_what_cannot_be_saved_is_one_line_too(tmp_path):
    given = make_model(tmp_path / "given", "qwen3-4b", vocab_size=400)
    content = shrink_model(read_model_config(given)) | {"pad_token_id": -1}
    with pytest.raises(ConfigError, match="can be made: ValueError: GenerationConfig is invalid"):
        write_tiny_model(content, given, tmp_path / "tiny")
