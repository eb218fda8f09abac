"""What users write into settings: classes by name, their settings, addresses. What is wrong is one line."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from mem_agent.system.errors import ConfigError
from mem_agent.system.plugins import absolute_name, load_class, name_by_content, parse_settings
from mem_agent.system.server_url import chat_base, is_loopback


class Base(ABC):
    @abstractmethod
    def work(self): ...


class Known(Base):
    def work(self):
        return "known"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "own place" / "mine.py"
    path.parent.mkdir()
    path.write_text(f"""
from dataclasses import dataclass
from {__name__} import Base

@dataclass(frozen=True)
class Settings:
    most: int = 3

class Mine(Base):
    def work(self): return Settings().most

class Half(Base): ...

class Alien: ...
""")
    return path


def load(name):
    return load_class("AGENT", name, {"known": Known}, Base)


def test_a_known_name_and_a_class_of_a_file_and_of_a_module(file, monkeypatch):
    assert load("known") is Known
    mine = load(f"{file}:Mine")
    assert mine().work() == 3 and mine is load(f"{file}:Mine")
    monkeypatch.syspath_prepend(str(file.parent))
    assert load("mine:Mine")().work() == 3


@pytest.mark.parametrize(("name", "named"), [
    ("other", "known"), ("no.such.module:Mine", "PYTHONPATH"), ("/nowhere/mine.py:Mine", "No such file"),
    ("broken.py:Mine", "ZeroDivisionError"), ("own place/mine.py:Absent", "Absent"),
    ("own place/mine.py:Half", "work"), ("own place/mine.py:Alien", "Base"),
])
def test_what_cannot_be_used_names_the_variable_and_the_reason(file, tmp_path, monkeypatch, name, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ConfigError) as error:
        load(name)
    assert f"AGENT={name!r}" in str(error.value) and named in str(error.value)


def test_names_travel_to_other_working_directories_and_tell_whether_a_file_was_edited(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert absolute_name("mine.py:Mine") == f"{file}:Mine"
    assert [absolute_name(name) for name in ("known", "mine:Mine")] == ["known", "mine:Mine"]
    assert [name_by_content(name) for name in ("known", "mine:Mine")] == ["known", "mine:Mine"]
    elsewhere = file.with_name("elsewhere.py")
    elsewhere.write_bytes(file.read_bytes())
    assert name_by_content("elsewhere.py:Mine") == name_by_content("mine.py:Mine") != "mine.py:Mine"
    elsewhere.write_text("edited")
    assert name_by_content("elsewhere.py:Mine") != name_by_content("mine.py:Mine")


@dataclass(frozen=True)
class Settings:
    most: int = 3
    style: str = ""
    loud: bool = False
    pages: Annotated[int, Field(ge=1)] = 1
    kind: Literal["plain", "rich"] = "plain"

    def __post_init__(self):
        if self.most < 1:
            raise ValueError("most must be positive")


def test_settings_have_the_types_of_their_defaults():
    assert parse_settings(Settings, "", "AGENT_ARGS") == Settings()
    text = "most=5 style='short and plain' loud=yes pages=2 kind=rich"
    assert parse_settings(Settings, text, "AGENT_ARGS") == Settings(5, "short and plain", True, 2, "rich")


@pytest.mark.parametrize(("text", "named"), [
    ("least=5", "most=3"), ("most", "'most'"), ("most=few", "most='few'"), ("pages=0", "pages='0'"),
    ("kind=poor", "kind='poor'"), ("most=0", "most must be positive"),
])
def test_bad_settings_name_the_variable(text, named):
    with pytest.raises(ConfigError, match="AGENT_ARGS") as error:
        parse_settings(Settings, text, "AGENT_ARGS")
    assert named in str(error.value)


# --- addresses: OpenAI's base is kept as it is, and no secret in it is shown ----------------------------------------


@pytest.mark.parametrize(("url", "base"), [
    ("http://h:8000/", "http://h:8000/v1"), ("http://h/v1/", "http://h/v1"), ("https://h/api/v1", "https://h/api/v1"),
    ("https://g.com/v1beta/openai/", "https://g.com/v1beta/openai"), ("http://[::1]:80", "http://[::1]:80/v1"),
    ("http://h?api-version=v1", "http://h/v1?api-version=v1"),
])
def test_a_base_is_kept_and_one_without_a_path_gets_v1(url, base):
    assert chat_base("--url", url, "KEY") == base == chat_base("--url", base, "KEY")


@pytest.mark.parametrize("url", [
    "http://user:sk-secret@h/v1", "https://h/v1?key=sk-secret", "http://h:x", "h:80", "http://",
])
def test_what_is_no_address_or_holds_a_key_is_one_line_without_it(url):
    with pytest.raises(ConfigError, match="--url") as refused:
        chat_base("--url", url, "KEY")
    assert "sk-secret" not in str(refused.value)


def test_which_addresses_are_this_machines_alone():
    hosts = ("localhost", "127.9.9.9", "::1", "0.0.0.0", "10.0.0.1", "localhost.example", "")
    assert [is_loopback(host) for host in hosts] == [True] * 3 + [False] * 4
