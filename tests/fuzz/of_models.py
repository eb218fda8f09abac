"""Folders of models that somebody else has made: configuration, tokenizer, chat template, weights.

Each target lays one file of a folder anew, the others are whole; every reader of the pack then sees the folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from mem_agent.agents.chat_frame import TemplateRefused
from mem_agent.agents.prompts import chat_frame
from mem_agent.agents.records import Message, Role
from mem_agent.checkpoints.average import average
from mem_agent.checkpoints.foreign_code import refuse_foreign_code
from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.checkpoints.hf_model import load_vocabulary, model_positions, tokenizer_hash, with_engine_length
from mem_agent.config import Config
from mem_agent.hooks.answer_utility import answer_length
from mem_agent.launch.model_args import _differences, describe, model_size, read_model_config
from mem_agent.rehearsal.shrink import shrink_model
from mem_agent.ruler.tokens import load_tokenizer
from mem_agent.serving.sync_folder import checkpoint_names
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.fuzz.target import Target, scratch
from mem_agent.tests.helpers.chat_templates import TEMPLATES
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.tiny_tokenizer import CHATML, make_tokenizer
from mem_agent.training.process_count import with_train_procs

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
DENSE = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 512,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "hidden_act": "silu", "rope_scaling": None,
}
FLAGS = describe({**DENSE, "model_type": "qwen3"})
LONG = "a" * 60 + "x1 " * 20
CHAT = [Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Who?"), Message(Role.ASSISTANT, "Ann."),
        Message(Role.USER, "Why?")]


def _each(reads: Sequence[Callable[[], object]]) -> None:
    """A refusal of one reader is not the end: all are to see the input."""
    for read in reads:
        with suppress(MemAgentError):
            read()


def _with(file: str, data: bytes) -> Path:
    """The whole folder with this file in the place of its own; the next call puts that back."""
    folder = scratch() / "whole"
    folder.mkdir(exist_ok=True)
    for name, own in _own().items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != own:
            (folder / name).write_bytes(own)
    for path in set(folder.iterdir()) - {folder / name for name in _own()}:
        path.unlink()
    (folder / file).write_bytes(data)
    return folder


@cache
def _own() -> dict[str, bytes]:
    folder = scratch() / "made model"
    make_tiny_model(folder, vocab=400, hidden=16, layers=1, tied=True)
    make_tokenizer().save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": 2, "temperature": 0.7, "top_p": 0.8}')
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- configuration ---------------------------------------------------------------------------------------------------


def _model_config(data: bytes) -> None:
    folder = _with(CONFIG, data)
    config = Config(hf_ckpt=str(folder), answer_ckpt=str(folder), train_procs=0, save_path=str(scratch() / "no run"))

    def described() -> None:
        content = read_model_config(folder)
        model_size(content), shrink_model(content), _differences(FLAGS, content)
        describe(content)

    _each([
        described, lambda: refuse_foreign_code(folder, False), lambda: with_train_procs(config, folder),
        lambda: _is_count(model_positions(folder)), lambda: _is_count(answer_length(config)),
    ])


def _is_count(value: object) -> None:
    assert type(value) is int and value >= 0, value


def _hf_config(data: bytes) -> None:
    """As far as a trainer and the converters go before they read weights."""
    from mem_agent.checkpoints.bridge import build_bridge, expected_tensors
    from mem_agent.checkpoints.checkpoint import hosts_args
    from mem_agent.checkpoints.hf_folder import check_weights

    folder = _with(CONFIG, data)
    bridge = build_bridge(folder)
    check_weights(bridge.hf_config, folder)
    expected_tensors(bridge), hosts_args(bridge)


def _averaged(file: str) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        folder, other = _with(file, data), scratch() / "other"
        shutil.copytree(folder, other, dirs_exist_ok=True)
        average([folder, other], scratch() / "mean", force=True)

    return run


# --- tokenizer -------------------------------------------------------------------------------------------------------


def _tokenizer(file: str) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        folder = _with(file, data)
        _each([lambda: _read_with(folder), lambda: load_tokenizer(folder)])

    return run


def _read_with(folder: Path) -> None:
    """All that a run asks of a tokenizer and of the template in it."""
    vocabulary = load_vocabulary(folder)
    assert vocabulary.encode_text("ab <|im_end|>") is not None and tokenizer_hash(folder)
    assert not vocabulary.control_ids & set(vocabulary.encode_text("ab <|im_end|><think>"))
    _each([lambda: vocabulary.encode_text(LONG), lambda: vocabulary.encode_markup(LONG)])
    vocabulary.memory_ids([5, 6, 7], limit=2), vocabulary.reply_ids([5, 6], limit=2), vocabulary.answer_text([5, 6])
    assert vocabulary.turn_end_id is None or isinstance(vocabulary.turn_end_id, int)
    for agent in ("gated", "chat"):
        config = Config(agent=agent, hf_ckpt=str(folder))
        _each([lambda config=config: with_engine_length(config, folder, vocabulary)])  # which builds the agent
    with suppress(TemplateRefused):
        assert isinstance(chat_frame(vocabulary.tokenizer, False, {}).conversation(CHAT), str)


# --- weights ---------------------------------------------------------------------------------------------------------


def _weights(file: str) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        folder = _with(file, data)
        _each([lambda: checkpoint_names(folder), lambda: _tensors(folder), lambda: _loaded(folder)])

    return run


def _tensors(folder: Path) -> None:
    tensors = HfTensors(folder)
    for name in tensors.shapes:
        tensors.dtype(name)
        tensors.read(name)


def _loaded(folder: Path) -> None:
    """As a trainer's first weights are."""
    from mem_agent.checkpoints.bridge import build_bridge
    from mem_agent.checkpoints.hf_folder import check_weights

    bridge = build_bridge(folder)
    check_weights(bridge.hf_config, folder)
    reader = bridge._get_safetensor_io(str(folder))
    for name in json.loads(_index())["weight_map"]:
        reader.load_one_hf_weight(name)


@cache
def _index() -> bytes:
    names = HfTensors(_with(WEIGHTS, _own()[WEIGHTS])).shapes
    return json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, WEIGHTS)}).encode()


_TEMPLATE_WORDS = (
    b"{{ ", b" }}", b"{% ", b" %}", b"for m in messages", b"endfor", b"if ", b"endif", b"set x = ", b"messages",
    b"[0]", b".content", b"['role']", b" + ", b" * ", b" / ", b"0", b"'a'", b" | ", b"tojson", b"int", b"length",
    b"range(9)", b"raise_exception('x')", b"{%- macro f() %}", b"f()", b"namespace(a=1)", b".a", b"none", b"''",
    b"{% generation %}", b"{% endgeneration %}", b"strftime_now('%Y')", b"bos_token", b"|list", b"|join", b"|first",
    b"<|im_end|>", b"add_generation_prompt", b"|dictsort", b"|sort", b"|map('x')", b"|attr('x')", b"~", b"is defined",
)
_TOKENIZER_WORDS = (b"Replace", b"Regex", b"Split", b"Unigram", b"WordPiece", b"WordLevel", b"a", b"Metaspace",
                    b"(?i:a|b)+", b"Lowercase", b"NFKC", b"Digits", b"ByteFallback", b"Strip", b"Sequence",
                    b"\xc4\xa0")
TARGETS = (
    Target("model_config", _model_config, (json.dumps(DENSE).encode(), _own()[CONFIG]),
           (b"1e400", b"9" * 400, b"qwen3", b"yarn", b"0")),
    Target("hf_config", _hf_config, (_own()[CONFIG], json.dumps(DENSE).encode()),
           (b"qwen3", b"llama", b"yarn", b"llama3", b"linear", b"dynamic", b"0"), slow=True),
    Target("generation_config", _averaged("generation_config.json"), (_own()["generation_config.json"],), slow=True),
    Target("tokenizer_json", _tokenizer("tokenizer.json"), (_own()["tokenizer.json"],), _TOKENIZER_WORDS, slow=True),
    Target("tokenizer_config", _tokenizer("tokenizer_config.json"), (_own()["tokenizer_config.json"],),
           (b"auto_map", b"{{ '' }}", b"{% for", b"chat_template", b"LlamaTokenizer", b"BertTokenizer", b"<|im_end|>",
            b"T5Tokenizer", b"PreTrainedTokenizerFast", b"a"), slow=True),
    Target("chat_template", _tokenizer("chat_template.jinja"), (
        CHATML.encode(), *(template.encode() for template in TEMPLATES.values() if template)), _TEMPLATE_WORDS,
        slow=True),
    Target("special_tokens", _tokenizer("special_tokens_map.json"), (
        b'{"eos_token": {"content": "<|im_end|>", "special": true}, "additional_special_tokens": ["<x>", "a"]}',),
        slow=True),
    Target("added_tokens", _tokenizer("added_tokens.json"), (b'{"<x>": 402, "b": 403}',), slow=True),
    Target("weights", _weights(WEIGHTS), (_own()[WEIGHTS],), (b"F32", b"I64", b"F8_E4M3", b"BF16"), slow=True),
    Target("weights_index", _weights(INDEX), (_index(),),
           (b"../../etc/hostname", b"model.safetensors", b"config.json", b"/dev/null", b"\0"), slow=True),
)  # fmt: skip
