"""Classes by name: from the pack, from modules and from files; what is wrong is one line that names the variable."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import pytest

from mem_agent.system.errors import ConfigError
from mem_agent.system.plugins import NoSettings, absolute_name, load_class, make, name_by_content, parse_settings


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
from {__name__} import Base

@dataclass(frozen=True)
class Settings:
    most: int = 3

class Mine(Base):
    def work(self): return Settings().most
    rest = work

class Half(Base):
    def work(self): return 1

class NoSelf(Mine):
    def work(): return 1

class Static(Mine):
    @staticmethod
    def work(*any): return 1

class More(Mine):
    def work(self, needed): return 1

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
    assert load("mine:Mine")().work() == 3 and load(f"{file}:Static").work() == 1


BAD = [
    ("other", "AGENT='other': allowed: known, package.module:Name, or file.py:Name"),
    (":Mine", "allowed: known"),
    ("no.such.module:Mine", "no.such.module cannot be imported (ModuleNotFoundError: No module named 'no'); "
                           "add its folder to PYTHONPATH, or name the file"),
    ("/nowhere/mine.py:Mine", "cannot be imported (FileNotFoundError: /nowhere/mine.py: no such file)"),
    ("{file}:Absent", "has no class Absent"),
    ("{file}:thing", "has no class thing"),
    ("{file}:Half", "Half has no method rest, see"),
    ("{file}:NoSelf", "NoSelf.work cannot be called as work()"),
    ("{file}:More", "More.work cannot be called as work()"),
    ("{file}:Alien", "Alien does not derive from"),
]


@pytest.mark.parametrize("name,message", BAD)
def test_what_cannot_be_used_is_one_line(file, name, message):
    with pytest.raises(ConfigError) as error:
        load(name.replace("{file}", str(file)))
    assert message in str(error.value) and "\n" not in str(error.value)


RAISING = [("1 / 0", "ZeroDivisionError"), ("def (", "SyntaxError"), ("import sys; sys.exit(0)", "SystemExit: 0")]


@pytest.mark.parametrize("content,reason", RAISING)
def test_a_file_that_raises_is_one_line_each_time(tmp_path, content, reason):
    path = tmp_path / "broken.py"
    path.write_text(content)
    for _ in range(2):
        with pytest.raises(ConfigError, match=reason) as error:
            load(f"{path}:Mine")
        assert "\n" not in str(error.value)


def test_names_travel_to_other_working_directories(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert absolute_name("mine.py:Mine") == f"{file}:Mine"
    assert absolute_name("mine:Mine") == "mine:Mine" and absolute_name("known") == "known"


def test_a_changed_file_has_another_digest(file):
    before = name_by_content(f"{file}:Mine")
    file.write_text(WHOLE + "\n")
    assert before != name_by_content(f"{file}:Mine")


def test_the_same_file_elsewhere_has_the_same_digest(file, tmp_path):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_bytes(file.read_bytes())
    assert name_by_content(f"{elsewhere}:Mine") == name_by_content(f"{file}:Mine") != f"{file}:Mine"
    assert [name_by_content(name) for name in ("known", "mine:Mine")] == ["known", "mine:Mine"]


@dataclass(frozen=True)
class Settings:
    most: int = 3
    share: float = 0.5
    style: str = ""
    loud: bool = False


def test_settings_have_the_types_of_their_defaults():
    assert parse_settings(Settings, "", "AGENT_ARGS") == Settings()
    text = "most=5 style='short and plain' loud=yes share=.25"
    assert parse_settings(Settings, text, "AGENT_ARGS") == Settings(5, 0.25, "short and plain", True)


@pytest.mark.parametrize("text,message", [
    ("least=5", "AGENT_ARGS: 'least=5': allowed: most=3 share=0.5 style='' loud=False"),
    ("most", "AGENT_ARGS: 'most': allowed:"),
    ("most=few", "AGENT_ARGS: most='few': allowed: a whole number"),
    ("loud=maybe", "AGENT_ARGS: loud='maybe': allowed: 1 or 0"),
    ("style='open", "No closing quotation; quote it as in a shell"),
])
def test_bad_settings_are_one_line(text, message):
    with pytest.raises(ConfigError) as error:
        parse_settings(Settings, text, "AGENT_ARGS")
    assert message in str(error.value) and "\n" not in str(error.value)


@dataclass
class Positive:
    most: int = 3

    def __post_init__(self):
        if self.most < 1:
            raise ValueError("most must be positive")


@dataclass
class Listed:
    names: tuple = ()


@dataclass
class Needed:
    most: int


NO_SETTINGS = [
    (Known, "", "Known is no dataclass"),
    (Listed, "", "Listed.names needs a default: a bool, int, float or str"),
    (Needed, "", "Needed.most needs a default: a bool, int, float or str"),
    (Positive, "most=0", "AGENT_ARGS='most=0': cannot be made (ValueError: most must be positive)"),
]


@pytest.mark.parametrize("kind,text,message", NO_SETTINGS)
def test_settings_that_cannot_be_made_are_one_line(kind, text, message):
    with pytest.raises(ConfigError) as error:
        parse_settings(kind, text, "AGENT_ARGS")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_class_that_cannot_be_made_is_one_line():
    with pytest.raises(ConfigError, match=r"TASK='own': cannot be made \(TypeError: .* arguments\)"):
        make("TASK", "own", Known, "settings")


def test_what_a_file_prints_is_not_what_the_command_prints(tmp_path, capsys):
    (tmp_path / "loud.py").write_text(WHOLE + "print('loud')")
    load(f"{tmp_path}/loud.py:Mine")
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err == "loud\n"


def test_settings_have_a_bound():
    with pytest.raises(ConfigError, match="characters; allowed"):
        parse_settings(NoSettings, "a" * 100_000, "NOTES_ARGS")
