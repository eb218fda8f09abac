"""Who may ask: keys, origins, host names, places; and where a server may listen."""

import socket

import pytest

from mem_agent.asking.access import Access, Admission, check_address, check_host, checked_origin, read_keys
from mem_agent.asking.request_error import RequestError
from mem_agent.asking.serve import main
from mem_agent.config import ConfigError

HERE = {"Host": "127.0.0.1:8080"}
KEYS = Access(("first", "second"))


@pytest.mark.parametrize("access,path,headers,status", [
    (Access(), "/v1/models", HERE, 0),
    (Access(), "/v1/models", {"Host": "localhost"}, 0),
    (Access(), "/v1/models", {"Host": "[::1]:8080"}, 0),
    (Access(), "/v1/models", {"Host": "127.0.0.2:8080"}, 0),
    (Access(), "/v1/models", {"Host": "192.168.1.5:8080"}, 403),
    (Access(), "/v1/models", {"Host": "evil.example"}, 403),
    (Access(), "/v1/models", {"Host": "127.0.0.1.evil.example:80"}, 403),
    (Access(), "/v1/models", HERE | {"Origin": "https://evil.example"}, 403),
    (Access(origins=("https://chat.example",)), "/v1/models", HERE | {"Origin": "https://chat.example"}, 0),
    (Access(origins=("*",)), "/v1/models", HERE | {"Origin": "null"}, 0),
    (KEYS, "/v1/models", HERE, 401),
    (KEYS, "/v1/models", HERE | {"Authorization": "Bearer third"}, 401),
    (KEYS, "/v1/models", HERE | {"Authorization": "Bearer "}, 401),
    (KEYS, "/v1/models", HERE | {"Authorization": "second"}, 401),
    (KEYS, "/v1/models", HERE | {"Authorization": "Basic second"}, 401),
    (KEYS, "/v1/models", HERE | {"Authorization": "Bearer séc"}, 401),
    (KEYS, "/v1/models", {"Host": "model.example", "Authorization": "bearer second"}, 0),
    (KEYS, "/metrics", HERE, 401),
    (KEYS, "/health", HERE, 0),
])  # fmt: skip
def test_who_may_ask(access, path, headers, status):
    try:
        access.check(path, headers)
        found = 0
    except RequestError as error:
        found = error.status
    assert found == status


@pytest.mark.parametrize("given,sent", [
    ("https://chat.example/", "https://chat.example"), ("HTTPS://Chat.Example:443", "https://chat.example"),
    ("http://localhost:3000/", "http://localhost:3000"), ("https://bücher.example", "https://xn--bcher-kva.example"),
    ("http://[::1]:80", "http://[::1]"), ("*", "https://any.example"),
])  # fmt: skip
def test_an_origin_is_compared_as_browsers_send_it(given, sent):
    assert Access(origins=(checked_origin(given),)).allows(sent)


@pytest.mark.parametrize("given", ["https://chat.example/page", "chat.example", "https://a:b@chat.example", "null", "",
                                   "http://chat.example:99999"])
def test_what_no_page_has_as_its_origin_is_one_line_at_the_start(given, capsys):
    assert main(["no/such/model", "--allow-origin", given]) == 2
    said = capsys.readouterr().err.strip()
    assert f"--allow-origin {given}" in said and "\n" not in said


def test_keys_are_never_shown():
    assert "first" not in repr(KEYS)


def test_where_keys_come_from(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    assert read_keys(file, {"MEM_AGENT_API_KEY": "three"}) == ("one", "two")
    assert read_keys(None, {"MEM_AGENT_API_KEY": " three "}) == ("three",) and read_keys(None, {}) == ()
    file.write_text("\n")
    with pytest.raises(ConfigError, match="--api-key-file"):
        read_keys(file, {})
    with pytest.raises(ConfigError, match="MEM_AGENT_API_KEY"):
        read_keys(None, {"MEM_AGENT_API_KEY": "a b"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "model.example"])
def test_other_machines_need_a_key(host):
    with pytest.raises(ConfigError, match="MEM_AGENT_API_KEY"):
        check_host(host, ())
    check_host(host, ("key",))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_needs_none(host):
    check_host(host, ())


def test_places():
    admission = Admission(2)
    with admission.reading(), admission.reading():
        with pytest.raises(RequestError) as error, admission.reading():
            pass
        assert error.value.status == 429 and error.value.headers == {"Retry-After": "1"}
    with admission.reading():
        assert admission.now == 1
    assert admission.now == 0


@pytest.mark.parametrize("words", [["--port", "65536"], ["--num-engines", "0"], ["--concurrency", "0"]])
def test_numbers_of_the_command_are_checked_before_engines_start(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["MODEL", *words])
    assert ended.value.code == 2 and words[0] in capsys.readouterr().err


def test_a_port_that_is_taken_is_said_before_a_model_is_looked_at(capsys, silent_port):
    with socket.create_server(("127.0.0.1", silent_port)):
        assert main(["/no/model", "--port", str(silent_port)]) == 2
    assert f"--port {silent_port}" in capsys.readouterr().err
    check_address("127.0.0.1", silent_port)
    with pytest.raises(ConfigError, match=r"--host no\.such\.machine\.invalid"):
        check_address("no.such.machine.invalid", 0)
