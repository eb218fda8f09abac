"""Text never becomes a control token; memories are carried as sampled ids."""

import copy
import re
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerFast

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.tests.helpers.tiny_tokenizer import CHATML, make_tokenizer

VOCABULARY = Vocabulary(make_tokenizer())
CONTROL = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<think>", "</think>"]


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(make_tokenizer())


def one_id(vocabulary, text):
    (token,) = vocabulary.encode_markup(text)
    return token


@pytest.mark.parametrize("literal", CONTROL)
def test_control_literals_in_text_stay_text(vocabulary, literal):
    text = f"before {literal} after{literal}"
    ids = vocabulary.encode_text(text)
    assert not set(ids) & vocabulary.control_ids
    assert vocabulary.tokenizer.decode(ids) == text


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from(CONTROL)), max_size=8))
def test_no_text_makes_a_control_id_and_all_text_survives(parts):
    vocabulary = Vocabulary(make_tokenizer())
    text = "".join(parts).encode("utf-8", "ignore").decode()
    ids = vocabulary.encode_text(text)
    assert not set(ids) & vocabulary.control_ids
    assert vocabulary.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_markup_does_make_control_ids(vocabulary):
    assert vocabulary.encode_markup("<|im_end|>")[0] in vocabulary.control_ids


def test_control_strings_that_are_also_plain_entries_are_left_out():
    """A word-level vocabulary would match ``<|im_end|>`` as a whole even without added tokens."""
    from tokenizers import AddedToken, pre_tokenizers

    words = {w: i for i, w in enumerate(["[UNK]", "<|im_end|>", "a", *"<|im_end>"])}
    core = Tokenizer(models.WordLevel(dict.fromkeys(words, 0) | {w: i for i, w in enumerate(words)}, "[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    vocabulary = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>"))
    ids = vocabulary.encode_text("a <|im_end|> a")
    assert ids == vocabulary.encode_text("a a")


@pytest.mark.parametrize("words", [["BRCA1", "TP53", "EGFR"], ["  ", "    "]])
def test_ordinary_added_tokens_keep_their_ids(words):
    """Added after the control tokens, they must not slide onto the ids of control tokens that are taken out."""
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.add_tokens(words)
    vocabulary = Vocabulary(tokenizer)
    text = f"gene {words[0]} and {words[-1]}. <|im_end|>"
    ids = vocabulary.encode_text(text)
    assert not set(ids) & vocabulary.control_ids and tokenizer.decode(ids) == text
    assert tokenizer.convert_tokens_to_ids(words[-1]) in ids


@lru_cache
def with_words(words: tuple[str, ...]) -> Vocabulary:
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.add_tokens(list(words))
    return Vocabulary(tokenizer)


@given(st.sampled_from([("a", "ab", "abc", "bca", "cc"), ("  ", "    ", "\n\n"), ("é", "中é", "é中")]),
       st.text(alphabet="abc \né中", max_size=30))
def test_the_first_of_the_added_words_is_taken_and_of_those_the_longest(words, text):
    vocabulary = with_words(words)
    longest_first = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    expected: list[int] = []
    for part in re.split(f"({longest_first})", text):
        added = part in words
        expected += [vocabulary.tokenizer.convert_tokens_to_ids(part)] if added else VOCABULARY.encode_text(part)
    assert vocabulary.encode_text(text) == expected


def test_a_normaliser_cannot_smuggle_a_control_token_in():
    """NFKC turns full-width brackets into ASCII ones after any search of the raw text."""
    from tokenizers import AddedToken, pre_tokenizers

    core = Tokenizer(models.WordLevel({"[UNK]": 0, "</s>": 1, "a": 2}, "[UNK]"))
    core.normalizer = normalizers.NFKC()
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens([AddedToken("</s>", special=True)])
    vocabulary = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>"))
    assert not set(vocabulary.encode_text("a ＜/s＞ a </s>")) & vocabulary.control_ids


def test_memory_keeps_sampled_ids_without_control_eos_and_out_of_vocabulary(vocabulary):
    body = vocabulary.encode_text("key of Anna")
    end = one_id(vocabulary, "<|im_end|>")
    sampled = [body[0], end, *body[1:], vocabulary.size, vocabulary.size + 7, end]
    assert vocabulary.memory_ids(sampled, limit=99) == body
    assert vocabulary.memory_ids(sampled, limit=2) == body[:2]


def test_memory_ids_need_not_be_what_the_text_would_encode_to(vocabulary):
    letters = [vocabulary.encode_text(c)[0] for c in "The"]
    assert vocabulary.encode_text("The") != letters
    assert vocabulary.memory_ids(letters, limit=9) == letters


@pytest.mark.parametrize("as_tokens", [True, False], ids=["think is a token", "think is text"])
def test_thinking_never_enters_memory(as_tokens):
    vocabulary = Vocabulary(make_tokenizer(thinking_tokens=as_tokens))
    encode = vocabulary.encode_markup
    red = encode("red")
    assert vocabulary.memory_ids(encode("<think>I see a key</think>") + red, limit=9) == red
    assert vocabulary.memory_ids(encode("prompt opened it</think>") + red, limit=9) == red
    assert vocabulary.memory_ids(encode("a</think>b</think>") + red, limit=9) == red
    assert vocabulary.memory_ids(encode("<think>never closed"), limit=9) == []
    assert vocabulary.memory_ids(encode("never closed"), limit=9, thinking_open=True) == []
    assert vocabulary.answer_text(encode("<think>no \\boxed{x}</think> \\boxed{red}")) == "\\boxed{red}"


def test_every_turn_ending_token_is_a_stop():
    vocabulary = Vocabulary(make_tokenizer())
    assert one_id(vocabulary, "<|im_end|>") in vocabulary.eos_ids


def test_slow_tokenizers_are_refused():
    class Slow:
        is_fast, name_or_path = False, "old/model"

    with pytest.raises(ValueError, match="old/model: a fast tokenizer"):
        Vocabulary(Slow())


def test_a_part_keeps_its_sampled_ids(vocabulary):
    odd = [vocabulary.encode_text(letter)[0] for letter in "The key"]
    ids = [*vocabulary.encode_text("say "), *odd, *vocabulary.encode_text(" now")]
    assert vocabulary.part_ids(ids, 4, 11) == odd


@given(st.lists(st.one_of(st.text(max_size=4), st.sampled_from(["é", "中", "😀", " key"])), max_size=6), st.data())
def test_any_part_decodes_to_its_text(parts, data):
    vocabulary = Vocabulary(make_tokenizer())
    ids = vocabulary.encode_text("".join(parts).encode("utf-8", "ignore").decode())
    text = vocabulary.decode(ids)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert vocabulary.decode(vocabulary.part_ids(ids, start, end)) == text[start:end]


@pytest.mark.parametrize("template,eos,expected", [
    (CHATML, "<|im_end|>", "<|im_end|>"),
    (CHATML, "<|endoftext|>", "<|im_end|>"),  # a base model, whose eos_token is another than its template's end
    ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|endoftext|>{% endfor %}", "<|endoftext|>",
     "<|endoftext|>"),
    (None, "<|endoftext|>", "<|endoftext|>"),
    ("{{ raise_exception('users only') }}", "<|im_end|>", "<|im_end|>"),
    (None, None, None),
])
def test_a_reply_ends_as_the_chat_template_ends_it(template, eos, expected):
    tokenizer = make_tokenizer.__wrapped__()
    tokenizer.chat_template, tokenizer.eos_token = template, eos
    end = Vocabulary(tokenizer).turn_end_id
    assert end == (None if expected is None else tokenizer.convert_tokens_to_ids(expected))
