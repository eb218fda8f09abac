"""Bodies of chat requests: documents in all their forms, options, and one line for what is wrong."""

import asyncio
import base64

import pytest

from mem_agent.asking.chat_request import MessageReader
from mem_agent.asking.completion import prompts_of
from mem_agent.asking.request_error import RequestError
from mem_agent.data.documents import read_document

FILES = {"file-1": "Ann has gold."}


async def to_text(name, content):
    return read_document(name, content).text


def chat(body):
    return asyncio.run(MessageReader(lambda text: len(text) > 60, FILES.__getitem__, to_text).chat(body))


DATA = "data:text/plain;base64," + base64.b64encode(b"Ben has silver.").decode()


def asked(*messages, **others):
    return chat({"messages": list(messages), **others})


def user(*content):
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def text(said):
    return {"type": "text", "text": said}


FORMS = {
    "in the message": ((user("Ann has gold.\n\nQuestion: Who?"),), {}, "Ann has gold."),
    "as a text before": ((user(text("Ann has gold."), text("Who?")),), {}, "Ann has gold."),
    "as an uploaded file": ((user({"type": "file", "file": {"file_id": "file-1"}}, text("Who?")),), {},
                            "Ann has gold."),
    "as a file inside": ((user(text("Who?"), {"type": "file", "file": {"file_data": DATA, "filename": "a.txt"}}),), {},
                         "Ben has silver."),
    "beside": ((user("Who?"),), {"documents": ["Carl.", {"title": "Ben", "text": "Silver."}, {"file_id": "file-1"}]},
               "Carl.\n\nBen\nSilver.\n\nAnn has gold."),
    "earlier": ((user("Ann has gold.\n\nQuestion: What?"), {"role": "assistant", "content": "gold"}, user("Who?")), {},
                "Ann has gold."),
    "none": ((user("Who?"),), {}, ""),
}  # fmt: skip


@pytest.mark.parametrize("messages,others,document", FORMS.values(), ids=FORMS)
def test_documents_and_the_question(messages, others, document):
    request = asked(*messages, **others)
    assert request.document == document and request.messages[-1] == {"role": "user", "content": "Who?"}


def test_a_long_text_is_a_question_where_the_document_is_named():
    said = "Who has it?\n\n" * 9
    assert asked(user(said), documents=["d"]).messages == [{"role": "user", "content": said.strip()}]


def test_messages_keep_their_order_and_roles():
    request = asked({"role": "developer", "content": "Be brief."}, user("One?"), {"role": "assistant", "content": "1"},
                    user("Two?"), {"role": "assistant", "content": "It is"})
    assert [(m["role"], m["content"]) for m in request.messages] == [
        ("system", "Be brief."), ("user", "One?"), ("assistant", "1"), ("user", "Two?"), ("assistant", "It is")]


def test_options():
    options = asked(user("Who?"), temperature=0, top_p=0.5, seed=3, max_tokens=9, stop="x", stream=True, n=1, tools=[],
                    stream_options={"include_usage": True}, presence_penalty=0.0, unknown="?", logprobs=None).options
    assert options.sampling == {"temperature": 0.0, "top_p": 0.5} and options.seed == 3 and options.answer_tokens == 9
    assert options.stop == ("x",) and options.stream and options.include_usage
    assert asked(user("Who?"), max_completion_tokens=5, max_tokens=9, stop=["", "a"]).options.answer_tokens == 5
    plain = asked(user("Who?")).options
    assert (plain.sampling, plain.seed, plain.answer_tokens, plain.stop, plain.stream) == ({}, None, 0, (), False)


WRONG = [
    ([], None), ({}, "messages"), ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
    ({"messages": ["hello", user("Who?")]}, "messages[0]"),
    ({"messages": [{"role": "tool", "content": "x"}, user("Who?")]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [user({"type": "image_url"}, text("Who?"))]}, "messages[0].content"),
    ({"messages": [user({"type": "file", "file": {"file_data": "?"}}, text("Who?"))]}, "messages[0].content"),
    ({"documents": [3]}, "documents[0]"), ({"documents": [{"title": 3, "text": "x"}]}, "documents[0].title"),
    ({"n": 2}, "n"), ({"tools": [{}]}, "tools"), ({"logprobs": True}, "logprobs"), ({"stream": "false"}, "stream"),
    ({"temperature": 3}, "temperature"), ({"temperature": True}, "temperature"), ({"top_p": 0}, "top_p"),
    ({"max_tokens": 1.5}, "max_tokens"), ({"seed": "1"}, "seed"), ({"stop": [1]}, "stop"), ({"model": 3}, "model"),
    ({"stream_options": {"include_usage": "true"}}, "stream_options.include_usage"),
]


@pytest.mark.parametrize("body,place", WRONG)
def test_what_is_wrong_is_one_line_with_its_place(body, place):
    with pytest.raises(RequestError) as error:
        chat({"messages": [user("Who?")], **body} if body and place else body)
    said = error.value.body["error"]
    assert error.value.status == 400 and "\n" not in str(error.value) and said["type"] == "invalid_request_error"
    assert place is None or place in (said["param"] or said["message"])


def test_prompts_are_counted_before_their_documents_are_read():
    async def nobody_reads(name, content):
        raise AssertionError("it was read")

    reader = MessageReader(lambda text: False, FILES.__getitem__, nobody_reads)
    body = {"prompt": ["Who?"] * 3, "documents": [{"file_data": DATA}]}
    with pytest.raises(RequestError, match="--concurrency"):
        asyncio.run(prompts_of(body, reader, 2))


def test_null_is_a_field_that_is_not_there():
    given = {"file_id": None, "file_data": None, "text": None, "content": "Ann.", "title": None}
    assert asked(user("Who?"), documents=[given]).document == "Ann."
    fields = ("stream", "stop", "seed", "max_tokens", "temperature", "tools", "n", "model")
    request = asked(user("Who?"), **dict.fromkeys(fields))
    assert request.options == asked(user("Who?")).options
