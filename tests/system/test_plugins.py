"""Classes by name: from the pack, from modules and from files; what is wrong is one line that names the variable."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from mem_agent.system.errors import ConfigError
from mem_agent.system.plugins import absolute_name, load_class, make, name_by_content, parse_settings


class Base(ABC):
    @abstractmethod
    def work(self): ...

    @abstractmethod
    def rest(self): ...


class Known(Base):
    def work(self):
        return "known"

    rest = work


WHOLE = f"""
from dataclasses import dataclass
from typing import Annotated, Literal
from {__name__} import Base

@dataclass(frozen=True)
class Settings:
    most: int = 3

class Mine(Base):
    def work(self): return Settings().most
    rest = work

class Half(Base):
    def work(self): return 1

class Alien:
    def work(self): return 1
    def rest(self): return 1

thing = 7
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "own place" / "mine.py"
    path.parent.mkdir()
    path.write_text(WHOLE)
    return path


def load(name):
    return load_class("AGENT", name, {"known": Known}, Base)


def test_a_known_name_and_a_class_of_a_file_and_of_a_module(file, monkeypatch):
    assert load("known") is Known
    mine = load(f"{file}:Mine")
    assert mine().work() == 3 and mine is load(f"{file}:Mine")
    monkeypatch.syspath_prepend(str(file.parent))
    assert load("mine:Mine")().work() == 3


BAD = [
    ("other", "known"), (":Mine", "known"), ("no.such.module:Mine", "PYTHONPATH"),
    ("/nowhere/mine.py:Mine", "No such file"), ("{broken}:Mine", "ZeroDivisionError"),
    ("{file}:Absent", "Absent"), ("{file}:thing", "thing"), ("{file}:Half", "rest"), ("{file}:Alien", "derive"),
]


@pytest.mark.parametrize(("name", "named"), BAD)
def test_what_cannot_be_used_names_the_variable_and_the_reason(file, name, named):
    (file.parent / "broken.py").write_text("1 / 0")
    name = name.replace("{file}", str(file)).replace("{broken}", str(file.parent / "broken.py"))
    with pytest.raises(ConfigError) as error:
        load(name)
    assert f"AGENT={name!r}" in str(error.value) and named in str(error.value)


def test_names_travel_to_other_working_directories(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert absolute_name("mine.py:Mine") == f"{file}:Mine"
    assert absolute_name("mine:Mine") == "mine:Mine" and absolute_name("known") == "known"


def test_the_same_file_elsewhere_has_the_same_digest(file, tmp_path):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_bytes(file.read_bytes())
    assert name_by_content(f"{elsewhere}:Mine") == name_by_content(f"{file}:Mine") != f"{file}:Mine"
    assert [name_by_content(name) for name in ("known", "mine:Mine")] == ["known", "mine:Mine"]
    elsewhere.write_text(WHOLE + "\n")
    assert name_by_content(f"{elsewhere}:Mine") != name_by_content(f"{file}:Mine")


@dataclass(frozen=True)
class Settings:
    most: int = 3
    share: float = 0.5
    style: str = ""
    loud: bool = False
    pages: Annotated[int, Field(ge=1)] = 1
    kind: Literal["plain", "rich"] = "plain"


def test_settings_have_the_types_of_their_defaults():
    assert parse_settings(Settings, "", "AGENT_ARGS") == Settings()
    text = "most=5 style='short and plain' loud=yes share=.25 pages=2 kind=rich"
    assert parse_settings(Settings, text, "AGENT_ARGS") == Settings(5, 0.25, "short and plain", True, 2, "rich")


@pytest.mark.parametrize(("text", "named"), [
    ("least=5", "most=3"), ("most", "'most'"), ("most=few", "most='few'"), ("loud=maybe", "loud"),
    ("style='open", "quot"), ("pages=0", "pages='0'"), ("kind=poor", "kind='poor'"),
])
def test_bad_settings_name_the_variable(text, named):
    with pytest.raises(ConfigError, match="AGENT_ARGS") as error:
        parse_settings(Settings, text, "AGENT_ARGS")
    assert named in str(error.value)


@dataclass
class Positive:
    most: int = 3

    def __post_init__(self):
        if self.most < 1:
            raise ValueError("most must be positive")


def test_settings_and_classes_that_cannot_be_made_name_the_variable():
    with pytest.raises(ConfigError, match=r"AGENT_ARGS.*most must be positive"):
        parse_settings(Positive, "most=0", "AGENT_ARGS")
    with pytest.raises(ConfigError, match="TASK='own'"):
        make("TASK", "own", Known, "settings")
