"""Addresses of servers as people write them: OpenAI's base is kept as it is, and no secret in it is shown."""

import pytest

from mem_agent.system.errors import ConfigError
from mem_agent.system.server_url import chat_base, is_loopback

BASES = {
    "http://h:8000": "http://h:8000/v1", "http://h:8000/": "http://h:8000/v1", "http://h/v1/": "http://h/v1",
    "https://api.deepseek.com": "https://api.deepseek.com/v1", "https://h/api/v1": "https://h/api/v1",
    "https://generativelanguage.googleapis.com/v1beta/openai/":
        "https://generativelanguage.googleapis.com/v1beta/openai",
    "https://x.openai.azure.com/openai/deployments/g?api-version=2024-06-01":
        "https://x.openai.azure.com/openai/deployments/g?api-version=2024-06-01",
    "http://h?api-version=v1": "http://h/v1?api-version=v1", "http://[::1]:80": "http://[::1]:80/v1",
}


@pytest.mark.parametrize(("url", "base"), BASES.items())
def test_a_base_is_kept_and_one_without_a_path_gets_v1(url, base):
    assert chat_base("--url", url, "KEY") == base == chat_base("--url", base, "KEY")


@pytest.mark.parametrize(("url", "said"), [
    ("http://user:sk-secret@h/v1", "holds credentials, .* put the key into KEY"), ("http://h:x", "not an address"),
    ("https://h/v1?key=sk-secret", "holds credentials"), ("https://h/v1?sk-secret", "holds credentials"),
    ("https://h/v1?api-version=1&code=sk-secret", "holds credentials"),
    ("h:80", "allowed: http"), ("http://", "allowed: http"),
    ("http://h:0", "allowed: http"), ("", "allowed: http"),
])
def test_what_is_no_address_or_holds_a_key_is_one_line_without_it(url, said):
    with pytest.raises(ConfigError, match=said) as refused:
        chat_base("--url", url, "KEY")
    assert "sk-secret" not in str(refused.value) and str(refused.value).startswith("--url")


@pytest.mark.parametrize(("host", "expected"), [
    ("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False),
    ("10.0.0.1", False), ("localhost.example", False), ("", False),
])
def test_which_addresses_are_this_machines_alone(host, expected):
    assert is_loopback(host) is expected
