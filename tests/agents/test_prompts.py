"""Prompts are spliced from ready ids; the two layouts and the override; thinking off."""

import copy

import pytest

from mem_agent.agents import BASELINES, all_wording
from mem_agent.agents.prompts import chat_frame, compile_template, load_prompts
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import ConfigError
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(make_tokenizer())


def template(vocabulary, text, thinking=False):
    return compile_template(text, chat_frame(vocabulary.tokenizer, thinking, {}), vocabulary)


def test_filled_prompt_decodes_to_the_rendered_chat(vocabulary):
    encode = vocabulary.encode_text
    values = {"problem": encode("who?"), "section": encode("Anna is red"), "memory": encode("Ben")}
    ids = template(vocabulary, "P {problem} S {section} M {memory} {braces} \\boxed{}").fill(values)
    assert vocabulary.tokenizer.decode(ids) == (
        "<|im_start|>user\nP who? S Anna is red M Ben {braces} \\boxed{}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_slot_ids_are_spliced_untouched(vocabulary):
    """Ids that no encoder would produce for their text survive, e.g. letters of a word and odd boundaries."""
    odd = [vocabulary.encode_text(c)[0] for c in "The"]
    ids = template(vocabulary, "{problem}{section}{memory}").fill({"problem": odd, "section": odd, "memory": odd})
    start = ids.index(odd[0])
    assert ids[start : start + 9] == odd * 3


@pytest.mark.parametrize("layout,order", [("section_first", "psm"), ("memory_first", "pms")])
def test_layouts(vocabulary, layout, order):
    compiled = template(vocabulary, load_prompts(layout).memory)
    assert "".join(slot[0] for slot in compiled.slots) == order


def test_section_first_shares_everything_up_to_the_memory(vocabulary):
    compiled = template(vocabulary, load_prompts("section_first").memory)
    values = {"problem": [5] * 4, "section": [6] * 50}
    a, b = (compiled.fill(values | {"memory": [m] * 7}) for m in (8, 9))
    shared = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    assert a[:shared].count(6) >= 50


def test_final_prompt_shows_single_braces():
    """The published code showed ``\\boxed{{}}`` in training and ``\\boxed{}`` in evaluation."""
    assert "\\boxed{}" in load_prompts("section_first").final and "{{" not in load_prompts("section_first").final


WITH_DOCUMENT = (
    "Solve the problem with what the document says and write the final answer inside \\boxed{}.\n\n"
    "<document>\n{section}\n</document>\n\n<problem>\n{problem}\n</problem>\n\nAnswer:\n"
)


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("layout", ["section_first", "memory_first"])
@pytest.mark.parametrize("mode", BASELINES)
def test_the_baselines_prompt_depends_on_no_setting_of_a_reader(mode, layout, blind):
    assert load_prompts(layout, own=all_wording(), blind=blind).own[mode] == WITH_DOCUMENT


def test_thinking_switch(vocabulary):
    assert not template(vocabulary, "{problem}{memory}").thinking_open
    assert vocabulary.tokenizer.decode(template(vocabulary, "{problem}{memory}", True).pieces[-1]).endswith(
        "assistant\n"
    )


def test_override_replaces_wording(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("memory: 'A {problem} {memory} {section}'\nempty_memory: none\n")
    prompts = load_prompts("section_first", str(path))
    assert prompts.memory == "A {problem} {memory} {section}" and prompts.empty_memory == "none"
    assert prompts.final == load_prompts("section_first").final


@pytest.mark.parametrize(
    "content,message",
    [
        ("memory: 'no slots'", "template `memory` needs each of problem, section, memory once"),
        ("memory: '{problem}{problem}{section}{memory}'", "needs each of"),
        ("direct: '{section}'", r"template `direct` needs each of section, problem once .*, has \['section'\]"),
        ("rag: '{problem}{section}{memory}'", "template `rag` needs each of section, problem once"),
        ("memry: x", "allowed: a mapping of memory, final, .*, direct, rag, empty_memory"),
        ("- a", "allowed: a mapping"),
        ("a: [", "cannot be read"),
    ],
)
def test_bad_overrides_are_one_line(tmp_path, content, message):
    path = tmp_path / "p.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message) as error:
        load_prompts("section_first", str(path), all_wording())
    assert "\n" not in str(error.value)


def test_missing_override_names_the_variable():
    with pytest.raises(ConfigError, match=r"MEM_PROMPTS='/nowhere\.yaml'"):
        load_prompts("section_first", "/nowhere.yaml")


def test_chat_template_that_drops_the_message_is_refused(vocabulary):
    with pytest.raises(ConfigError, match="does not show a user message once"):
        compile_template("{problem}", lambda content: "constant", vocabulary)


@pytest.mark.parametrize("template,reason", [
    ("{{ raise_exception('a system message\nis needed') }}", "a system message is needed"),
    ("{{ 1 / 0 }}", "division by zero"),
])
def test_a_chat_template_that_fails_is_one_line(template, reason):
    tokenizer = copy.deepcopy(make_tokenizer())
    tokenizer.chat_template = template
    with pytest.raises(ConfigError, match=f"cannot show a single user message: .*{reason}") as error:
        chat_frame(tokenizer, False, {})("hello")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("layout", ["section_first", "memory_first"])
def test_a_hidden_problem_has_no_slot_before_the_final_turn(layout):
    shown, hidden = (load_prompts(layout, own=all_wording(), blind=blind) for blind in (False, True))
    for prompts, there in ((shown, True), (hidden, False)):
        assert all(("{problem}" in text) is there for text in before_the_final_turn(prompts))
    assert hidden.final == shown.final and "{problem}" in hidden.final
    assert hidden.own["revisit_final"] == shown.own["revisit_final"] and "{problem}" in hidden.own["revisit_final"]
    assert "in order to solve a problem" not in "".join(before_the_final_turn(hidden))


def before_the_final_turn(prompts):
    answering = ("revisit_final", "single", "direct", "rag")
    return [prompts.memory, *(text for name, text in prompts.own.items() if name not in answering)]


def test_an_override_that_shows_a_hidden_problem_is_refused(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("memory: 'A {problem} {memory} {section}'\n")
    with pytest.raises(ConfigError, match=r"needs each of section, memory once .* while MEM_QUERY_BLIND=1"):
        load_prompts("section_first", str(path), blind=True)
