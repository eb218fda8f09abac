"""Reading evaluation files: every kind of entry, and bad ones are named."""

import hashlib
import json

import pytest

from mem_agent.evaluation.questions import load_questions
from mem_agent.evaluation.results import EvalError

WHOLE = {"context": "c", "input": "q", "answers": ["a"], "index": 1}


def questions_of(root, content, length="50"):
    (root / f"eval_{length}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return [entry.question for entry in load_questions(root, length)]


@pytest.mark.parametrize("content,message", [
    ("[", "not JSON"),
    ([WHOLE | {"answers": []}], "entry 0.*`answers`"),
    ([WHOLE, WHOLE | {"input": " ", "index": 2}], "entry 1.*`input`"),
    ([WHOLE | {"context": [7, 2]}], "entry 0.*hotpot_dev_distractor"),
    ([WHOLE, WHOLE], "entries 0 and 1 .*index 1"),
])
def test_bad_data_names_file_and_entry(tmp_path, content, message):
    with pytest.raises(EvalError, match=rf"eval_50\.json.*{message}"):
        questions_of(tmp_path, content)


def test_what_an_entry_may_leave_out_and_what_a_conversation_has(tmp_path):
    first, second = questions_of(tmp_path, [
        {"context": "c", "input": "q", "answers": [1995]}, WHOLE | {"index": "x7"}])
    assert (first.id, first.answers, first.task, first.metric) == ("0", ["1995"], "", "") and second.id == "x7"
    system = {"role": "system", "content": "Be brief."}
    own = {"numbers": [1, 2], "target": 3, "ground_truth": ["evil"], "task": "other"}
    (asked,) = questions_of(tmp_path, [{
        "input": "Reach 3.", "answers": ["1+2"], "task": "countdown", "metadata": own, "messages": [system],
        "reply_prefix": "So: "}])
    assert asked.prompt == [system, {"role": "user", "content": "Reach 3."}, {"role": "assistant", "content": "So: "}]
    assert asked.metadata == {"numbers": [1, 2], "target": 3, "ground_truth": ["1+2"], "task": "countdown"}


def test_documents_by_number_come_from_the_corpus(tmp_path):
    lines = b'"Ann\\nAnn is."\n"Bob\\nBob is."\n'
    (tmp_path / "corpus.jsonl").write_bytes(lines)
    made_with = {"source": {}, "sha256": "", "bytes": 0, "corpus": {"sha256": hashlib.sha256(lines).hexdigest()}}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"eval_50.json": made_with}}))
    questions_of(tmp_path, [WHOLE | {"context": "", "documents": [1, 0]}])
    assert [entry.context for entry in load_questions(tmp_path, "50")] == [
        "Document 1:\nBob\nBob is.\n\nDocument 2:\nAnn\nAnn is."]
