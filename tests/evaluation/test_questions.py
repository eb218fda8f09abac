"""Reading evaluation files: every kind of entry, and bad ones are named."""

import hashlib
import json

import pytest

from mem_agent.evaluation.questions import EvalError, data_hash, load_questions
from mem_agent.system.errors import MemAgentError


def write(root, content, length="50"):
    text = content if isinstance(content, str) else json.dumps(content)
    (root / f"eval_{length}.json").write_text(text)


WHOLE = {"context": "c", "input": "q", "answers": ["a"], "index": 1}
BAD = [
    ("[", "not JSON"),
    ([WHOLE | {"answers": []}], "entry 0.*`answers`"),
    ([WHOLE, WHOLE | {"input": " ", "index": 2}], "entry 1.*`input`"),
    ([WHOLE | {"context": [7, 2]}], "entry 0.*hotpot_dev_distractor"),
    ([WHOLE, WHOLE], "entries 0 and 1 .*index 1"),
]


@pytest.mark.parametrize("content,message", BAD)
def test_bad_data_names_file_and_entry(tmp_path, content, message):
    write(tmp_path, content)
    with pytest.raises(EvalError, match=rf"eval_50\.json.*{message}"):
        list(load_questions(tmp_path, "50"))


def test_what_an_entry_may_leave_out(tmp_path):
    write(tmp_path, [{"context": "c", "input": "q", "answers": [1995]}, WHOLE | {"index": "x7"}])
    first, second = (entry.question for entry in load_questions(tmp_path, "50"))
    assert (first.id, first.answers, first.task, first.metric) == ("0", ["1995"], "", "") and second.id == "x7"


def test_a_conversation_with_fields_of_its_task(tmp_path):
    system, shot = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}
    own = {"numbers": [1, 2], "target": 3, "ground_truth": ["evil"], "task": "other"}
    asked = {"input": "Reach 3.", "answers": ["1+2"], "task": "countdown", "metadata": own}
    write(tmp_path, [asked | {"messages": [system, shot], "reply_prefix": "So: "}, asked | {"index": "b"}], "cd")
    first, second = (entry.question for entry in load_questions(tmp_path, "cd"))
    assert first.prompt == [system, shot, {"role": "user", "content": "Reach 3."},
                            {"role": "assistant", "content": "So: "}]
    assert second.prompt == "Reach 3."
    assert first.metadata == {"numbers": [1, 2], "target": 3, "ground_truth": ["1+2"], "task": "countdown"}


def test_documents_by_number_come_from_the_corpus(tmp_path):
    lines = b'"Ann\\nAnn is."\n"Bob\\nBob is."\n'
    (tmp_path / "corpus.jsonl").write_bytes(lines)
    write(tmp_path, [{"documents": [1, 0], "input": "q", "answers": ["a"], "index": 0}], "25600")
    made_with = {"source": {}, "sha256": "", "bytes": 0, "corpus": {"sha256": hashlib.sha256(lines).hexdigest()}}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"eval_25600.json": made_with}}))
    (entry,) = load_questions(tmp_path, "25600")
    assert entry.context == "Document 1:\nBob\nBob is.\n\nDocument 2:\nAnn\nAnn is."
    before = data_hash(tmp_path, "25600")
    (tmp_path / "corpus.jsonl").write_bytes(lines + b'"more"\n')
    assert data_hash(tmp_path, "25600") != before
    with pytest.raises(MemAgentError, match=r"corpus\.jsonl"):
        list(load_questions(tmp_path, "25600"))
