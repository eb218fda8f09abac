"""Reading evaluation files: every kind of entry, and every kind of damage in one line."""

import hashlib
import json
import os

import pytest

from mem_agent.evaluation.questions import Contexts, EvalError, data_hash, load_questions
from mem_agent.system.errors import MemAgentError


def write(root, content, length="50"):
    text = content if isinstance(content, str) else json.dumps(content)
    (root / f"eval_{length}.json").write_text(text)


WHOLE = {"context": "c", "input": "q", "answers": ["a"], "index": 1}
BAD = [
    ("[", "not JSON after 0 entries"),
    (json.dumps([WHOLE])[:-2], "not JSON after 0 entries"),
    (json.dumps([WHOLE])[:-1] + ', {"context": "cut he', "not JSON after 1 entries"),
    ("[]", "expected a non-empty list"),
    ("{}", "expected a non-empty list"),
    (["text"], "entry 0 has no usable `input`"),
    ([WHOLE | {"answers": []}], "entry 0 has no usable `answers`"),
    ([{"context": "c", "answers": ["a"]}], "entry 0 has no usable `input`"),
    ([WHOLE, WHOLE | {"input": " \n", "index": 2}], "entry 1 has no usable `input`: it is blank"),
    *(([WHOLE | {"answers": ["a", answer]}], "entry 0 has no usable `answers`: each is a text that is not blank")
      for answer in (None, True, "", " \u00a0", ["Ann"], {"text": "Ann"}, [])),
    *(([WHOLE | {"index": index}], "entry 0 has no usable `index`") for index in ([1], {"a": 1}, 1.5)),
    ([WHOLE | {"metric": ["x"]}], "entry 0 has no usable `metric`"),
    ([WHOLE | {"task": ["x"]}], "entry 0 has no usable `task`"),
    ([WHOLE | {"context": [7, 2]}], "entry 0: its documents are named by number, of HotpotQA's hotpot_dev_distractor"),
    ([WHOLE | {"context": ""}], "entry 0 has no usable `context`"),
    ([WHOLE, WHOLE], "entries 0 and 1 both have the index 1"),
    ([WHOLE | {"metric": "bleu"}], "entry 0 has the metric 'bleu'; known are string_match_all, string_match_part"),
    ([{"documents": ["x"], "input": "q", "answers": ["a"]}], "entry 0 has no usable `documents`"),
    (json.dumps([WHOLE])[:-1] + ", {broken}]", "entry 1: not valid JSON"),
    *((f'[{{"context": "c", "input": "q{i}", "answers": ["a{a}"], "index": "{n}"}}]', "entry 0: not valid JSON")
      for i, a, n in ((r"\ud800", "", ""), ("", r"\udc00", ""), ("", "", r"\ud800x"))),
    ([WHOLE | {"messages": {"role": "user"}}], "entry 0 has no usable `messages`"),
    ([WHOLE | {"messages": [{"role": "tool", "content": "x"}]}],
     "entry 0 has no usable `messages`: each has a role (system, user, assistant) and a text as content"),
    ([WHOLE | {"messages": [{"role": "user", "content": ""}]}], "entry 0 has no usable `messages`: each has"),
    ([WHOLE | {"metadata": [1]}], "entry 0 has no usable `metadata`"),
    *(([WHOLE | {"metadata": {"task": task}}], "entry 0 has no usable `metadata`: its `task` is no text")
      for task in (["a"], {"a": 1}, 5, True, [])),
    ([WHOLE | {"metadata": {"reply_prefix": [1]}}], "entry 0 has no usable `metadata`: its `reply_prefix` is no text"),
    ([WHOLE | {"reply_prefix": 1}], "entry 0 has no usable `reply_prefix`"),
    ('[{"answers": ' + "[" * 100_000 + "]" * 100_000 + "}]", "entry 0: nested deeper than 64"),
]


@pytest.mark.parametrize("content,message", BAD)
def test_bad_data_is_one_line(tmp_path, content, message):
    write(tmp_path, content)
    with pytest.raises(EvalError) as error:
        list(load_questions(tmp_path, "50"))
    assert message in str(error.value) and "eval_50.json" in str(error.value) and "\n" not in str(error.value)


def test_what_an_entry_may_leave_out(tmp_path):
    write(tmp_path, [{"context": "c", "input": "q", "answers": [1995]}, WHOLE | {"index": "x7"}])
    first, second = (entry.question for entry in load_questions(tmp_path, "50"))
    assert (first.id, first.answers, first.task, first.metric) == ("0", ("1995",), "", "") and second.id == "x7"


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


def test_the_length_of_a_reply_is_no_field_of_a_task(tmp_path):
    own = {"task": None, "reply_prefix": "So: ", "reply_tokens": "abc", "level": 3}
    write(tmp_path, [WHOLE | {"metadata": own}, WHOLE | {"index": 2, "metadata": own, "tokens_to_generate": 9}])
    first, second = (entry.question.metadata for entry in load_questions(tmp_path, "50"))
    assert first == {"task": None, "reply_prefix": "So: ", "level": 3, "ground_truth": ["a"]}
    assert second == first | {"reply_tokens": 9}


def indexed(tmp_path, lines=b'"Ann\\nAnn is."\n"Bob\\nBob is."\n', documents=(1, 0)):
    (tmp_path / "corpus.jsonl").write_bytes(lines)
    digest = hashlib.sha256(lines).hexdigest()
    write(tmp_path, [{"documents": documents, "input": "q", "answers": ["a"], "index": 0}], "25600")
    content = (tmp_path / "eval_25600.json").read_bytes()
    files = {
        "corpus.jsonl": {"source": {}, "sha256": digest, "bytes": len(lines)},
        "eval_25600.json": {
            "source": {}, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content),
            "corpus": {"file": "corpus.jsonl", "sha256": digest},
        },
    }
    (tmp_path / "manifest.json").write_text(json.dumps({"files": files}))


def test_documents_by_number_come_from_the_corpus(tmp_path):
    indexed(tmp_path)
    (entry,) = load_questions(tmp_path, "25600")
    assert entry.context == "Document 1:\nBob\nBob is.\n\nDocument 2:\nAnn\nAnn is."
    before = data_hash(tmp_path, "25600")
    with (tmp_path / "corpus.jsonl").open("a") as file:
        file.write('"more"\n')
    assert data_hash(tmp_path, "25600") != before
    with pytest.raises(MemAgentError, match=r"corpus\.jsonl"):
        list(load_questions(tmp_path, "25600"))


@pytest.mark.parametrize(("lines", "documents", "line"), [
    (b'"Ann"\n{bad\n', (1, 0), r"line 2 is no text in JSON; synthesise it again"),
    (b'7\n"Bob"\n', (1, 0), r"line 1 is no text"), (b'"Ann"\n' + b"[" * 1000, (0, 1), r"line 2 is no text"),
    (b'"Ann"\n"Bob"\n', (1, 0) * 17, "an entry is 16 times longer"),  # 200 KB were 200 MB
    (b'"Ann"\n', (0, 1), "no document 1 among 1"),
])
def test_a_bad_corpus_is_one_line(tmp_path, lines, documents, line):
    indexed(tmp_path, lines, documents)
    with pytest.raises(EvalError, match=rf"eval_25600\.json: entry 0: .*corpus\.jsonl: {line}") as error:
        list(load_questions(tmp_path, "25600"))
    assert "\n" not in str(error.value)


def test_a_document_may_repeat_its_corpus_as_rulers_do(tmp_path):
    indexed(tmp_path, b'"Ann"\n"Bob"\n', (1, 0) * 16)
    (entry,) = load_questions(tmp_path, "25600")
    assert entry.context.count("Bob") == 16


def test_a_file_of_numbers_without_a_word_about_its_corpus_is_refused(tmp_path):
    indexed(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["files"]["eval_25600.json"]["corpus"]  # as a download enters it
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MemAgentError, match=r"eval_25600\.json: .* does not say which corpus.* copy all three"):
        list(load_questions(tmp_path, "25600"))


@pytest.mark.parametrize(("corpus", "line"), [
    ({}, r"corpus\.jsonl: is not the corpus eval_25600\.json was made with"), (7, r"manifest\.json: is damaged"),
])
def test_a_corpus_that_is_named_without_its_hash_is_another_one(tmp_path, corpus, line):
    indexed(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["files"]["eval_25600.json"]["corpus"] = corpus
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MemAgentError, match=line):
        list(load_questions(tmp_path, "25600"))


def test_contexts_come_back_and_leave_no_file(tmp_path):
    contexts = Contexts(tmp_path)
    texts = ["ä red key", "", "x" * 100_000, "\ud800 half a pair"]
    places = [contexts.put(text) for text in texts]
    assert [contexts.get(place) for place in reversed(places)] == texts[::-1]
    assert os.listdir(tmp_path) == []
    contexts.close()
