"""The endpoint as its users see it: OpenAI's own client, streams, files, limits, errors, and a client that leaves."""

import asyncio

import aiohttp
import openai
import pytest

from mem_agent.asking.access import Access
from mem_agent.asking.event_stream import with_pauses
from mem_agent.tests.helpers.asking import DOCUMENT, REPLIES, VOCABULARY, chat, model_folder, prompt_of, reply, use

__all__ = ["model_folder"]


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
        stream = await chat(client, stream=True, stream_options={"include_usage": True})
        return [chunk async for chunk in stream]

    chunks = use(model_folder, REPLIES, user)
    *told, last, usage = chunks
    deltas = [chunk.choices[0].delta for chunk in told]
    assert deltas[0].role == "assistant" and deltas[0].content == ""
    assert [d.reasoning_content for d in deltas[1:4]] == ["[1/3] red\n", "[2/3] as before\n", "[3/3] red key\n"]
    assert "".join(d.content or "" for d in deltas) == "so \\boxed{key}"
    assert last.choices[0].finish_reason == "stop" and last.mem_agent["answer"] == "key"
    assert usage.choices == [] and usage.usage.total_tokens > 0
    assert {chunk.id for chunk in chunks} == {last.id}


@pytest.mark.parametrize("thinking", ["I guess \\boxed{tin}", "so it is", "so \\boxed{k"])
@pytest.mark.parametrize("answer", ["so \\boxed{key}", "so", ""])
def test_thinking_that_nothing_opened_is_no_part_of_the_reply(model_folder, thinking, answer):
    """A stream has told it when its end comes, and says so."""
    final = [*reply(thinking)[:-1], *VOCABULARY.encode_markup("</think>"), *reply(answer)]

    async def user(client, served, router):
        whole = await chat(client)
        stream = [chunk async for chunk in await chat(client, stream=True)]
        return whole, "".join(chunk.choices[0].delta.content or "" for chunk in stream), stream[-1].mem_agent

    whole, streamed, about = use(model_folder, ["red", "red", "red key", final] * 2, user, mem_max_final=64)
    assert whole.choices[0].message.content == answer and whole.mem_agent["answer"] == about["answer"]
    assert streamed == (answer if answer.startswith(thinking) else f"{thinking}</think>{answer}")


@pytest.mark.parametrize("stop,text,answer,tokens", [
    (["\\boxed"], "so ", "", "so \\boxed"), (["?", "}"], "so \\boxed{key", "", "so \\boxed{key}"),
    ([], None, "key", None),
])  # fmt: skip
def test_a_stop_string_ends_the_answer_and_what_is_counted(model_folder, stop, text, answer, tokens):
    """Counted are the tokens that were sampled until the stop string had come, as vLLM's own server counts them; the
    whole reply goes on behind it."""
    final = "so \\boxed{key} and more and more"
    replies = ["red", "red", "red key", final]

    async def user(client, served, router):
        whole = await chat(client, stop=stop)
        stream = [chunk async for chunk in await chat(client, stop=stop, stream=True)]
        return whole, "".join(chunk.choices[0].delta.content or "" for chunk in stream), stream[-1].mem_agent

    whole, streamed, about = use(model_folder, replies * 2, user)
    (choice,) = whole.choices
    assert choice.message.content == streamed == (final if text is None else text) and choice.finish_reason == "stop"
    assert whole.mem_agent["answer"] == about["answer"] == answer
    sampled = len(reply(tokens)) - 1 if tokens else len(reply(final))
    assert whole.usage.completion_tokens == sum(len(reply(r)) for r in replies[:3]) + sampled
    assert whole.usage.prompt_tokens_details.cached_tokens == (8 if tokens is None else 6)


@pytest.mark.parametrize("before", [1, 31, 63, 150, 399])
def test_no_text_behind_a_stop_string_is_told_however_late_it_is_looked_for(model_folder, before):
    """Of a long answer it is looked for every 32nd part of it, so more is sampled before the engine is told."""
    final = f"{'a' * before}END{'b' * 40}"

    async def user(client, served, router):
        router.streams = True
        stream = [chunk async for chunk in await chat(client, stop=["END"], stream=True)]
        return [chunk.choices[0].delta.content or "" for chunk in stream], stream[-1].usage

    told, _ = use(model_folder, ["red", "red", "red key", final], user, mem_max_final=512, engine_max_len=4096)
    assert "".join(told) == "a" * before


def test_a_stop_string_of_a_server_that_does_not_stream_cuts_the_text_alone(model_folder):
    async def user(client, served, router):
        router.streams = False
        return await chat(client, stop=["\\boxed"])

    done = use(model_folder, REPLIES, user)
    assert done.choices[0].message.content == "so " and done.mem_agent["answer"] == ""
    assert done.usage.completion_tokens == sum(len(reply(r)) for r in REPLIES)


def test_an_answer_that_was_cut_says_so(model_folder):
    cut = {"choices": [{"token_ids": [70], "logprobs": {"content": [{"token_id": 70, "logprob": -1.0}]},
                        "finish_reason": "length"}]}

    async def user(client, served, router):
        done = await chat(client, max_tokens=1)
        return done.choices[0].finish_reason, router.requests[-1]["sampling_params"]["max_tokens"]

    assert use(model_folder, ["x", "x", "x", cut], user) == ("length", 1)


def test_files_are_uploaded_named_and_deleted(model_folder):
    async def user(client, served, router):
        file = await client.files.create(file=("notes.txt", DOCUMENT.encode()), purpose="user_data")
        parts = [{"type": "file", "file": {"file_id": file.id}}, {"type": "text", "text": "Who, then?"}]
        done = await chat(client, messages=[{"role": "user", "content": parts}])
        listed = [one.id async for one in await client.files.list()]
        content = (await client.files.content(file.id)).text
        deleted = await client.files.delete(file.id)
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(file.id)
        with pytest.raises(openai.NotFoundError):
            await chat(client, messages=[{"role": "user", "content": parts}])
        return file, done, listed, content, deleted

    file, done, listed, content, deleted = use(model_folder, REPLIES, user)
    assert file.filename == "notes.txt" and file.bytes == len(DOCUMENT) and listed == [file.id]
    assert content == DOCUMENT and deleted.deleted and done.mem_agent["sections"] == 3


def test_what_is_no_document_is_refused_when_it_comes(model_folder):
    async def user(client, served, router):
        with pytest.raises(openai.BadRequestError) as error:
            await client.files.create(file=("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0"), purpose="user_data")
        return str(error.value)

    assert "picture.png" in use(model_folder, [], user)


def test_models(model_folder):
    async def user(client, served, router):
        listed = [model.id async for model in await client.models.list()]
        with pytest.raises(openai.NotFoundError, match="pocket"):
            await chat(client, model="other")
        return listed, (await client.models.retrieve("pocket")).id

    assert use(model_folder, [], user) == (["pocket"], "pocket")


def problem(body):
    """What a prompt asks."""
    return prompt_of(body).partition("<problem>\n")[2].partition("\n</problem>")[0]


def test_completions_of_prompts(model_folder):
    async def user(client, served, router):
        router.default = lambda body: reply(problem(body))
        prompts = [f"{DOCUMENT}\nQuestion: Who?\nAnswer:", "Alone?"]
        done = await client.completions.create(model="pocket", prompt=prompts, max_tokens=9)
        return done, len(router.requests)

    done, requests = use(model_folder, [], user)
    assert [choice.text for choice in done.choices] == ["Who?", "Alone?"] and requests == 5
    assert [one["sections"] for one in done.mem_agent] == [3, 0]
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


REFUSED = {
    "nothing asked": ({"messages": []}, 400),
    "tools": ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400),
    "too long a question": ({"messages": [{"role": "user", "content": "Question: " + "who " * 99}]}, 400),
    "too long a document": ({"extra_body": {"documents": ["Z" * 99]}}, 413),
}


@pytest.mark.parametrize("body,status", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_has_asked_nothing(model_folder, body, status, stream):
    async def user(client, served, router):
        with pytest.raises(openai.APIStatusError) as error:
            async for _ in await chat(client, stream=True, **body) if stream else [await chat(client, **body)]:
                pass
        return error.value.status_code, len(router.requests)

    assert use(model_folder, [], user, document_tokens=50, mem_max_question=40) == (status, 0)


def test_an_engine_that_ends_a_request_is_an_error_of_the_server(model_folder):
    async def user(client, served, router):
        with pytest.raises(openai.InternalServerError) as whole:
            await chat(client)
        with pytest.raises(openai.APIError) as streamed:
            async for _ in await chat(client, stream=True):
                pass
        return whole.value, streamed.value

    whole, streamed = use(model_folder, ["x", "abort", "x", "abort"], user)
    assert whole.status_code == 503 and whole.body["type"] == "server_error"
    assert streamed.body["code"] == whole.body["code"] == "aborted"


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
        while served.endpoint.admission.now:
            await asyncio.sleep(0.01)
        return len(router.requests), served.endpoint.metrics.text().decode()

    requests, metrics = use(model_folder, ["red", "hang"], user)
    assert requests <= 2 and "mem_agent_cancelled_total 1.0" in metrics


def test_keys(model_folder):
    async def user(client, served, router):
        good = await chat(client)
        with pytest.raises(openai.AuthenticationError) as error:
            await chat(client.with_options(api_key="wrong"))
        async with aiohttp.ClientSession() as session, session.get(f"{served.url}/health") as health:
            return good, error.value.body, health.status

    good, body, health = use(model_folder, REPLIES, user, access=Access(("other", "secret")))
    assert good.choices and body["type"] == "authentication_error" and "secret" not in str(body) and health == 200


def test_a_page_may_ask_from_origins_that_are_allowed(model_folder):
    async def user(client, served, router):
        seen = []
        models = f"{served.url}/v1/models"
        async with aiohttp.ClientSession() as session:
            for origin in ("https://chat.example", "https://evil.example"):
                for method in ("OPTIONS", "GET"):
                    async with session.request(method, models, headers={"Origin": origin}) as answer:
                        seen.append((answer.status, answer.headers.get("Access-Control-Allow-Origin")))
        return seen

    allowed = "https://chat.example"
    seen = use(model_folder, [], user, access=Access(origins=(allowed,)))
    assert seen == [(204, allowed), (200, allowed), (403, None), (403, None)]


@pytest.mark.parametrize("path,body,kind,status", [
    ("/v1/chat/completions", b"{", "application/json", 400), ("/v1/chat/completions", b"{}", "text/plain", 415),
    ("/v1/chat/completions", b"[1]", "application/json", 400),
    ("/v1/completions", b'{"prompt": [1, 2]}', "application/json", 400),
    ("/v1/completions", b'{"prompt": "Who?", "stream": "false"}', "application/json", 400),
    ("/v1/files", b"x", "text/plain", 415), ("/v2", b"{}", "application/json", 404),
])  # fmt: skip
def test_errors_are_openais_objects(model_folder, path, body, kind, status):
    async def user(client, served, router):
        async with aiohttp.ClientSession() as session:
            async with session.post(served.url + path, data=body, headers={"Content-Type": kind}) as answer:
                return answer.status, await answer.json()

    found, said = use(model_folder, [], user)
    assert found == status and said["error"].keys() == {"message", "type", "param", "code"}


def test_a_bug_is_500_and_shows_no_stack(model_folder, monkeypatch, caplog):
    monkeypatch.setattr("mem_agent.asking.reader.sections_of", lambda *_: 1 / 0)

    async def user(client, served, router):
        with pytest.raises(openai.InternalServerError) as error:
            await chat(client)
        return error.value

    error = use(model_folder, [], user)
    assert error.status_code == 500 and "division" not in str(error.body) and "ZeroDivisionError" in caplog.text


def test_health_and_metrics(model_folder):
    async def user(client, served, router):
        await chat(client)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{served.url}/metrics") as answer:
                kind, metrics = answer.content_type, await answer.text()
            router.default = None
            async with session.get(f"{served.url}/health") as answer:
                return kind, metrics, answer.status

    kind, metrics, health = use(model_folder, REPLIES, user)
    assert kind == "text/plain" and health == 503
    for line in ('mem_agent_requests_total{path="/v1/chat/completions",status="200"} 1.0',
                 'mem_agent_turns_total{kind="memory"} 3.0', "mem_agent_reading 0.0",
                 "mem_agent_reading_seconds_count 1.0", "mem_agent_document_tokens_sum 6.0"):
        assert line in metrics
    assert "red" not in metrics.replace("_created", "")


def test_a_long_silence_has_a_comment():
    async def slow():
        for number in range(2):
            await asyncio.sleep(0.05)
            yield number

    async def main():
        return [step async for step in with_pauses(slow(), 0.01)]

    told = asyncio.run(main())
    assert [step for step in told if step is not None] == [0, 1] and told[0] is None


def test_readings_do_not_wait_for_each_other(model_folder):
    async def user(client, served, router):
        router.together = 8
        await asyncio.gather(*(chat(client) for _ in range(8)))
        return router.peak

    assert use(model_folder, [], user) == 8


def test_prompts_are_read_side_by_side_and_answered_in_their_order(model_folder):
    """The router answers nobody until all have asked."""
    async def user(client, served, router):
        router.together, router.default = 5, lambda body: reply(problem(body))
        done = await client.completions.create(model="pocket", prompt=[f"Q{n}{n}" for n in range(5)])
        return [choice.text for choice in done.choices], served.endpoint.admission.now

    assert use(model_folder, [], user) == (["Q00", "Q11", "Q22", "Q33", "Q44"], 0)


def test_a_bug_in_a_stream_is_its_last_event(model_folder, monkeypatch, caplog):
    monkeypatch.setattr("mem_agent.asking.reader.sources", lambda *_: 1 / 0)

    async def user(client, served, router):
        with pytest.raises(openai.APIError) as error:
            async for _ in await chat(client, stream=True):
                pass
        return error.value

    assert "division" not in str(use(model_folder, REPLIES, user).body) and "ZeroDivisionError" in caplog.text
