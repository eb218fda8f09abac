"""The endpoint as its users see it: OpenAI's own client, streams, files, keys, errors, and a client that leaves."""

import asyncio
import base64
import dataclasses

import aiohttp
import openai
import pytest

from mem_agent.tests.helpers.asking import DOCUMENT, REPLIES, VOCABULARY, chat, model_folder, prompt_of, reply, use
from mem_agent.tests.helpers.document_files import pdf_bytes

__all__ = ["model_folder"]
BOTH = pytest.mark.parametrize("stream", [False, True])


async def streamed(client, **others):
    return [chunk async for chunk in await chat(client, stream=True, **others)]


def content(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def fetched(url, method="GET", **options):
    """Status and text."""
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as answer:
        return answer.status, await answer.text()


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_stream_tells_the_memory_then_the_answer_and_a_completion_is_the_same(model_folder):
    async def user(client, served, router):
        whole, requests = await chat(client, seed=3), list(router.requests)
        return whole, requests, await streamed(client, stream_options={"include_usage": True})

    whole, requests, chunks = use(model_folder, REPLIES * 2, user)
    (choice,), (*told, last, usage) = whole.choices, chunks
    assert choice.message.content == content(told) == "so \\boxed{key}" and whole.model == last.model == "pocket"
    assert choice.finish_reason == last.choices[0].finish_reason == "stop" and {c.id for c in chunks} == {last.id}
    assert whole.mem_agent == last.mem_agent == {
        "answer": "key", "memory": "red key", "sections": 3, "document_tokens": 6,
        "sources": [{"section": 2, "start": 4, "end": 6}]}
    memories = ["[1/3] red\n", "[2/3] as before\n", "[3/3] red key\n"]
    deltas = [chunk.choices[0].delta for chunk in told]
    assert deltas[0].role == "assistant" and [delta.reasoning_content for delta in deltas[1:4]] == memories
    assert choice.message.reasoning_content == "".join(memories) and len(deltas) > 6
    assert usage.choices == [] and usage.usage == whole.usage
    assert whole.usage.prompt_tokens == sum(len(body["token_ids"]) for body in requests)
    assert whole.usage.prompt_tokens_details.cached_tokens == 8
    assert whole.usage.completion_tokens == sum(len(reply(text)) for text in REPLIES)
    assert whole.usage.completion_tokens_details.reasoning_tokens == sum(len(reply(text)) for text in REPLIES[:3])
    assert "QW" in prompt_of(requests[0]) and "Question:" not in prompt_of(requests[0])


@pytest.mark.parametrize("answer", ["so \\boxed{key}", "so", ""])
def test_thinking_that_nothing_opened_is_no_part_of_the_reply(model_folder, answer):
    """A stream has told it when its end comes, and says so."""
    final = [*reply("so it is")[:-1], *VOCABULARY.encode_markup("</think>"), *reply(answer)]

    async def user(client, served, router):
        return await chat(client), await streamed(client)

    whole, chunks = use(model_folder, ["red", "red", "red key", final] * 2, user, mem_max_final=64)
    assert whole.choices[0].message.content == answer
    assert whole.mem_agent["answer"] == chunks[-1].mem_agent["answer"]
    assert content(chunks) == f"so it is</think>{answer}"


@pytest.mark.parametrize("stop,text,answer", [
    (["\\boxed"], "so ", ""), (["?", "}"], "so \\boxed{key", ""), ("", "so \\boxed{key} and more", "key"),
])  # fmt: skip
def test_a_reply_ends_before_a_stop_string(model_folder, stop, text, answer):
    async def user(client, served, router):
        answers = await chat(client, stop=stop), await streamed(client, stop=stop)
        return *answers, [body["sampling_params"].get("stop") for body in router.requests[:4]]

    whole, chunks, stops = use(model_folder, ["red", "red", "red key", "so \\boxed{key} and more"] * 2, user,
                               mem_max_final=32)
    assert whole.choices[0].message.content == content(chunks) == text and whole.mem_agent["answer"] == answer
    assert stops == [None, None, None, stop or None]


def question(body):
    """What a prompt asks."""
    return prompt_of(body).partition("<problem>\n")[2].partition("\n</problem>")[0]


@BOTH
def test_eight_questions_at_once(model_folder, stream):
    """The router answers none of the first turns until all eight are there."""
    async def user(client, served, router):
        router.together, router.default = 8, lambda body: reply(question(body))
        messages = [[{"role": "user", "content": f"Question: Q{n}{n}? Answer:"}] for n in range(8)]
        work = streamed if stream else chat
        done = await asyncio.gather(*(work(client, messages=one) for one in messages))
        texts = [content(one) if stream else one.choices[0].message.content for one in done]
        return texts, router.peak, await reading(served)

    assert use(model_folder, [], user) == ([f"Q{n}{n}?" for n in range(8)], 8, "0.0")


async def reading(served):
    _, metrics = await fetched(f"{served.url}/metrics", headers={"Authorization": "Bearer secret"})
    return next(line.split()[1] for line in metrics.splitlines() if line.startswith("mem_agent_reading "))


@BOTH
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
        while await reading(served) != "0.0":
            await asyncio.sleep(0.01)
        return len(router.requests)

    assert use(model_folder, ["red", "hang"], user, {"concurrency": 1}) <= 2


# --- files and keys --------------------------------------------------------------------------------------------------


def about(**file):
    return [{"role": "user", "content": [{"type": "file", "file": file}, {"type": "text", "text": "Who, then?"}]}]


def test_a_file_is_its_keys_own_and_keys_are_in_no_log(model_folder, caplog):
    caplog.set_level(0)

    async def user(client, served, router):
        file = await client.files.create(file=("notes.txt", DOCUMENT.encode()), purpose="user_data")
        with pytest.raises(openai.NotFoundError):
            await chat(client.with_options(api_key="other"), messages=about(file_id=file.id))
        with pytest.raises(openai.AuthenticationError) as refused:
            await chat(client.with_options(api_key="wrong-one"))
        assert not router.requests and "secret" not in str(refused.value.body)
        return file, await chat(client, messages=about(file_id=file.id))

    file, done = use(model_folder, REPLIES, user, {"keys": ("other", "secret")})
    assert file.filename == "notes.txt" and file.bytes == len(DOCUMENT) and done.mem_agent["sections"] == 3
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("openai", "httpcore"))]
    assert not any(key in line for line in ours for key in ("secret", "wrong-one"))


def test_a_pdf_inside_a_message_is_read_and_what_is_no_document_refused(model_folder):
    data = "data:application/pdf;base64," + base64.b64encode(pdf_bytes([["Ann has gold."]])).decode()

    async def user(client, served, router):
        await chat(client, messages=about(file_data=data, filename="a.pdf"))
        for wrong in ({"file_data": "?"}, {"filename": "a.txt"}, {"file_data": "iVBORw0KGgoAAAAA"}):
            with pytest.raises(openai.BadRequestError):
                await chat(client, messages=about(**wrong))
        with pytest.raises(openai.BadRequestError, match=r"p\.png"):
            await client.files.create(file=("p.png", b"\x89PNG\r\n\x1a\n\0\0\0"), purpose="user_data")
        return "".join(map(prompt_of, router.requests))

    assert "Ann has gold." in use(model_folder, [], user, mem_chunk_tokens=64)


@pytest.mark.parametrize("keys,path,headers,status", [
    ((), "/v1/models", {}, 200), ((), "/v1/models", {"Host": "localhost"}, 200),
    ((), "/v1/models", {"Host": "evil.example"}, 403),
    ((), "/v1/models", {"Host": "127.0.0.1.evil.example:80"}, 403),
    (("first", "second"), "/v1/models", {}, 401),
    (("first", "second"), "/v1/models", {"Authorization": "Bearer third"}, 401),
    (("first", "second"), "/v1/models", {"Authorization": "Basic second"}, 401),
    (("first", "second"), "/v1/models", {"Host": "model.example", "Authorization": "bearer second"}, 200),
    (("first", "second"), "/metrics", {}, 401), (("first", "second"), "/health", {}, 200),
])  # fmt: skip
def test_who_may_ask(model_folder, keys, path, headers, status):
    async def user(client, served, router):
        return (await fetched(served.url + path, headers=headers))[0]

    assert use(model_folder, [], user, {"keys": keys}) == status


# --- errors and state ------------------------------------------------------------------------------------------------

REFUSED = {
    "nothing asked": ({"messages": []}, 400), "several answers": ({"n": 2}, 400),
    "another model": ({"model": "other"}, 404),
    "too long a question": ({"messages": [{"role": "user", "content": "Question: " + "who " * 99}]}, 400),
    "too long a document": ({"extra_body": {"documents": ["Z" * 99]}}, 413),
}


@pytest.mark.parametrize("body,status", REFUSED.values(), ids=REFUSED)
@BOTH
def test_what_is_refused_has_asked_nothing(model_folder, body, status, stream):
    async def user(client, served, router):
        with pytest.raises(openai.APIStatusError) as error:
            await (streamed if stream else chat)(client, **body)
        return error.value.status_code, len(router.requests)

    assert use(model_folder, [], user, {"document_tokens": 50}, mem_max_question=40) == (status, 0)


def test_failures_are_the_errors_that_openais_client_has_for_them(model_folder):
    async def user(client, served, router):
        with pytest.raises(openai.InternalServerError) as whole:
            await chat(client)
        with pytest.raises(openai.APIError) as stream:
            await streamed(client)
        assert whole.value.status_code == 503 and stream.value.body["code"] == whole.value.body["code"]
        hanging = asyncio.ensure_future(chat(client.with_options(max_retries=2)))
        while len(router.requests) < 5:
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError) as full:
            await chat(client)
        with pytest.raises(openai.InternalServerError) as late:  # which took its whole time, and is not asked again
            await hanging
        return int(full.value.response.headers["Retry-After"]) > 0, late.value.status_code, len(router.requests)

    limits = {"concurrency": 1, "timeout": 0.4}
    assert use(model_folder, ["x", "abort", "x", "abort", "hang"], user, limits) == (True, 504, 5)


@pytest.mark.parametrize("path,body,status,param", [
    ("/v1/chat/completions", b"{", 400, "1"), ("/v1/chat/completions", b"[1]", 400, None),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "?"}], "n": 2}', 400, "n"),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', 400,
     "messages.0.content.0.type"),
    ("/v1/files", b"x", 400, "file"), ("/v2", b"{}", 404, None),
])  # fmt: skip
def test_errors_are_openais_objects(model_folder, path, body, status, param):
    async def user(client, served, router):
        async with aiohttp.ClientSession() as session, session.post(
            served.url + path, data=body, headers={"Content-Type": "application/json"}) as answer:
            return answer.status, (await answer.json())["error"]

    found, error = use(model_folder, [], user)
    assert found == status and error.keys() == {"message", "type", "param", "code"} and error["param"] == param


@BOTH
def test_a_bug_shows_no_stack(model_folder, monkeypatch, caplog, stream):
    monkeypatch.setattr("mem_agent.asking.reader.sources", lambda *_: 1 / 0)

    async def user(client, served, router):
        with pytest.raises(openai.APIError if stream else openai.InternalServerError) as error:
            await (streamed if stream else chat)(client)
        return str(error.value.body)

    assert "division" not in use(model_folder, REPLIES, user) and "ZeroDivisionError" in caplog.text


def test_models_health_and_metrics(model_folder):
    async def user(client, served, router):
        assert [model.id async for model in await client.models.list()] == ["pocket"]
        await chat(client)
        metrics, healthy = await fetched(f"{served.url}/metrics"), await fetched(f"{served.url}/health")
        reader = served.service.reader
        reader.endpoint = dataclasses.replace(reader.endpoint, base_url="http://127.0.0.1:9")
        return metrics[1], healthy[0], (await fetched(f"{served.url}/health"))[0]

    metrics, *health = use(model_folder, REPLIES, user)
    assert health == [200, 503] and "red key" not in metrics and "Who" not in metrics
    for line in ('mem_agent_turns_total{kind="memory"} 3.0', "mem_agent_reading 0.0", "mem_agent_failures_total 0.0",
                 'mem_agent_http_requests_total{handler="/v1/chat/completions",method="POST",status="200"} 1.0'):
        assert line in metrics
