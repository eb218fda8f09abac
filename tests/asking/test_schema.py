"""Bodies of requests: documents in all their forms, options, and one line for what is wrong."""

import asyncio

import pytest
from pydantic import ValidationError

from mem_agent.asking.schema import ChatRequest, CompletionRequest, conversation


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
        return document.text or f"<{document.file_id or document.file_data}>"

    async def main():
        beside = [await text_of(document) for document in asked.documents]
        return await conversation(asked.messages, beside, lambda text: len(text) > 60, text_of)

    return asyncio.run(main())


FORMS = {
    "in the message": ([user("Ann has gold.\n\nQuestion: Who?")], [], "Ann has gold."),
    "as a text before": ([user(text("Ann has gold."), text("Who?"))], [], "Ann has gold."),
    "as an uploaded file": ([user(file(file_id="f1"), text("Who?"))], [], "<f1>"),
    "as a file inside": ([user(text("Who?"), file(file_data="QQ==", filename="a.txt"))], [], "<QQ==>"),
    "beside": ([user("Who?")], ["Carl.", {"title": None, "content": "Silver."}, {"file_id": "f1"}],
               "Carl.\n\nSilver.\n\n<f1>"),
    "earlier": ([user("Ann has gold.\n\nQuestion: What?"), {"role": "assistant", "content": "gold"}, user("Who?")], [],
                "Ann has gold."),
    "none": ([user("Who?")], [], ""),
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
    return ChatRequest.model_validate({"messages": [user("Who?")], **fields}).options(9, 2.5)


def test_options():
    asked = options(temperature=0, top_p=0.5, seed=3, max_tokens=9, stop="x", n=1, tools=[], presence_penalty=0.0,
                    unknown="?", logprobs=None, response_format={"type": "text"})
    assert asked.sampling == {"temperature": 0.0, "top_p": 0.5} and asked.seed == 3 and asked.answer_tokens == 9
    assert asked.stop == ("x",) and (asked.document_tokens, asked.seconds) == (9, 2.5)
    assert options(max_completion_tokens=5, max_tokens=9, stop=["", "a"]).answer_tokens == 5
    fields = ("stream", "stop", "seed", "max_tokens", "temperature", "tools", "n", "model")
    assert options(**dict.fromkeys(fields)) == options()


@pytest.mark.parametrize("body", [
    {"messages": []}, {"messages": [{"role": "system", "content": "x"}]}, {"messages": ["hello", user("Who?")]},
    {"messages": [{"role": "tool", "content": "x"}, user("Who?")]}, {"messages": [user(text(3))]},
    {"messages": [user({"type": "image_url"}, text("Who?"))]}, {"messages": [user(file(filename="a"))]},
    {"documents": [3]}, {"documents": [{"title": 3, "text": "x"}]}, {"n": 2}, {"tools": [{}]}, {"logprobs": True},
    {"stream": "false"}, {"temperature": 3}, {"temperature": True}, {"top_p": 0}, {"max_tokens": 1.5}, {"seed": "1"},
    {"stop": [1]}, {"model": 3}, {"stream_options": {"include_usage": "true"}},
])  # fmt: skip
def test_what_is_wrong_is_refused(body):
    with pytest.raises(ValidationError):
        ChatRequest.model_validate({"messages": [user("Who?")], **body})


@pytest.mark.parametrize("body", [{"prompt": [1, 2]}, {"prompt": []}, {"prompt": "Who?", "stream": True}])
def test_tokens_and_streams_of_completions_are_refused(body):
    with pytest.raises(ValidationError):
        CompletionRequest.model_validate(body)
