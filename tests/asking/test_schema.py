"""Bodies of requests: documents in all their forms, where a message's question begins, options, what is refused."""

import asyncio

import pytest
from pydantic import ValidationError

from mem_agent.asking.schema import ChatRequest, conversation, split_message


def user(*content):
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def text(said):
    return {"type": "text", "text": said}


def file(**inside):
    return {"type": "file", "file": inside}


def read(*messages, documents=()):
    """Messages and document of a conversation; a text is long from 60 characters on."""
    asked = ChatRequest.model_validate({"messages": list(messages), "documents": list(documents)})

    async def text_of(document):
        return document if isinstance(document, str) else document.text or document.file_id or str(document.file_data)

    return asyncio.run(conversation(asked, lambda text: len(text) > 60, text_of))


FORMS = {
    "in the message": ([user("Ann has gold.\n\nQuestion: Who?")], [], "Ann has gold."),
    "as a text before": ([user(text("Ann has gold."), text("Who?"))], [], "Ann has gold."),
    "as an uploaded file": ([user(file(file_id="f1"), text("Who?"))], [], "f1"),
    "as a file inside": ([user(text("Who?"), file(file_data="QQ==", filename="a.txt"))], [], "b'A'"),
    "beside": ([user("Who?")], ["Carl.", {"title": "T", "text": "Silver."}, {"file_id": "f1"}],
               "Carl.\n\nSilver.\n\nf1"),
    "earlier": ([user("Ann has gold.\n\nQuestion: What?"), {"role": "assistant", "content": "gold"}, user("Who?")], [],
                "Ann has gold."),
    "none": ([user("Who?")], [], ""),
    "a prompt's last line": ([user(text("Ann has gold."), text("Who?\nAnswer:"))], [], "Ann has gold."),
    "a prompt beside a file": ([user(file(file_id="f1"), text("Who? answer :\n"))], [], "f1"),
    "a prompt beside documents": ([user("Who?\n\nAnswer:")], ["Carl."], "Carl."),
}  # fmt: skip


@pytest.mark.parametrize("messages,documents,expected", FORMS.values(), ids=FORMS)
def test_documents_and_the_question(messages, documents, expected):
    said, document = read(*messages, documents=documents)
    assert document == expected and said[-1] == {"role": "user", "content": "Who?"}


def test_a_long_text_is_a_question_where_the_document_is_named():
    said = "Who has it?\n\n" * 9
    assert read(user(said), documents=["d"])[0] == [{"role": "user", "content": said.strip()}]


def test_messages_keep_their_order_and_roles():
    said, _ = read({"role": "developer", "content": "Be brief."}, user("One?"), {"role": "assistant", "content": "1"},
                   {"role": "assistant", "content": None}, user("Two?"), {"role": "assistant", "content": "It is"})
    assert [(m["role"], m["content"]) for m in said] == [
        ("system", "Be brief."), ("user", "One?"), ("assistant", "1"), ("user", "Two?"), ("assistant", "It is")]


def options(**fields):
    return ChatRequest.model_validate({"messages": [user("Who?")], **fields}).options()


def test_options():
    asked = options(temperature=0, top_p=0.5, seed=3, max_tokens=9, stop="x", n=1, tools=[], unknown="?",
                    logprobs=None, response_format={"type": "text"})
    assert asked == {"sampling": {"temperature": 0.0, "top_p": 0.5}, "seed": 3, "answer_tokens": 9, "stop": ["x"]}
    asked = options(max_completion_tokens=5, max_tokens=9, stop=["", "a"])
    assert asked["answer_tokens"] == 5 and asked["stop"] == ["a"]
    fields = ("stream", "stop", "seed", "max_tokens", "temperature", "tools", "n", "model")
    assert options(**dict.fromkeys(fields)) == options()


@pytest.mark.parametrize("body", [
    {"messages": ["hello", user("Who?")]}, {"messages": [{"role": "tool", "content": "x"}, user("Who?")]},
    {"messages": [user(text(3))]}, {"messages": [user({"type": "image_url"}, text("Who?"))]}, {"documents": [3]},
    {"n": 2}, {"tools": [{}]}, {"logprobs": True},
    {"response_format": {"type": "json_object"}}, {"stream": "false"}, {"temperature": 3}, {"temperature": True},
    {"top_p": 0}, {"max_tokens": 1.5}, {"seed": "1"}, {"stop": [1]}, {"stream_options": {"include_usage": "true"}},
])  # fmt: skip
def test_what_is_wrong_is_refused(body):
    with pytest.raises(ValidationError):
        ChatRequest.model_validate({"messages": [user("Who?")], **body})


# --- document and question in one text ------------------------------------------------------------------------------

LONG = "The key is red.\n\n" * 20


@pytest.mark.parametrize("text,document,question", [
    ("Who has the key?", "", "Who has the key?"),
    ("Ann has it.\n\nWho has the key?", "", "Ann has it.\n\nWho has the key?"),
    ("Ann has it.\n\nQuestion: Who?\nAnswer:", "Ann has it.", "Who?"),
    ("Ann has it.\n QUESTION : Who?\n", "Ann has it.", "Who?"),
    ("Question: 1+1?\nAnswer: 2\n\nQuestion: 2+2?\nAnswer:", "Question: 1+1?\nAnswer: 2", "2+2?"),
    ("Question: Who?", "", "Who?"),
    ("Question: Who?\nAnswer:", "", "Who?"),
    ("Ann has it.\nQuestion: Who? Answer:", "Ann has it.", "Who?"),
    ("Say it with the words: final answer:", "", "Say it with the words: final answer:"),
    ("Question: Who?\n" + "x" * 200, "x" * 200, "Who?"),
    ("Who has the key?\nAnswer:", "", "Who has the key?"),
    ("Ann has it.\nQuestion:", "", "Ann has it.\nQuestion:"),
    (LONG + "Who has the key?", LONG.strip(), "Who has the key?"),
    (LONG + "Who has the key?\n\nAnswer:", LONG.strip(), "Who has the key?"),
    (LONG + "Who has the key?\n\n\n\nAnswer:", LONG.strip(), "Who has the key?"),
    ("Question: Who?\n\n" + LONG, LONG.strip(), "Who?"),
    ("x" * 200 + "\nWho?", "x" * 200, "Who?"),
    ("x" * 200, "", "x" * 200),
    ("The question: who knows. " * 9 + "\n\nWho?", ("The question: who knows. " * 9).strip(), "Who?"),
])  # fmt: skip
def test_the_rule(text, document, question):
    assert split_message(text, lambda text: len(text) > 100) == (document, question)


def test_megabytes_are_split_at_their_end():
    document = ("Ann has the key.\n\nQuestion: none.\n" * 2**16).strip()
    assert split_message(f"{document}\n\nQuestion: Who?", lambda text: True) == (document, "Who?")
