"""The one-prompt baselines, and RULER's way in every mode: what the prompt holds, what is cut, what is found."""

import json

import pytest

from mem_agent.evaluation.results import read_rows
from mem_agent.tests.helpers.evaluations import CONFIG, RED, entry, evaluate, turns_asked
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

PEOPLE = ("Anna", "Ben", "Carla", "Dan", "Eva", "Finn", *(f"Person {n}" for n in range(7, 13)))
DOCUMENT = "\n\n".join(f"Document {i}:\n{name}\n{name} has the key number {i}." for i, name in enumerate(PEOPLE, 1))
QUESTION = "Which key does Carla have?"


def asked(tmp_path, model, length="50", change=(), **settings):
    """The row of one question about DOCUMENT, its prompts, and the last reply's budget."""
    question = entry(0, context=DOCUMENT, input=QUESTION) | dict(change)
    (tmp_path / f"eval_{length}.json").write_text(json.dumps([question]))
    router = FakeRouter(default=RED)
    output = evaluate(tmp_path, model, router, (length,), **{"engine_max_len": 2048, **settings})
    shown = [make_tokenizer().decode(r["token_ids"]) for r in turns_asked(router)]
    budget = turns_asked(router)[-1]["sampling_params"]["max_tokens"] if shown else 0
    return read_rows(output, length)[0], shown, budget


def test_direct_shows_the_document_without_the_centre_that_does_not_fit(tmp_path, model):
    row, (prompt,), _ = asked(tmp_path, model, eval_mode="direct")
    assert DOCUMENT in prompt and QUESTION in prompt and row["counts"]["dropped_tokens"] == 0 and row["em"] == 1.0
    row, (prompt,), _ = asked(tmp_path, model, eval_mode="direct", engine_max_len=256, out="cut")
    assert row["counts"]["prompt_tokens"] + CONFIG.mem_max_final == 256 and row["counts"]["dropped_tokens"] > 0
    assert "Anna" in prompt and "number 12." in prompt and "number 6." not in prompt
    row, _, _ = asked(tmp_path, model, eval_mode="direct", engine_max_len=40, out="other")
    assert (row["failure"], row["sub_em"]) == ("long_prompt", 0.0)


@pytest.mark.parametrize("mode,most", [("rag", 10), ("rag:bm25:2", 2)])
def test_rag_shows_the_best_passages_in_reading_order(mode, most, tmp_path, model):
    (prompts := tmp_path / "p.yaml").write_text("rag: 'READ {section} THEN {problem} NOW'")
    row, (prompt,), _ = asked(tmp_path, model, eval_mode=mode, mem_prompts=str(prompts))
    assert "READ Document " in prompt and f" THEN {QUESTION} NOW" in prompt
    assert "Carla has the key" in prompt and prompt.count("has the key number") == most
    assert prompt.index("Document 1:") < prompt.index("Document 3:")
    assert (row["counts"]["passages"], row["counts"]["retrieved"], row["failure"]) == (12, most, None)


# --- RULER's prefix, example and limit ------------------------------------------------------------------------------

RULER = {"answers": ["red", "blue"], "metric": "string_match_all", "task": "vt", "context": "The key is red.",
         "input": "Which?", "answer_prefix": "They are:", "example": "Solved: green.\n", "tokens_to_generate": 3}


@pytest.mark.parametrize("mode", ["recurrent", "direct", "rag:bm25:3"])
@pytest.mark.parametrize("thinks", [False, True])
def test_ruler_s_way_in_every_mode(mode, thinks, tmp_path, model):
    """A model that thinks gets neither prefix nor limit."""
    row, shown, budget = asked(tmp_path, model, "vt_8192", RULER, eval_mode=mode, mem_chunk_tokens=64,
                               mem_thinking=thinks)
    assert shown[-1].endswith("assistant\n" if thinks else "assistant\n<think>\n\n</think>\n\nThey are:")
    assert budget == (16 if thinks else 3) and sum("Solved: green." in prompt for prompt in shown) == 1
    assert not any("They are:" in prompt for prompt in shown[:-1])
    assert row["response"] == row["pred"] == "it is \\boxed{red}" and row["ruler"] == 0.5
    _, shown, budget = asked(tmp_path, model, "vt_8192", RULER, eval_mode=mode, task="ruler",
                             task_args="answer=the_answer_is", mem_chunk_tokens=64, out="another way")
    assert budget == 16 and not any(part in shown[-1] for part in ("They are", "Solved"))
