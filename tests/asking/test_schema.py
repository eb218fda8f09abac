"""Bodies of requests: documents in all their forms, where a message's question begins, options, what is refused."""

import asyncio

import pytest

from mem_agent.asking.schema import ChatRequest, conversation, split_message


def user(*content):
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def text(said):
    return {"type": "text", "text": said}


FILE = {"type": "file", "file": {"file_id": "f1"}}


def read(*messages, documents=()):
    """Messages and document of a conversation; a text is long from 60 characters on."""
    asked = ChatRequest.model_validate({"messages": list(messages), "documents": list(documents)})

    async def text_of(document):
        return document if isinstance(document, str) else document.text or document.file_id

    return asyncio.run(conversation(asked, lambda text: len(text) > 60, text_of))


GOLD = "Ann has gold."


@pytest.mark.parametrize("messages,documents,expected", [
    ([user(f"{GOLD}\n\nQuestion: Who?")], [], GOLD),
    ([user(text(GOLD), text("Who?\nAnswer:"))], [], GOLD),
    ([user(FILE, text("Who? answer :\n"))], [], "f1"),
    ([user("Who?\n\nAnswer:")], ["Carl.", {"title": "T", "text": "Silver."}, {"file_id": "f1"}],
     "Carl.\n\nSilver.\n\nf1"),
    ([user(f"{GOLD}\n\nQuestion: What?"), {"role": "assistant", "content": "gold"}, user("Who?")], [], GOLD),
    ([user(FILE, text("")), {"role": "developer", "content": "Be brief."}, user("Who?")], [], "f1"),
])  # fmt: skip
def test_documents_and_the_question(messages, documents, expected):
    said, document = read(*messages, documents=documents)
    assert document == expected and said[-1] == {"role": "user", "content": "Who?"}


def options(**fields):
    return ChatRequest.model_validate({"messages": [user("Who?")], **fields}).options()


def test_options():
    asked = options(temperature=0, top_p=0.5, seed=3, max_tokens=9, stop="x", n=1, tools=[], unknown="?",
                    logprobs=None, response_format={"type": "text"})
    assert asked == {"sampling": {"temperature": 0.0, "top_p": 0.5}, "seed": 3, "answer_tokens": 9, "stop": ["x"]}
    assert options(**dict.fromkeys(("stream", "stop", "seed", "max_tokens", "tools", "n", "model"))) == options()


LONG = "The key is red.\n\n" * 20


@pytest.mark.parametrize("text,document,question", [
    ("Ann has it.\n\nWho has the key?", "", "Ann has it.\n\nWho has the key?"),
    ("Ann has it.\n QUESTION : Who? Answer:", "Ann has it.", "Who?"),
    ("Question: 1+1?\nAnswer: 2\n\nQuestion: 2+2?\nAnswer:", "Question: 1+1?\nAnswer: 2", "2+2?"),
    ("End it with the words final answer:", "", "End it with the words final answer:"),
    (LONG + "Who has the key?\n\n\n\nAnswer:", LONG.strip(), "Who has the key?"),
    ("Question: Who?\n\n" + LONG, LONG.strip(), "Who?"),
    ("x" * 200 + "\nWho?", "x" * 200, "Who?"),
])  # fmt: skip
def test_where_a_text_is_split(text, document, question):
    assert split_message(text, lambda text: len(text) > 100) == (document, question)
