"""Chat servers elsewhere are asked through the environment's proxy and by its certificates, those here never."""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from mem_agent.client.chat_client import ChatClient
from mem_agent.client.chat_settings import ChatFailed, ChatSettings
from mem_agent.client.way_out import WayOut, way_out
from mem_agent.config import ConfigError
from mem_agent.tests.helpers.fake_chat import completion
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

REMOTE = "https://api.example.com/v1"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Without what this machine's own says."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def set_variables(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


NEAR, PROXY = "http://203.0.113.77:8000/v1", "http://user:secret@proxy:3128"
WAYS = [
    (REMOTE, {}, None), (REMOTE, {"HTTPS_PROXY": PROXY}, PROXY),
    (REMOTE, {"https_proxy": "proxy:1"}, "http://proxy:1"),
    (REMOTE, {"ALL_PROXY": PROXY}, PROXY), (REMOTE, {"HTTP_PROXY": PROXY}, None),
    (NEAR, {"HTTP_PROXY": PROXY}, PROXY), (NEAR, {"HTTPS_PROXY": PROXY}, None),
    (REMOTE, {"HTTPS_PROXY": PROXY, "NO_PROXY": ".example.com"}, None),
    ("https://api.example.com./v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "api.example.com"}, None),
    ("https://[2001:db8::1]/v1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "2001:db8::1"}, None),
    (REMOTE, {"ALL_PROXY": PROXY, "NO_PROXY": "*"}, None),
    (REMOTE, {"HTTPS_PROXY": PROXY, "NO_PROXY": "203.0.113.77"}, PROXY), (REMOTE, {"HTTPS_PROXY": ""}, None),
    (NEAR, {"HTTP_PROXY": PROXY, "NO_PROXY": "203.0.113.77"}, None),
]


@pytest.mark.parametrize(("url", "variables", "proxy"), WAYS)
def test_a_server_elsewhere_is_asked_as_the_environment_says(environment, url, variables, proxy):
    environment(variables)
    found = way_out(url, False)
    assert found == WayOut(proxy, own_certificates=url.startswith("https")) and "secret" not in repr(found)
    assert way_out(url, True) == WayOut()


@pytest.mark.parametrize("host", [
    "127.0.0.1", "127.1.2.3", "127.1", "0x7f000001", "localhost", "localhost.", "LOCALHOST", "a.localhost",
    "ip6-localhost", "localhost.localdomain", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::]", "[::0]",
    socket.gethostname(),
])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_of_this_machine_is_asked_straight(environment, scheme, host):
    environment({"HTTP_PROXY": PROXY, "HTTPS_PROXY": PROXY, "ALL_PROXY": PROXY, "SSL_CERT_FILE": "/nowhere"})
    assert way_out(f"{scheme}://{host}:8000/v1", False) == WayOut()


NONLOCAL = """
echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind
exec "$0" -c 'from mem_agent.client.way_out import way_out; print(way_out("http://203.0.113.77/v1", False).proxy)'
"""


def test_an_address_that_anybody_may_bind_is_not_this_machines(monkeypatch):
    """Machines behind a virtual address let their servers bind it before they have it."""
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0:
        pytest.skip("no network of its own can be made here")
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    command = ["unshare", "--net", "sh", "-ec", NONLOCAL, sys.executable]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == PROXY


@pytest.mark.parametrize(("variables", "said"), [
    ({"ALL_PROXY": "socks5://u:secret@h:1"}, "ALL_PROXY: allowed: http://HOST:PORT; unset it, or name api"),
    ({"HTTPS_PROXY": "http://h:secret"}, "HTTPS_PROXY or ALL_PROXY"), ({"HTTPS_PROXY": "http://"}, "allowed: http"),
    ({"HTTPS_PROXY": "http://u:secret?more@h:1"}, "allowed: http"), ({"HTTPS_PROXY": "http://h:99999"}, "allowed: h"),
    ({"HTTPS_PROXY": "http://u:secret#more@h:1"}, "allowed: http"), ({"HTTPS_PROXY": "http://[1:2]"}, "allowed: htt"),
    ({"HTTPS_PROXY": "http://h:1/secret"}, "allowed: http"), ({"HTTPS_PROXY": "http://h h:1"}, "allowed: http"),
    ({"SSL_CERT_FILE": "/nowhere/ca.pem"}, "SSL_CERT_FILE='/nowhere/ca.pem': no such file"),
    ({"SSL_CERT_FILE": "/dev/null"}, "SSL_CERT_FILE='/dev/null': no such file"),
    ({"SSL_CERT_FILE": "/dev"}, "SSL_CERT_FILE='/dev': no such file"),
    ({"SSL_CERT_FILE": __file__}, "SSL_CERT_FILE='.*' cannot be used"),
    ({"HTTPS_PROXY": "http://999.1.1.1:1"}, "allowed: http"), ({"HTTPS_PROXY": "http://h_é:1"}, "allowed: http"),
    ({"HTTPS_PROXY": "http://u:secret\udcff@h:1"}, "allowed: http"),
])
def test_what_cannot_be_gone_by_is_one_line(environment, variables, said):
    environment(variables)
    with pytest.raises(ConfigError, match=said) as refused:
        ChatClient(ChatSettings(url=REMOTE, model="m"))
    assert "secret" not in str(refused.value)


def test_a_server_without_tls_needs_no_certificates(environment):
    environment({"SSL_CERT_FILE": "/nowhere/ca.pem"})
    assert way_out(NEAR, False) == WayOut()


class Handler(BaseHTTPRequestHandler):
    """A server that is reached as a proxy or as itself; it keeps what was asked of it."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self.path)
        data = json.dumps(completion("yes")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_CONNECT(self):
        self.server.seen.append(self.path)
        self.send_error(407)


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.seen = True, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(url, **own):
    client = ChatClient(ChatSettings(url=url, model="m", retries=0, timeout_s=HANGS_AFTER_S, **own))

    async def once():
        try:
            return await client.ask([{"role": "user", "content": "?"}])
        except ChatFailed as failed:
            return failed
        finally:
            await client.close()

    return asyncio.run(once())


def test_a_request_goes_through_the_proxy_with_its_path_and_query(environment, server):
    environment({"HTTP_PROXY": f"http://127.0.0.1:{server.server_port}"})
    assert ask("http://api.example.com/v1beta/openai?api-version=2024-06-01") == "yes"
    assert server.seen == ["http://api.example.com/v1beta/openai/chat/completions?api-version=2024-06-01"]


def test_a_proxy_that_refuses_is_named_without_its_password(environment, server):
    environment({"HTTPS_PROXY": f"http://u:secret@127.0.0.1:{server.server_port}"})
    failed = str(ask(REMOTE))
    assert server.seen == ["api.example.com:443"] and failed.startswith(f"{REMOTE}: nothing answers there (407")
    assert "environment's proxy: correct that, or name the server in NO_PROXY" in failed and "secret" not in failed


@pytest.mark.parametrize("variables", [{"HTTP_PROXY": "http://127.0.0.1:9"}, {"ALL_PROXY": "socks5://127.0.0.1:9"}])
def test_a_server_here_answers_whatever_proxy_is_set(environment, server, variables):
    environment(variables)
    assert ask(f"http://127.0.0.1:{server.server_port}/api/v3/") == "yes"
    assert server.seen == ["/api/v3/chat/completions"]


@pytest.fixture
def certified(server, tmp_path):
    """The server by TLS, with a certificate that it made itself; the certificate's file."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=2)).not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    )
    pem, both = certificate.public_bytes(Encoding.PEM), tmp_path / "both.pem"
    both.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + pem)
    (tmp_path / "ca.pem").write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return tmp_path / "ca.pem"


def test_the_environments_certificates_are_trusted_for_servers_elsewhere(environment, monkeypatch, server, certified):
    url = f"https://localhost:{server.server_port}"
    environment({"SSL_CERT_FILE": str(certified)})
    assert "CERTIFICATE_VERIFY_FAILED" in str(ask(url))
    monkeypatch.setattr("mem_agent.client.way_out._is_here", lambda host: False)
    assert ask(url) == "yes"
    assert "CERTIFICATE_VERIFY_FAILED" in str(ask(url, is_own=True))
