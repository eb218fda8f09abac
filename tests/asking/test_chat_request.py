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
    ([], "no JSON object"), ({}, "messages is empty"), ({"messages": []}, "messages is empty"),
    ({"messages": [{"role": "system", "content": "x"}]}, "no message has the role user"),
    ({"messages": ["hello", user("Who?")]}, "messages\\[0\\]='hello': expected an object"),
    ({"messages": [{"role": "tool", "content": "x"}, user("Who?")]}, "role='tool': expected one of system"),
    ({"messages": [user({"type": "image_url"}, text("Who?"))]}, "a part of type 'image_url'"),
    ({"messages": [user({"type": "file", "file": {}}, text("Who?"))]}, "expected a text, {text}"),
    ({"messages": [user({"type": "file", "file": {"file_data": "?"}}, text("Who?"))]}, "not base64"),
    ({"messages": [user("Who?")], "documents": {}}, "documents"),
    ({"messages": [user("Who?")], "documents": [3]}, "documents\\[0\\]"),
    ({"messages": [user("Who?")], "n": 2}, "n=2 is not supported"),
    ({"messages": [user("Who?")], "tools": [{}]}, "tools"),
    ({"messages": [user("Who?")], "logprobs": True}, "logprobs"),
    ({"messages": [user("Who?")], "response_format": {"type": "json_object"}}, "response_format"),
    ({"messages": [user("Who?")], "temperature": 3}, "allowed: 0 to 2"),
    ({"messages": [user("Who?")], "temperature": True}, "expected a number"),
    ({"messages": [user("Who?")], "top_p": 0}, "top_p"),
    ({"messages": [user("Who?")], "max_tokens": 0}, "max_tokens"),
    ({"messages": [user("Who?")], "max_tokens": 1.5}, "whole number"),
    ({"messages": [user("Who?")], "seed": "1"}, "seed"),
    ({"messages": [user("Who?")], "stop": [1]}, "stop"),
    ({"messages": [user("Who?")], "stop": 7}, "stop"),
    ({"messages": [{"role": [], "content": "x"}, user("Who?")]}, "messages\\[0\\].role=a list: expected a text"),
    ({"messages": [user({"type": "file", "file": {"file_data": "\u00e9"}}, text("Who?"))]}, "not base64"),
]


@pytest.mark.parametrize("body,line", WRONG)
def test_what_is_wrong_is_one_line(body, line):
    with pytest.raises(RequestError, match=line) as error:
        chat(body)
    assert error.value.status == 400 and "\n" not in str(error.value)
    assert error.value.body["error"]["type"] == "invalid_request_error"


WRONG_KINDS = {
    "stream": ("false", 1, [], {}), "stream_options": (True, "x", []), "stop": (7, [1], {}), "seed": ("1", True, 1.0),
    "max_tokens": ("9", True, 1.5), "max_completion_tokens": ("9",), "temperature": ("0", True, [], 10**400),
    "top_p": ("1",), "top_k": (1.0,), "repetition_penalty": ("1",), "n": (True, "1", 1.0), "best_of": (True,),
    "echo": (0, "false"), "logprobs": ("false", 0.0), "top_logprobs": (False,), "tools": ({}, "x"), "functions": ({},),
    "logit_bias": ([],), "presence_penalty": (False, "0"), "frequency_penalty": (False,), "response_format": ("text",),
    "audio": ([],), "modalities": ("text",), "suffix": (0,), "documents": ({}, "text"), "messages": ("Who?", {}, 0),
    "model": (3, ["pocket"]),
}  # fmt: skip


@pytest.mark.parametrize("name,value", [(name, value) for name, values in WRONG_KINDS.items() for value in values])
def test_no_field_of_another_kind_is_guessed_at(name, value):
    with pytest.raises(RequestError, match=f"^{name}=.*: expected (a|an|true) ?.*$") as error:
        chat({"messages": [user("Who?")], name: value})
    assert error.value.status == 400 and error.value.body["error"]["param"] == name


@pytest.mark.parametrize("body,place", [
    ({"stream_options": {"include_usage": "true"}}, "stream_options.include_usage"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [user({"type": "text", "text": 3}, text("?"))]}, "messages[0].content.text"),
    ({"messages": [user({"type": "file", "file": "file-1"}, text("?"))]}, "messages[0].content.file"),
    ({"messages": [user({"type": "file", "file": {"file_id": 1}}, text("?"))]}, "messages[0].content.file_id"),
    ({"messages": [user({"type": "file", "file": {"file_data": DATA, "filename": 3}}, text("?"))]},
     "messages[0].content.filename"),
    ({"documents": [{"title": 3, "text": "x"}]}, "documents[0].title"),
    ({"documents": [{"text": ["x"]}]}, "documents[0].text"),
])  # fmt: skip
def test_nor_one_inside_another(body, place):
    with pytest.raises(RequestError) as error:
        chat({"messages": [user("Who?")], **body})
    assert str(error.value).startswith(f"{place}=") and error.value.body["error"]["param"] == place


def test_prompts_are_counted_before_their_documents_are_read():
    async def nobody_reads(name, content):
        raise AssertionError("it was read")

    reader = MessageReader(lambda text: False, FILES.__getitem__, nobody_reads)
    body = {"prompt": ["Who?"] * 3, "documents": [{"file_data": DATA}]}
    with pytest.raises(RequestError, match=r"^prompt: 3 texts, of which 2 are read at once \(SERVE_CONCURRENCY\)"):
        asyncio.run(prompts_of(body, reader, 2))


def test_null_is_a_field_that_is_not_there():
    given = {"file_id": None, "file_data": None, "text": None, "content": "Ann.", "title": None}
    assert asked(user("Who?"), documents=[given]).document == "Ann."
    request = asked(user("Who?"), **dict.fromkeys(set(WRONG_KINDS) - {"messages"}))
    assert request.options == asked(user("Who?")).options
