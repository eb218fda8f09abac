"""What a template writes around a text is counted, in whatever way it is said; those of models are read."""

import json

import pytest

from mem_agent.system.tokenizer_growth import check_growth
from mem_agent.system.tokenizer_parts import GrowsTooMuch
from mem_agent.system.tokenizer_templates import LETTERS, WRITTEN

TEXT, SPECIAL = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}


def template(single, ids=(1,), tokens=None):
    pieces = {"A": TEXT, "x": SPECIAL}
    names = ["x"] * len(ids) if tokens is None else tokens
    return {"type": "TemplateProcessing", "single": [pieces[name] for name in single], "pair": [],
            "special_tokens": {"x": {"id": "x", "ids": list(ids), "tokens": names}}}


def sequence(*rules):
    return {"type": "Sequence", "processors": list(rules)}


OF_MODELS = {
    "bert": template("xAx"), "many texts": template("A" * WRITTEN),
    "llama 3": sequence({"type": "ByteLevel"}, template("xA")),
    "an older bert": {"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]},
    "roberta": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True},
    "long names": template("xxAx", [1, 2], ["<|start_of_transcript|>" * 9, "x" * 100]),
    "not written": template("A", range(10**5)),
}


@pytest.mark.parametrize("rule", OF_MODELS.values(), ids=OF_MODELS)
def test_templates_of_models_are_read(rule):
    check_growth({"post_processor": rule})


@pytest.mark.parametrize("many", [
    template("A" * (WRITTEN + 1)), template("x" * 40 + "A", [1] * 30),
    sequence(template("A" * 700), template("A" * 700)), template("x" * 40, [], ["x"] * 30),
    template("x" * 40, [1] * 30, []),
])
def test_what_a_template_writes_is_bounded(many):
    with pytest.raises(GrowsTooMuch, match=r"post_processor write 1\d\d\d tokens and texts, more than 1024"):
        check_growth({"post_processor": many})


@pytest.mark.parametrize("many", [
    template("x" * 500, tokens=["s" * 10**6]), template("x", [], ["s" * LETTERS, "s"]),
    sequence({"type": "BertProcessing", "sep": ["s" * LETTERS, 1], "cls": ["x", 0]}),
])
def test_letters_of_what_it_writes_are_bounded(many):
    with pytest.raises(GrowsTooMuch, match=r"post_processor write \d+ letters, more than 16384"):
        check_growth({"post_processor": many})


def test_more_than_memory_holds_is_counted_without_being_made():
    with pytest.raises(GrowsTooMuch, match="post_processor write 1000001000 tokens"):
        check_growth({"post_processor": template("x" * 1000, [], ["s"] * 10**6)})


@pytest.mark.parametrize("odd", [
    {"single": [{"Sequence": ["A", 0]}]}, {"single": [{"SpecialToken": ["x", 0]}]}, {"pair": [["SpecialToken", "x"]]},
    {"single": [TEXT | SPECIAL]}, {"single": ["A"]}, {"special_tokens": {"x": ["x", [0], ["x"]]}},
    {"special_tokens": [["x", {}]]}, {"pair": [{"Other": {}}]},
])
def test_what_the_library_reads_from_arrays_is_refused(odd):
    with pytest.raises(GrowsTooMuch, match=r"(piece|special tokens?) of a template (is|are)"):
        check_growth({"post_processor": template("xA") | odd})


def test_a_text_is_as_long_as_is_said():
    from tokenizers import Tokenizer

    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    made = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model,
                                          "post_processor": template("x" * 7 + "A", [1] * 5)}))
    assert len(made.encode("a").ids) == 7 * 5 + 1
