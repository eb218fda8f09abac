"""The endpoint as its users see it: OpenAI's own client, streams, files, keys, errors, and a client that leaves."""

import asyncio
import base64

import aiohttp
import openai
import pytest

from mem_agent.tests.helpers.asking import DOCUMENT, REPLIES, VOCABULARY, chat, model_folder, prompt_of, reply, use
from mem_agent.tests.helpers.document_files import pdf_bytes

__all__ = ["model_folder"]


async def streamed(client, **others):
    return [chunk async for chunk in await chat(client, stream=True, **others)]


def content(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def fetched(url, method="GET", **options):
    """Status, headers and text."""
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as answer:
        return answer.status, answer.headers, await answer.text()


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_document_is_read_and_the_question_answered(model_folder):
    async def user(client, served, router):
        return await chat(client, seed=3), router.requests

    done, requests = use(model_folder, REPLIES, user)
    (choice,) = done.choices
    assert choice.message.content == "so \\boxed{key}" and choice.finish_reason == "stop" and done.model == "pocket"
    assert choice.message.reasoning_content == "[1/3] red\n[2/3] as before\n[3/3] red key\n"
    assert done.mem_agent == {"answer": "key", "memory": "red key", "sections": 3, "document_tokens": 6,
                              "sources": [{"section": 2, "start": 4, "end": 6}]}
    assert done.usage.prompt_tokens == sum(len(body["token_ids"]) for body in requests)
    assert done.usage.prompt_tokens_details.cached_tokens == 8
    assert done.usage.completion_tokens_details.reasoning_tokens == sum(len(reply(r)) for r in REPLIES[:3])
    assert "QW" in prompt_of(requests[0]) and "Question:" not in prompt_of(requests[0])


def test_a_stream_tells_the_memory_then_the_answer(model_folder):
    async def user(client, served, router):
        return await streamed(client, stream_options={"include_usage": True})

    chunks = use(model_folder, REPLIES, user)
    *told, last, usage = chunks
    deltas = [chunk.choices[0].delta for chunk in told]
    assert deltas[0].role == "assistant" and deltas[0].content == ""
    assert [d.reasoning_content for d in deltas[1:4]] == ["[1/3] red\n", "[2/3] as before\n", "[3/3] red key\n"]
    assert len(deltas) > 6 and content(told) == "so \\boxed{key}"
    assert last.choices[0].finish_reason == "stop" and last.mem_agent["answer"] == "key"
    assert usage.choices == [] and usage.usage.total_tokens > 0 and {chunk.id for chunk in chunks} == {last.id}


@pytest.mark.parametrize("thinking", ["I guess \\boxed{tin}", "so it is"])
@pytest.mark.parametrize("answer", ["so \\boxed{key}", "so", ""])
def test_thinking_that_nothing_opened_is_no_part_of_the_reply(model_folder, thinking, answer):
    """A stream has told it when its end comes, and says so."""
    final = [*reply(thinking)[:-1], *VOCABULARY.encode_markup("</think>"), *reply(answer)]

    async def user(client, served, router):
        return await chat(client), await streamed(client)

    whole, chunks = use(model_folder, ["red", "red", "red key", final] * 2, user, mem_max_final=64)
    assert whole.choices[0].message.content == answer
    assert whole.mem_agent["answer"] == chunks[-1].mem_agent["answer"]
    assert content(chunks) == (answer if answer.startswith(thinking) else f"{thinking}</think>{answer}")


@pytest.mark.parametrize("stop,text,answer,tokens", [
    (["\\boxed"], "so ", "", "so \\boxed"), (["?", "}"], "so \\boxed{key", "", "so \\boxed{key}"),
    ([], "so \\boxed{key} and more", "key", None),
])  # fmt: skip
def test_a_stop_string_ends_the_answer_and_what_is_counted(model_folder, stop, text, answer, tokens):
    """Counted are the tokens that were sampled until the stop string had come, as vLLM's own server counts them."""
    replies = ["red", "red", "red key", "so \\boxed{key} and more"]

    async def user(client, served, router):
        return await chat(client, stop=stop), await streamed(client, stop=stop)

    whole, chunks = use(model_folder, replies * 2, user, mem_max_final=32)
    assert whole.choices[0].message.content == content(chunks) == text
    assert whole.choices[0].finish_reason == "stop" and whole.mem_agent["answer"] == answer
    sampled = len(reply(tokens)) - 1 if tokens else len(reply(replies[-1]))
    assert whole.usage.completion_tokens == sum(len(reply(r)) for r in replies[:3]) + sampled


def question(body):
    """What a prompt asks."""
    return prompt_of(body).partition("<problem>\n")[2].partition("\n</problem>")[0]


@pytest.mark.parametrize("stream", [False, True])
def test_eight_questions_at_once(model_folder, stream):
    """The router answers none of the first turns until all eight are there."""
    async def user(client, served, router):
        router.together, router.default = 8, lambda body: reply(question(body))
        messages = [[{"role": "user", "content": f"Q{n}{n}"}] for n in range(8)]
        work = streamed if stream else chat
        done = await asyncio.gather(*(work(client, messages=one) for one in messages))
        texts = [content(one) if stream else one.choices[0].message.content for one in done]
        return texts, router.peak, served.service.reading

    assert use(model_folder, [], user) == ([f"Q{n}{n}" for n in range(8)], 8, 0)


# --- files -----------------------------------------------------------------------------------------------------------


def about(file_id):
    parts = [{"type": "file", "file": {"file_id": file_id}}, {"type": "text", "text": "Who, then?"}]
    return [{"role": "user", "content": parts}]


def test_files_are_uploaded_named_and_deleted(model_folder):
    async def user(client, served, router):
        file = await client.files.create(file=("notes.txt", DOCUMENT.encode()), purpose="user_data")
        done = await chat(client, messages=about(file.id))
        listed = [one.id async for one in await client.files.list()]
        deleted = await client.files.delete(file.id)
        with pytest.raises(openai.NotFoundError):
            await chat(client, messages=about(file.id))
        return file, done, listed, deleted

    file, done, listed, deleted = use(model_folder, REPLIES, user)
    assert file.filename == "notes.txt" and file.bytes == len(DOCUMENT) and listed == [file.id]
    assert deleted.deleted and done.mem_agent["sections"] == 3


def test_a_file_is_its_keys_own(model_folder):
    """A client of another key can neither list nor read nor use nor delete it."""
    async def user(client, served, router):
        other = client.with_options(api_key="other")
        file = await client.files.create(file=("notes.txt", DOCUMENT.encode()), purpose="user_data")
        assert [one async for one in await other.files.list()] == []
        for refused in (other.files.delete(file.id), chat(other, messages=about(file.id))):
            with pytest.raises(openai.NotFoundError):
                await refused
        return [one.id async for one in await client.files.list()] == [file.id], len(router.requests)

    assert use(model_folder, [], user, {"keys": ("other", "secret")}) == (True, 0)


def test_a_pdf_inside_a_message_is_read(model_folder):
    data = "data:application/pdf;base64," + base64.b64encode(pdf_bytes([["Ann has gold."]])).decode()
    parts = [{"type": "file", "file": {"file_data": data, "filename": "a.pdf"}}, {"type": "text", "text": "Who?"}]

    async def user(client, served, router):
        await chat(client, messages=[{"role": "user", "content": parts}])
        return "".join(map(prompt_of, router.requests))

    assert "Ann has gold." in use(model_folder, [], user, mem_chunk_tokens=64)


def test_what_is_no_document_is_refused_when_it_comes(model_folder):
    name, data = "picture.png", b"\x89PNG\r\n\x1a\n\0\0\0"

    async def user(client, served, router):
        with pytest.raises(openai.BadRequestError, match=name):
            await client.files.create(file=(name, data), purpose="user_data")

    use(model_folder, [], user)


# --- who may ask -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys,path,headers,status", [
    ((), "/v1/models", {}, 200),
    ((), "/v1/models", {"Host": "localhost"}, 200),
    ((), "/v1/models", {"Host": "evil.example"}, 403),
    ((), "/v1/models", {"Host": "127.0.0.1.evil.example:80"}, 403),
    (("first", "second"), "/v1/models", {}, 401),
    (("first", "second"), "/v1/models", {"Authorization": "Bearer third"}, 401),
    (("first", "second"), "/v1/models", {"Authorization": "Basic second"}, 401),
    (("first", "second"), "/v1/models", {"Host": "model.example", "Authorization": "bearer second"}, 200),
    (("first", "second"), "/v1/chat/completions", {}, 401),
    (("first", "second"), "/v1/files", {}, 401),
    (("first", "second"), "/metrics", {}, 401),
    (("first", "second"), "/health", {}, 200),
])  # fmt: skip
def test_who_may_ask(model_folder, keys, path, headers, status):
    async def user(client, served, router):
        method = "POST" if path.endswith("completions") else "GET"
        return (await fetched(served.url + path, method, headers=headers))[0]

    assert use(model_folder, [], user, {"keys": keys}) == status


def test_a_full_server_says_when_to_come_back(model_folder):
    async def user(client, served, router):
        first = asyncio.ensure_future(chat(client))
        while not router.requests:
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError) as error:
            await chat(client)
        first.cancel()
        return error.value.response.headers["Retry-After"]

    assert use(model_folder, ["hang"], user, {"concurrency": 1}) == "1"


# --- errors ----------------------------------------------------------------------------------------------------------

REFUSED = {
    "nothing asked": ({"messages": []}, 400),
    "tools": ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400),
    "another model": ({"model": "other"}, 404),
    "too long a question": ({"messages": [{"role": "user", "content": "Question: " + "who " * 99}]}, 400),
    "too long a document": ({"extra_body": {"documents": ["Z" * 99]}}, 413),
}


@pytest.mark.parametrize("body,status", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_has_asked_nothing(model_folder, body, status, stream):
    async def user(client, served, router):
        with pytest.raises(openai.APIStatusError) as error:
            await (streamed if stream else chat)(client, **body)
        return error.value.status_code, len(router.requests)

    assert use(model_folder, [], user, {"document_tokens": 50}, mem_max_question=40) == (status, 0)


def test_an_engine_that_ends_a_request_is_an_error_of_the_server(model_folder):
    async def user(client, served, router):
        with pytest.raises(openai.InternalServerError) as whole:
            await chat(client)
        with pytest.raises(openai.APIError) as stream:
            await streamed(client)
        return whole.value, stream.value

    whole, stream = use(model_folder, ["x", "abort", "x", "abort"], user)
    assert whole.status_code == 503 and whole.body["type"] == "server_error"
    assert stream.body["code"] == whole.body["code"] == "aborted"


def test_a_reading_that_took_its_whole_time_is_not_asked_again(model_folder):
    async def user(client, served, router):
        with pytest.raises(openai.InternalServerError) as error:
            await chat(client.with_options(max_retries=2))
        return error.value.status_code, len(router.requests)

    assert use(model_folder, ["hang"], user, {"timeout": 0.2}) == (504, 1)


@pytest.mark.parametrize("path,body,kind,status,param", [
    ("/v1/chat/completions", b"{", "application/json", 400, None),
    ("/v1/chat/completions", b"[1]", "application/json", 400, None),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "?"}], "n": 2}', "application/json", 400,
     "n"),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
     "application/json", 400, "messages.0.content.0"),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "?"}], "stream": "false"}',
     "application/json", 400, "stream"),
    ("/v1/files", b"x", "text/plain", 400, "file"), ("/v2", b"{}", "application/json", 404, None),
])  # fmt: skip
def test_errors_are_openais_objects(model_folder, path, body, kind, status, param):
    async def user(client, served, router):
        async with aiohttp.ClientSession() as session:
            async with session.post(served.url + path, data=body, headers={"Content-Type": kind}) as answer:
                return answer.status, await answer.json()

    found, said = use(model_folder, [], user)
    assert found == status and said["error"].keys() == {"message", "type", "param", "code"}
    assert said["error"]["param"] == param and "\n" not in said["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_bug_shows_no_stack(model_folder, monkeypatch, caplog, stream):
    monkeypatch.setattr("mem_agent.asking.reader.sources", lambda *_: 1 / 0)

    async def user(client, served, router):
        with pytest.raises(openai.APIError if stream else openai.InternalServerError) as error:
            await (streamed if stream else chat)(client)
        return str(error.value.body)

    assert "division" not in use(model_folder, REPLIES, user) and "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_reading(model_folder, stream):
    """The router holds the second turn for as long as anybody listens; then the place is free, and nothing follows."""
    async def user(client, served, router):
        if stream:
            told = await chat(client, stream=True)
            async for chunk in told:
                if getattr(chunk.choices[0].delta, "reasoning_content", None):
                    await told.close()
                    break
        else:
            asking = asyncio.ensure_future(chat(client))
            while len(router.requests) < 2:
                await asyncio.sleep(0.01)
            asking.cancel()
        while served.service.reading:
            await asyncio.sleep(0.01)
        return len(router.requests)

    assert use(model_folder, ["red", "hang"], user) <= 2


# --- state -----------------------------------------------------------------------------------------------------------


def test_models_health_and_metrics(model_folder):
    async def user(client, served, router):
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other")
        assert [model.id async for model in await client.models.list()] == ["pocket"]
        await chat(client)
        metrics = await fetched(f"{served.url}/metrics")
        healthy = await fetched(f"{served.url}/health")
        router.default = None
        return metrics[2], healthy[0], (await fetched(f"{served.url}/health"))[0]

    metrics, *health = use(model_folder, REPLIES, user)
    assert health == [200, 503]
    for line in ('mem_agent_turns_total{kind="memory"} 3.0', "mem_agent_reading 0.0",
                 'mem_agent_http_requests_total{handler="/v1/chat/completions",method="POST",status="200"} 1.0'):
        assert line in metrics
    assert "red key" not in metrics and "Who" not in metrics
