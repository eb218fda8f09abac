"""Uploads as clients and strangers send them: what is read of a form, and what is refused."""

import asyncio
import warnings
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.multipart import parse_content_disposition
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request

from mem_agent.asking.forms import form_file
from mem_agent.asking.quiet import quiet_about_heads
from mem_agent.asking.request_error import RequestError
from mem_agent.tests.helpers.cpu_time import at_most

FILE = (b'name="file"; filename="a.txt"', b"hello")
MOST = 2**21


def body_of(*parts: tuple[bytes, bytes]) -> bytes:
    """Of each part what stands behind its disposition, and its content."""
    sent = (b"--b\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + content + b"\r\n"
            for head, content in parts)
    return b"".join(sent) + b"--b--\r\n"


def read(body: bytes):
    async def main():
        payload = StreamReader(Mock(_reading_paused=False), 2**16, loop=asyncio.get_running_loop())
        payload.feed_data(body)
        payload.feed_eof()
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        request = make_mocked_request("POST", "/", headers=headers, payload=payload, client_max_size=MOST)
        return await form_file(request, 0)

    return asyncio.run(main())


PURPOSE = b'name="purpose"'
TYPE = b"\r\nContent-Type: "
CODED = b"\r\nContent-Transfer-Encoding: "


@pytest.mark.parametrize(("parts", "found"), [
    ([FILE], ("a.txt", "user_data", b"hello")),
    ([(PURPOSE, b"assistants"), FILE], ("a.txt", "assistants", b"hello")),
    ([FILE, (PURPOSE, "é".encode())], ("a.txt", "é", b"hello")),
    ([FILE, (PURPOSE, b"\xff")], ("a.txt", "\N{REPLACEMENT CHARACTER}", b"hello")),
    ([FILE, (PURPOSE + b'; filename="x"', b"x")], ("a.txt", "user_data", b"hello")),
    ([FILE, FILE[:1] + (b"another",)], ("a.txt", "user_data", b"hello")),
    ([(b'name="expires_after[seconds]"', b"3600"), FILE], ("a.txt", "user_data", b"hello")),
    ([(b'name="more"; filename="b"', b"x" * 2**20), FILE], ("a.txt", "user_data", b"hello")),
    ([(b"name=\"file\"; filename*=utf-8''%c3%a9.txt", b"x" * 2**20)], ("é.txt", "user_data", b"x" * 2**20)),
    ([(FILE[0] + CODED + b"base64", b"aGVsbG8=")], ("a.txt", "user_data", b"hello")),
    ([(FILE[0] + CODED + b"binary", b"hello")], ("a.txt", "user_data", b"hello")),
    ([(FILE[0] + b"\r\nContent-Encoding: gzip", b"hello")], ("a.txt", "user_data", b"hello")),
    ([FILE, *[(b'name="x"', b"")] * 63], ("a.txt", "user_data", b"hello")),
])  # fmt: skip
def test_the_file_the_purpose_and_nothing_else_is_read(parts, found):
    assert read(body_of(*parts)) == found


@pytest.mark.parametrize(("parts", "reason"), [
    ([], "file: expected a file"),
    ([(b'name="file"', b"hello")], "file: expected a file"),
    ([(b'name="file"', b"hello"), FILE], "file: expected a file"),
    ([FILE, (b'filename="b"', b"x")], "a part has no name"),
    ([FILE, (PURPOSE, b"x" * 257)], "purpose: more than 256 bytes"),
    ([FILE, *[(b'name="x"', b"")] * 64], "more than 64 parts"),
    ([FILE, (PURPOSE + CODED + b"rot13", b"x")], "unknown content transfer encoding"),
    ([FILE, (b'name="x"' + TYPE + b"multipart/mixed; boundary=c", b"--c\r\n\r\n--c--")], "a form in a form"),
    ([(b"name*=nonsense''%41; filename=a", b"x")], "a part has no name"),
])  # fmt: skip
def test_what_is_refused_says_why(parts, reason):
    with pytest.raises(RequestError, match=reason) as refused:
        read(body_of(*parts))
    assert refused.value.status == 400


@pytest.mark.parametrize("charset", [b"punycode", b"nonsense", b"zlib", b"idna"])
@pytest.mark.parametrize("head", [PURPOSE, b'name="other"', FILE[0]])
def test_no_encoding_that_a_client_names_is_used(charset, head):
    """Punycode would take hours for a megabyte, in the event loop."""
    named = (head + TYPE + b"text/plain; charset=" + charset, b"-" + b"a" * (200 if head == PURPOSE else 2**20))
    with at_most(5):
        for parts in ([named, FILE], [FILE, named]):
            assert read(body_of(*parts))[0] == "a.txt"


def test_a_form_of_all_sizes_is_bounded_like_any_body():
    for parts in ([(FILE[0], b"x" * MOST)], [(b'name="x"', b"x" * MOST), FILE], [(b'name="x"', b"x" * 2**19)] * 5):
        with pytest.raises(web.HTTPRequestEntityTooLarge):
            read(body_of(*parts))


def test_a_bad_header_is_neither_printed_nor_kept():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        parse_content_disposition("form-data; \x1b")
        assert told
        quiet_about_heads()
        told.clear()
        parse_content_disposition("form-data; \x1b")
        parse_content_disposition("form-data; name*=x; name=y")
        assert not told
