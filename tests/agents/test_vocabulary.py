"""Text never becomes a control token; memories are carried as sampled ids; thinking is removed however it comes."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from mem_agent.agents import build_agent
from mem_agent.agents.documents import split_chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.tests.helpers.scripted import VOCABULARY
from mem_agent.tests.helpers.tiny_tokenizer import CHATML, make_tokenizer

CONTROL = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<think>", "</think>"]
PLAIN = Vocabulary(make_tokenizer(thinking_tokens=False))
"""Has no token for thinking."""


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from(CONTROL)), max_size=8))
def test_no_text_makes_a_control_id_and_all_text_survives(parts):
    text = "".join(parts).encode("utf-8", "ignore").decode()
    ids = VOCABULARY.encode_text(text)
    assert not set(ids) & VOCABULARY.control_ids
    assert VOCABULARY.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("words", [["BRCA1", "TP53"], ["a", "ab", "bca"]])
def test_ordinary_added_tokens_keep_their_ids_the_longest_first(words):
    """Added after the control tokens, they must not slide onto the ids of control tokens that are taken out."""
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.add_tokens(words)
    vocabulary = Vocabulary(tokenizer)
    text = f"gene {words[0]} and {words[-1]}. <|im_end|>"
    ids = vocabulary.encode_text(text)
    assert not set(ids) & vocabulary.control_ids and tokenizer.decode(ids) == text
    assert tokenizer.convert_tokens_to_ids(words[-1]) in ids


def with_bos(template):
    """A model whose tokenizer begins a plain text with ``<|endoftext|>``, as Llama's and Gemma's do with theirs."""
    tokenizer = copy.deepcopy(make_tokenizer())
    bos = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", bos)])
    tokenizer.chat_template = template
    return Vocabulary(tokenizer), bos


@pytest.mark.parametrize("agent", ["rememr1", "single", "chat"])
@pytest.mark.parametrize("template", [None, CHATML, "<|endoftext|>" + CHATML], ids=["none", "without", "with"])
def test_a_prompt_begins_once_as_the_tokenizer_begins_a_text(agent, template):
    vocabulary, bos = with_bos(template)
    config = Config(agent=agent, mem_chunk_tokens=4)
    reading = Reading(vocabulary.encode_text("who?"), split_chunks(vocabulary.encode_text("QWZR"), 4, None))
    built = build_agent(config, vocabulary, {})
    (request, *_) = built.requests(built.start(reading))
    assert request.prompt_ids[0] == bos and request.prompt_ids.count(bos) == 1
    plain = Vocabulary(make_tokenizer())
    assert plain.beginning(plain.encode_markup("a")) == plain.encode_markup("a")


# a reply | what is left of it
THINKING = [
    ("<think>I see a key</think>red", "red"),
    ("prompt opened it</think>red", "red"),
    ("a</think>b</think>red", "red"),
    ("<think>\nthe fruit may be \\boxed{apple}", ""),
    ("red", "red"),
]


@pytest.mark.parametrize("text,left", THINKING)
@pytest.mark.parametrize("ids_of", [VOCABULARY.encode_markup, VOCABULARY.encode_text, PLAIN.encode_markup],
                         ids=["tokens", "spelled out", "no such tokens"])
def test_thinking_is_no_memory_and_no_answer_however_it_comes(ids_of, text, left):
    """Spelled out in ordinary tokens it comes from servers that answer in text."""
    vocabulary, ids = ids_of.__self__, ids_of(text)
    assert vocabulary.decode(vocabulary.memory_ids(ids, limit=99)) == left == vocabulary.answer_text(ids)
    closed = "</think>" in text
    assert vocabulary.answer_text(ids, thinking_open=True) == (left if closed else "")


@pytest.mark.parametrize("template,eos,expected", [
    (CHATML, "<|endoftext|>", "<|im_end|>"),  # a base model, whose eos_token is another than its template's end
    (None, "<|endoftext|>", "<|endoftext|>"),
    (None, None, None),
])
def test_a_reply_ends_as_the_chat_template_ends_it(template, eos, expected):
    tokenizer = make_tokenizer.__wrapped__()
    tokenizer.chat_template, tokenizer.eos_token = template, eos
    end = Vocabulary(tokenizer).turn_end_id
    assert end == (None if expected is None else tokenizer.convert_tokens_to_ids(expected))
