"""Text to token ids: none becomes a control token; prompts are spliced from ready ids; documents are cut."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from mem_agent.agents import build_agent
from mem_agent.agents.documents import split_chunks, split_sentences
from mem_agent.agents.interface import Reading
from mem_agent.agents.prompts import TEXTS, chat_frame, compile_template, load_prompts
from mem_agent.agents.records import Section, TurnKind
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config, ConfigError
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


@pytest.mark.parametrize("agent", ["rememr1", "chat"])
@pytest.mark.parametrize("template", [None, CHATML, "<|endoftext|>" + CHATML], ids=["none", "without", "with"])
def test_a_prompt_begins_once_as_the_tokenizer_begins_a_text(agent, template):
    """A model whose tokenizer begins a plain text with a token, as Llama's and Gemma's do."""
    tokenizer = copy.deepcopy(make_tokenizer())
    bos = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", bos)])
    tokenizer.chat_template = template
    vocabulary = Vocabulary(tokenizer)
    built = build_agent(Config(agent=agent, mem_chunk_tokens=4), vocabulary, {})
    chunks = split_chunks(vocabulary.encode_text("QWZR"), 4, None)
    (request,) = built.requests(built.start(Reading(vocabulary.encode_text("who?"), chunks)))
    assert request.prompt_ids[0] == bos and request.prompt_ids.count(bos) == 1


# a reply | what is left of it
THINKING = [
    ("<think>I see a key</think>red", "red"), ("prompt opened it</think>red", "red"), ("a</think>b</think>red", "red"),
    ("<think>\nthe fruit may be \\boxed{apple}", ""), ("red", "red"),
]


@pytest.mark.parametrize("text,left", THINKING)
@pytest.mark.parametrize("ids_of", [VOCABULARY.encode_markup, VOCABULARY.encode_text, PLAIN.encode_markup],
                         ids=["tokens", "spelled out", "no such tokens"])
def test_thinking_is_no_memory_and_no_answer_however_it_comes(ids_of, text, left):
    """Spelled out in ordinary tokens it comes from servers that answer in text."""
    vocabulary, ids = ids_of.__self__, ids_of(text)
    assert vocabulary.decode(vocabulary.memory_ids(ids, limit=99)) == left == vocabulary.answer_text(ids)
    assert vocabulary.answer_text(ids, thinking_open=True) == (left if "</think>" in text else "")


@pytest.mark.parametrize("template,expected", [
    (CHATML, "<|im_end|>"),  # a base model, whose eos_token is another than its template's end
    (None, "<|endoftext|>"),
])
def test_a_reply_ends_as_the_chat_template_ends_it(template, expected):
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.chat_template, tokenizer.eos_token = template, "<|endoftext|>"
    assert Vocabulary(tokenizer).turn_end_id == tokenizer.convert_tokens_to_ids(expected)


# --- prompts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout,order,shared", [("section_first", "psm", 54), ("memory_first", "pms", 4)])
def test_a_request_says_where_its_section_is_and_what_siblings_share(layout, order, shared):
    frame = chat_frame(VOCABULARY.tokenizer, False, {})
    compiled = compile_template(load_prompts(layout)["memory"], frame, VOCABULARY)
    values = {"problem": [5] * 4, "section": [6] * 50}
    assert "".join(slot[0] for slot in compiled.slots) == order
    request = compiled.request(TurnKind.MEMORY, values | {"memory": [7] * 9}, 8, section=3)
    assert request.told and request.section == Section(3, request.section.start, request.section.start + 50)
    assert request.prompt_ids[request.section.start : request.section.end] == [6] * 50
    assert request.prompt_ids[request.shared] == 7
    assert sum(i in (5, 6) for i in request.prompt_ids[: request.shared]) >= shared


def test_an_override_replaces_wording(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("memory: 'A {problem} {memory} {section}'\nempty_memory: none\nmine: 'my {problem}'\n")
    prompts = load_prompts("section_first", str(path), {"mine": "{problem}"})
    assert prompts["memory"] == "A {problem} {memory} {section}" and prompts["empty_memory"] == "none"
    assert prompts["final"] == TEXTS["final"] and prompts["mine"] == "my {problem}"
    with pytest.raises(ConfigError, match="query_blind"):
        load_prompts("section_first", str(path), {"mine": "{problem}"}, blind=True)


@pytest.mark.parametrize("content", ["memory: 'no slots'", "rag: '{problem}{section}{memory}'", "memry: x", "a: ["])
def test_bad_overrides_are_refused_by_the_name_of_their_file(tmp_path, content):
    (tmp_path / "p.yaml").write_text(content)
    with pytest.raises(ConfigError, match=r"MEM_PROMPTS=.*p\.yaml"):
        load_prompts("section_first", str(tmp_path / "p.yaml"))


# --- documents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length,chunks,dropped", [
    (5, [[0, 1], [2, 3], [4]], 0), (10, [[0, 1], [2, 7], [8, 9]], 4), (0, [], 0),
])
def test_chunks_are_consecutive_slices_and_only_the_centre_is_dropped(length, chunks, dropped):
    result = split_chunks(list(range(length)), 2, 3)
    assert [list(chunk) for chunk in result.chunks] == chunks
    assert (result.dropped, result.tokens) == (dropped, length)


def test_a_model_without_a_chat_template_is_named_once(caplog):
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.chat_template, tokenizer.name_or_path = None, "/models/base"
    for _ in range(2):
        build_agent(Config(), Vocabulary(tokenizer), {})
    assert caplog.text.count("/models/base") == 1


def test_whole_sentences_end_a_section_where_there_is_room_for_them():
    text = 'He ran. "Did she sit?" Mr. Key (old.) was\n\nred. The end'
    ids = VOCABULARY.encode_text(text)
    ends = VOCABULARY.sentence_ends(ids)
    assert [VOCABULARY.decode(ids[a:b]) for a, b in zip([0, *ends], ends, strict=False)] == [
        "He ran.", ' "Did she sit?"', " Mr.", " Key (old.)", " was\n\nred.", " The end"]
    found = split_sentences(ids, 20, 20, None, ends)
    assert found.dropped == 0 and [i for chunk in found.chunks for i in chunk] == ids
    assert all(len(chunk) <= 20 for chunk in found.chunks)
    assert VOCABULARY.decode(found.chunks[0]).endswith((".", '"', ")"))
    assert VOCABULARY.sentence_ends([]) == []


@pytest.mark.parametrize(("size", "longest", "most", "chunks", "dropped"), [
    (4, 4, None, [[1, 2, 3, 4], [5]], 0), (3, 3, None, [[1], [2, 3, 4], [5]], 0),
    (2, 2, None, [[1], [2, 3], [4, 5]], 0), (2, 4, None, [[1], [2, 3, 4], [5]], 0),
    (2, 2, 2, [[1], [4, 5]], 2), (9, 9, None, [[1, 2, 3, 4, 5]], 0),
])
def test_sections_of_whole_sentences(size, longest, most, chunks, dropped):
    found = split_sentences([1, 2, 3, 4, 5], size, longest, most, [1, 4, 5])
    assert ([list(chunk) for chunk in found.chunks], found.dropped) == (chunks, dropped)
