"""What a client of the endpoint may take of it: places, time, memory; and bodies that cannot be read."""

import asyncio
import logging

import aiohttp
import openai
import pytest

from mem_agent.asking import bodies, endpoint
from mem_agent.asking.bodies import json_body
from mem_agent.asking.files import Files, StoredFile
from mem_agent.asking.request_error import RequestError
from mem_agent.tests.helpers.asking import ASKED, REPLIES, chat, model_folder, use
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

__all__ = ["model_folder"]
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def bodies_have_time(monkeypatch):
    """To arrive: on a busy machine that alone may take as long as the request is given here."""
    monkeypatch.setattr(endpoint, "json_body", lambda request, _: json_body(request, HANGS_AFTER_S))


def part(head, body=b"hello"):
    return b"--b\r\n" + head + b"\r\n\r\n" + body + b"\r\n--b--\r\n"


def test_there_are_so_many_places(model_folder):
    async def user(client, served, router):
        first = asyncio.ensure_future(chat(client))
        while not router.requests:
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError) as error:
            await chat(client)
        first.cancel()
        return error.value.response.headers["Retry-After"]

    assert use(model_folder, ["hang"], user, serve_concurrency=1) == "1"


def test_a_batch_takes_as_many_places_as_it_has_prompts(model_folder):
    async def user(client, served, router):
        with pytest.raises(openai.BadRequestError, match="3 texts, of which 2 are read at once"):
            await client.completions.create(model="pocket", prompt=["Who?"] * 3)
        first = asyncio.ensure_future(chat(client))
        while not router.requests:
            await asyncio.sleep(0.01)
        with pytest.raises(openai.RateLimitError):
            await client.completions.create(model="pocket", prompt=["Who?"] * 2)
        first.cancel()
        return len(router.requests)

    assert use(model_folder, ["hang"], user, serve_concurrency=2) == 1


def test_there_are_so_many_places_for_uploads(model_folder):
    async def user(client, served, router):
        never = asyncio.Event()

        async def held():
            yield b"--b"
            await never.wait()

        async with aiohttp.ClientSession() as session:
            first = asyncio.ensure_future(session.post(f"{served.url}/v1/files", data=held(), headers=FORM))
            while not served.endpoint.uploads.now:
                await asyncio.sleep(0.01)
            with pytest.raises(openai.RateLimitError) as error:
                await client.files.create(file=("a.txt", b"a"), purpose="user_data")
            assert (await chat(client)).choices
            first.cancel()
            while served.endpoint.uploads.now:
                await asyncio.sleep(0.01)
        return error.value.response.headers["Retry-After"]

    assert use(model_folder, REPLIES, user, serve_concurrency=1) == "1"


def test_a_request_has_so_much_time(model_folder, bodies_have_time):
    async def user(client, served, router):
        with pytest.raises(openai.InternalServerError, match="no answer within") as error:
            await chat(client)
        return error.value.status_code, error.value.response.headers["x-should-retry"]

    assert use(model_folder, ["hang"], user, serve_timeout=0.2) == (504, "false")


def test_each_prompt_has_the_time_and_one_that_takes_longer_ends_all(model_folder, bodies_have_time):
    async def user(client, served, router):
        with pytest.raises(openai.InternalServerError, match="no answer within") as error:
            await client.completions.create(model="pocket", prompt=["Who?"] * 3)
        return error.value.status_code, served.endpoint.admission.now

    assert use(model_folder, ["red", "hang", "red"], user, serve_timeout=0.5) == (504, 0)


def test_a_body_that_does_not_come_holds_no_place_for_ever(model_folder):
    async def user(client, served, router):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 99\r\n\r\n{")
        status = await reader.readline()
        writer.close()
        return status, served.endpoint.admission.now

    status, now = use(model_folder, [], user, serve_timeout=0.2)
    assert b" 408 " in status and now == 0


@pytest.mark.parametrize("head,line", [
    (b"GET / HTTP/1.1\r\nA\r\n\r\n", "Error handling request from 127.0.0.1: Invalid header token: b'A' ^"),
    (b"GET / HTTP/1.1\r\nA: " + b"a" * 9000, None), (b"GET /\x1b[31m HTTP/1.1\r\n\r\n", None), (b"x\r\n\r\n", None),
])  # fmt: skip
def test_a_head_that_is_none_is_a_line_of_the_log_at_most(model_folder, caplog, head, line):
    """No key is asked for before."""
    async def user(client, served, router):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(head)
        answer = await asyncio.wait_for(reader.read(), HANGS_AFTER_S)
        writer.close()
        return answer

    assert b" 400 " in use(model_folder, [], user)
    shown = [logging.Formatter().format(record) for record in caplog.records if record.levelno > logging.INFO]
    assert shown == ([line] if line else shown[:1])
    assert all(len(told) <= 200 and told.isprintable() for told in shown)


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
                                  b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HT"])
def test_a_connection_without_a_whole_head_is_closed(model_folder, monkeypatch, sent):
    monkeypatch.setattr(endpoint, "HEAD_S", 1.0)

    async def user(client, served, router):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), HANGS_AFTER_S)
        writer.close()
        return answer

    answer = use(model_folder, [], user)
    assert answer.count(b"HTTP/1.1 200") == sent.count(b"\r\n\r\n")


def test_a_body_may_take_longer_than_a_head(model_folder, monkeypatch):
    monkeypatch.setattr(endpoint, "HEAD_S", 1.0)

    async def user(client, served, router):
        async def slow():
            for piece in part(b'Content-Disposition: form-data; name="file"; filename="a.txt"').split(b"ell"):
                yield piece
                await asyncio.sleep(0.6)

        async with aiohttp.ClientSession() as session:
            async with session.post(f"{served.url}/v1/files", data=slow(), headers=FORM) as answer:
                return answer.status

    assert use(model_folder, [], user) == 200


@pytest.mark.parametrize("tokens,most", [(0, 2 * 2**20), (1000, 64_000)])
def test_a_file_that_is_named_again_and_again_is_counted_each_time(model_folder, tokens, most):
    """Some kilobytes of a request would else become gigabytes of text before their tokens are counted."""
    async def user(client, served, router):
        file = await client.files.create(file=("a.txt", b"QWZRXY " * 9000), purpose="user_data")
        parts = [{"type": "file", "file": {"file_id": file.id}}] * 40
        for body in ({"documents": [{"file_id": file.id}] * 40},
                     {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "Who?"}]}] * 2}):
            with pytest.raises(openai.APIStatusError, match=f"of more than {most} characters together") as error:
                await chat(client, **{"messages": ASKED, "extra_body": body})
            assert error.value.status_code == 413
        with pytest.raises(openai.APIStatusError, match="characters together"):
            await client.completions.create(model="pocket", prompt=["Who?"], extra_body={"documents": parts})
        return len(router.requests), served.endpoint.admission.now

    limits = {"serve_files_mb": 1, "serve_body_mb": 1, "serve_document_tokens": tokens}
    assert use(model_folder, [], user, **limits) == (0, 0)


def test_a_body_of_very_many_values_is_refused_before_it_is_read(model_folder, monkeypatch):
    monkeypatch.setattr(bodies, "_VALUES", 100)

    async def user(client, served, router):
        for held in ([{}] * 100, [[[]]] * 50, list(range(101))):
            with pytest.raises(openai.APIStatusError, match="more than 100 values") as error:
                await chat(client, extra_body={"unknown": held})
            assert error.value.status_code == 413
        with pytest.raises(openai.BadRequestError, match="there is no question"):
            await chat(client, messages=[{"role": "user", "content": ""}], extra_body={"unknown": '[{,\\"' * 1000})

    use(model_folder, [], user)


def test_uploads_are_bounded_by_what_they_unpack_to():
    files = Files(2**20)
    with pytest.raises(RequestError, match="SERVE_FILES_MB"):
        files.add("a.docx", "user_data", b"small", "x" * 2**20)
    with pytest.raises(RequestError, match="SERVE_FILES_MB"):
        for _ in range(2000):
            files.add("a", "user_data", b"a", "a")


def test_an_upload_is_measured_itself_alone(monkeypatch):
    """A quarter of a million little files would else be summed at each."""
    measured = []
    whole = StoredFile.held.fget
    monkeypatch.setattr(StoredFile, "held", property(lambda file: measured.append(file.id) or whole(file)))
    files = Files(2**30)
    ids = [files.add("a", "user_data", b"a", "a").id for _ in range(100)]
    assert len(measured) < 500
    for id in ids:
        files.remove(id)
    assert len(measured) < 700 and not files.all()


def test_a_deleted_file_leaves_its_room():
    files = Files(2**20)
    for _ in range(5):
        kept = files.add("a", "user_data", b"a", "x" * (2**20 - 2000))
        with pytest.raises(RequestError, match="SERVE_FILES_MB"):
            files.add("b", "user_data", b"a", "x" * 2000)
        files.remove(kept.id)


UNREADABLE = {
    "no parts": ("/v1/files", FORM, b"junk"),
    "cut": ("/v1/files", FORM, part(b'Content-Disposition: form-data; name="file"; filename="a"')[:-9]),
    "no name": ("/v1/files", FORM, part(b'Content-Disposition: form-data; filename="a"')),
    "no encoding": ("/v1/files", FORM, part(b'Content-Disposition: form-data; name="file"; filename="a"\r\n'
                                            b"Content-Transfer-Encoding: rot13")),
    "forms in forms": ("/v1/files", FORM, part(b"Content-Type: multipart/mixed; boundary=c", b"--c\r\n\r\n--c--")),
    "no boundary": ("/v1/files", {"Content-Type": "multipart/form-data"}, b"x"),
    "no gzip": ("/v1/chat/completions", JSON | {"Content-Encoding": "gzip"}, b"xxxxxx"),
    "a deep model": ("/v1/chat/completions", JSON, b'{"model": ' + b"[" * 1010 + b"]" * 1010 + b"}"),
}


@pytest.mark.parametrize("path,headers,body", UNREADABLE.values(), ids=UNREADABLE)
def test_a_body_that_cannot_be_read_is_the_clients_error(model_folder, path, headers, body):
    async def user(client, served, router):
        async with aiohttp.ClientSession() as session:
            async with session.post(served.url + path, data=body, headers=headers) as answer:
                return answer.status, await answer.json()

    status, said = use(model_folder, [], user)
    assert 400 <= status < 500 and said["error"]["message"]


def test_a_files_name_that_is_no_text_does_not_hide_the_others(model_folder):
    async def user(client, served, router):
        body = part(b'Content-Disposition: form-data; name="file"; filename="a\xff.txt"')
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{served.url}/v1/files", data=body, headers=FORM) as answer:
                assert answer.status == 200
        return [file.filename async for file in await client.files.list()]

    assert use(model_folder, [], user) == ["a?.txt"]
