"""The endpoint as its users see it: OpenAI's own client, streams, files, keys, errors, and a client that leaves."""

import asyncio
import base64
import dataclasses

import aiohttp
import openai
import pytest

from mem_agent.tests.helpers.asking import DOCUMENT, REPLIES, VOCABULARY, chat, reply, use

KEYS = ("other", "secret")
BOTH = pytest.mark.parametrize("stream", [False, True])


async def streamed(client, **others):
    return [chunk async for chunk in await chat(client, stream=True, **others)]


def content(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def fetched(url, **options):
    """Status and text."""
    async with aiohttp.ClientSession() as session, session.get(url, **options) as answer:
        return answer.status, await answer.text()


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_stream_tells_the_memory_then_the_answer_and_a_completion_is_the_same(model_folder):
    async def user(client, served, router):
        whole, requests = await chat(client, seed=3), list(router.requests)
        return whole, requests, await streamed(client, stream_options={"include_usage": True})

    whole, requests, [*told, last, usage] = use(model_folder, REPLIES * 2, user)
    choice = whole.choices[0]
    assert choice.message.content == content(told) == REPLIES[3] and whole.model == last.model == "pocket"
    assert choice.finish_reason == last.choices[0].finish_reason == "stop"
    about = {"answer": DOCUMENT, "memory": REPLIES[2], "sections": 3}
    assert whole.mem_agent == last.mem_agent == about | {"sources": [{"section": 2, "start": 4, "end": 6}]}
    memories = [getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in told]
    assert memories[1:4] == ["[1/3] red\n", "[2/3] as before\n", f"[3/3] {REPLIES[2]}\n"] and len(told) > 6
    assert choice.message.reasoning_content == "".join(memories)
    counts, replies = whole.usage, [len(reply(text)) for text in REPLIES]
    assert usage.choices == [] and usage.usage == counts and counts.prompt_tokens_details.cached_tokens == 8
    assert counts.prompt_tokens == sum(len(body["token_ids"]) for body in requests)
    assert counts.completion_tokens == counts.completion_tokens_details.reasoning_tokens + replies[3] == sum(replies)


ANSWER, GUESS = "so \\boxed{key}", "I guess \\boxed{tin}"
LATE = [*reply(GUESS)[:-1], *VOCABULARY.encode_markup("</think>"), *reply(ANSWER)]


@pytest.mark.parametrize("final,stop,text,answer,told", [
    (LATE, [], ANSWER, "key", f"{GUESS}</think>{ANSWER}"), (ANSWER + " and", "}", ANSWER[:-1], "", ANSWER[:-1]),
])  # fmt: skip
def test_a_reply_is_behind_its_thinking_and_before_a_stop_string(model_folder, final, stop, text, answer, told):
    """Where nothing had opened the thinking, a stream has told it when its end comes, and says so."""
    async def user(client, served, router):
        answers = await chat(client, stop=stop), await streamed(client, stop=stop)
        return *answers, [body["sampling_params"].get("stop") for body in router.requests[:4]]

    whole, chunks, stops = use(model_folder, ["red", "red", "red key", final] * 2, user, mem_max_final=64)
    assert whole.choices[0].message.content == text and content(chunks) == told
    assert whole.mem_agent["answer"] == chunks[-1].mem_agent["answer"] == answer
    assert stops == [None, None, None, list(stop) or None]


@BOTH
def test_a_client_that_leaves_ends_its_reading(model_folder, stream):
    """The router holds the second turn for as long as anybody listens; then the place is free, and nothing follows."""
    async def user(client, served, router):
        asking = asyncio.ensure_future((streamed if stream else chat)(client))
        while len(router.requests) < 2:
            await asyncio.sleep(0.01)
        asking.cancel()
        while "mem_agent_reading 0.0" not in (await fetched(f"{served.url}/metrics"))[1]:
            await asyncio.sleep(0.01)
        return len(router.requests)

    assert use(model_folder, ["red", "hang"], user) == 2


# --- files and keys --------------------------------------------------------------------------------------------------


def about(**file):
    return [{"role": "user", "content": [{"type": "file", "file": file}, {"type": "text", "text": "Who, then?"}]}]


def test_a_file_is_its_keys_own_and_keys_are_in_no_log(model_folder, caplog):
    caplog.set_level(0)
    inside = {"file_data": "data:text/plain;base64," + base64.b64encode(DOCUMENT.encode()).decode()}

    async def user(client, served, router):
        file = await client.files.create(file=("notes.txt", DOCUMENT.encode()), purpose="user_data")
        mine, bad = {"file_id": file.id}, {"file_data": "iVBORw0KGgoAAAAA"}
        for key, sent, error in (("other", mine, openai.NotFoundError), ("wrong", mine, openai.AuthenticationError),
                                 ("secret", bad, openai.BadRequestError)):
            with pytest.raises(error):
                await chat(client.with_options(api_key=key), messages=about(**sent))
        assert not router.requests
        read = [(await chat(client, messages=about(**sent))).mem_agent["sections"] for sent in (mine, inside)]
        others = client.with_options(api_key="other")
        assert [each.id async for each in client.files.list()] == [file.id] and not (await others.files.list()).data
        assert (await client.files.retrieve(file.id)).filename == "notes.txt"
        with pytest.raises(openai.NotFoundError):
            await others.files.delete(file.id)
        assert (await client.files.delete(file.id)).deleted and not (await client.files.list()).data
        return read

    assert use(model_folder, REPLIES * 2, user, {"keys": KEYS}) == [3, 3]
    assert "POST" in caplog.text and "secret" not in caplog.text and "Bearer" not in caplog.text


@pytest.mark.parametrize("keys,path,headers,status", [
    ((), "/v1/models", {}, 200), ((), "/v1/models", {"Host": "127.0.0.1.evil.example:80"}, 403),
    (KEYS, "/metrics", {}, 401), (KEYS, "/health", {}, 200),
    (KEYS, "/v1/models", {"Authorization": "Basic secret"}, 401),
    (KEYS, "/v1/models", {"Host": "model.example", "Authorization": "bearer secret"}, 200),
])  # fmt: skip
def test_who_may_ask(model_folder, keys, path, headers, status):
    async def user(client, served, router):
        return (await fetched(served.url + path, headers=headers))[0]

    assert use(model_folder, [], user, {"keys": keys}) == status


# --- errors and state ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body,status,param", [
    ({"messages": []}, 400, None), ({"model": "other"}, 404, None), ({"n": 2}, 400, "n"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages.0.content.0.type"),
    ({"extra_body": {"documents": ["Z" * 99]}}, 413, None),
])  # fmt: skip
@BOTH
def test_what_is_refused_has_asked_nothing(model_folder, body, status, param, stream):
    async def user(client, served, router):
        with pytest.raises(openai.APIStatusError) as error:
            await (streamed if stream else chat)(client, **body)
        return error.value.status_code, error.value.param, len(router.requests)

    assert use(model_folder, [], user, {"document_tokens": 50}, mem_max_question=40) == (status, param, 0)


def test_failures_are_the_errors_that_openais_client_has_for_them(model_folder):
    async def user(client, served, router):
        with pytest.raises(openai.InternalServerError) as whole:
            await chat(client)
        with pytest.raises(openai.APIError) as stream:
            await streamed(client)
        assert (whole.value.status_code, stream.value.body["code"]) == (503, whole.value.body["code"])
        hanging = asyncio.ensure_future(chat(client.with_options(max_retries=2)))
        while len(router.requests) < 5:
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError) as full:
            await chat(client)
        with pytest.raises(openai.InternalServerError) as late:  # which took its whole time, and is not asked again
            await hanging
        return int(full.value.response.headers["Retry-After"]) > 0, late.value.status_code, len(router.requests)

    replies = ["x", "abort"] * 2 + ["hang"]
    assert use(model_folder, replies, user, {"concurrency": 1, "timeout": 1.0}) == (True, 504, 5)


def test_models_health_and_metrics(model_folder):
    async def user(client, served, router):
        assert [model.id async for model in await client.models.list()] == ["pocket"]
        await chat(client)
        well, (_, metrics), nowhere = [await fetched(f"{served.url}/{path}") for path in ("health", "metrics", "v2")]
        served.reader.endpoint = dataclasses.replace(served.reader.endpoint, base_url="http://127.0.0.1:9")
        return metrics, [state[0] for state in (well, nowhere, await fetched(f"{served.url}/health"))]

    metrics, states = use(model_folder, REPLIES, user)
    assert states == [200, 404, 503] and "red key" not in metrics and "Who" not in metrics
    for line in ('mem_agent_turns_total{kind="memory"} 3', "mem_agent_failures_total 0", 'handler="/v1/models"'):
        assert line in metrics
