"""Prompts are spliced from ready ids; layouts, hidden questions and wording of one's own."""

import copy

import pytest

from mem_agent.agents import build_agent
from mem_agent.agents.prompts import TEXTS, chat_frame, compile_template, load_prompts
from mem_agent.agents.records import Section, TurnKind
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config, ConfigError
from mem_agent.tests.helpers.scripted import VOCABULARY
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

VALUES = {"problem": [5] * 4, "section": [6] * 50, "memory": [7] * 9}


def template(text, thinking=False):
    return compile_template(text, chat_frame(VOCABULARY.tokenizer, thinking, {}), VOCABULARY)


def test_a_filled_prompt_decodes_to_the_rendered_chat():
    encode = VOCABULARY.encode_text
    values = {"problem": encode("who?"), "section": encode("Anna is red"), "memory": encode("Ben")}
    ids = template("P {problem} S {section} M {memory} {braces} \\boxed{}").fill(values)
    assert VOCABULARY.tokenizer.decode(ids) == (
        "<|im_start|>user\nP who? S Anna is red M Ben {braces} \\boxed{}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


@pytest.mark.parametrize("layout,order,shared", [("section_first", "psm", 54), ("memory_first", "pms", 4)])
def test_a_request_says_where_its_section_is_and_what_siblings_share(layout, order, shared):
    compiled = template(load_prompts(layout)["memory"])
    assert "".join(slot[0] for slot in compiled.slots) == order
    request = compiled.request(TurnKind.MEMORY, VALUES, 8, section=3)
    assert request.told and request.section == Section(3, request.section.start, request.section.start + 50)
    assert request.prompt_ids[request.section.start : request.section.end] == [6] * 50
    other = compiled.request(TurnKind.MEMORY, VALUES | {"memory": [8] * 9}, 8)
    assert other.section is None and not other.told and other.shared == request.shared
    assert request.prompt_ids[: request.shared] == other.prompt_ids[: request.shared]
    assert request.prompt_ids[request.shared] == 7
    assert sum(i in (5, 6) for i in request.prompt_ids[: other.shared]) >= shared


def test_an_override_replaces_wording(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("memory: 'A {problem} {memory} {section}'\nempty_memory: none\nmine: 'my {problem}'\n")
    prompts = load_prompts("section_first", str(path), {"mine": "{problem}"})
    assert prompts["memory"] == "A {problem} {memory} {section}" and prompts["empty_memory"] == "none"
    assert prompts["final"] == TEXTS["final"] and prompts["mine"] == "my {problem}"


@pytest.mark.parametrize("content", [
    "memory: 'no slots'", "rag: '{problem}{section}{memory}'", "memry: x", "- a", "a: [", "final: 3",
])
def test_bad_overrides_are_refused_by_the_name_of_their_file(tmp_path, content):
    path = tmp_path / "p.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"MEM_PROMPTS=.*p\.yaml"):
        load_prompts("section_first", str(path))
    path.write_text("memory: '{problem} {memory} {section}'")
    with pytest.raises(ConfigError, match="query_blind"):
        load_prompts("section_first", str(path), blind=True)


@pytest.mark.parametrize("chat_template", ["constant", "{{ 1 / 0 }}"])
def test_a_chat_template_that_shows_no_message_is_refused(chat_template):
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.chat_template = chat_template
    with pytest.raises(ConfigError, match="chat template"):
        compile_template("{problem}", chat_frame(tokenizer, False, {}), VOCABULARY)


def test_a_model_without_a_chat_template_is_named_once(caplog):
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.chat_template, tokenizer.name_or_path = None, "/models/base"
    for _ in range(2):
        build_agent(Config(), Vocabulary(tokenizer), {})
    assert caplog.text.count("/models/base") == 1
