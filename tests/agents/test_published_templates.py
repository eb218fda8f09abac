"""``mem-agent templates`` on checkouts with invented texts: what is written, what is refused; nothing runs."""

import os
import re

import pytest
import yaml

from mem_agent.agents import all_wording
from mem_agent.agents.prompts import load_prompts
from mem_agent.agents.published.command import commit_of, main
from mem_agent.agents.published.sets import SETS
from mem_agent.agents.published.slots import (
    SlotError,
    Style,
    as_prompt,
    as_wording,
    halves,
    renamed,
    split,
)
from mem_agent.agents.published.source import PublishedError, text_in
from mem_agent.ruler.wording import load_wording
from mem_agent.tests.helpers.published_checkout import OF, RAN, know, make_checkout

BASE = {name: one.repository for name, one in SETS.items()}
MEMORY = "Note {section} beside {memory} for {problem} \nNow:\n"
REVISIT = "Note {section} beside {memory} and {recalled} for {problem} \nNow:\n"
CHATS = "Chats: {section}\n\nAsked {problem}"
SENTENCES = {
    "niah_many_prefix": " All odd {kinds} of {keys} are",
    "vt_prefix": " {count} hold {value}: ", "cwe_prefix": " The ten:", "fwe_prefix": " The three:",
    "qa_prefix": " It is",
    "needle": "An odd {kinds} of {key} is {value}.", "noise": "Rain. Wind.",
}
WRITTEN = {
    "memagent-train": {"memory": MEMORY, "final": "From {memory} say {problem} as \\boxed{{}}\n",
                       "empty_memory": "None so far"},
    "memagent-eval": {"memory": MEMORY, "final": "From {memory} say {problem} as (the answer)\n",
                      "empty_memory": "None so far", "direct": "In {section} find {problem} (the answer)"},
    "memagent-boxed": {"memory": MEMORY, "final": "From {memory} say {problem} as \\boxed{}\n",
                       "empty_memory": "None so far", "direct": "In {section} find {problem} in \\boxed{{}}"},
    "rememr1-train": {"revisit": REVISIT, "empty_memory": "None so far", "no_recall": "None came",
                      "revisit_final": "From {memory} and {recalled} say {problem} in \\boxed{{}}\n"},
    "rememr1-eval": {"revisit": REVISIT, "empty_memory": "None so far", "no_recall": "None came",
                     "revisit_final": "From {memory} and {recalled} say {problem} in \\boxed{}\n"},
    "memsifter-chat": {"direct": CHATS, "rag": CHATS},
    "memagent-ruler": SENTENCES | {
        "niah_one": "A odd {kind} is there; they is found. What is odd {kind} of {keys}?",
        "niah_one_prefix": " All odd {kind} of {keys} are",
        "niah_many": "Some odd {kinds} are there; they are found. What are all odd {kinds} of {keys}?",
        "vt": "Follow. Who holds {value}?", "cwe": "Count. Which ten?", "fwe": "Count codes. Which three?",
        "qa": "Look. Say: {question}",
    },
    "ruler": SENTENCES | {
        "niah_one_document": "A odd {kind} is there; they is found.\n{document}",
        "niah_one": " What is odd {kind} of {keys}?",
        "niah_one_prefix": " All odd {kind} of {keys} is",
        "niah_many_document": "Some odd {kinds} are there; they are found.\n{document}",
        "niah_many": " What are all odd {kinds} of {keys}?",
        "vt_document": "Follow.\n{document}", "vt": " Who holds {value}?",
        "cwe_document": "Count.\n{document}", "cwe": " Which ten?",
        "fwe_document": "Count codes.\n{document}", "fwe": " Which three?",
        "qa_document": "Look.\n{document}", "qa": " Say: {question}",
    },
}


@pytest.fixture
def checkout(tmp_path):
    def make(kind):
        return make_checkout(tmp_path / kind, kind)

    return make


@pytest.fixture
def run(tmp_path, capsys):
    """The command; gives its exit code, what it printed, and what is in the file it should write."""

    def command(folder, *flags, output=tmp_path / "out.yaml"):
        code = main(["--checkout", str(folder), "--output", str(output), *flags])
        printed = capsys.readouterr()
        assert not list(tmp_path.rglob(RAN)), "the checkout was run"
        return code, printed, yaml.safe_load(output.read_text()) if output.is_file() else None

    return command


def refused(done):
    code, printed, written = done
    assert code == 1 and written is None and not printed.out
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    return printed.err


# --- what is written ------------------------------------------------------------------------------------------------


def test_every_set_has_its_texts_here():
    assert set(WRITTEN) == set(SETS)


@pytest.mark.parametrize("name", SETS)
def test_a_known_checkout_is_written_as_the_pack_takes_it(monkeypatch, checkout, run, tmp_path, name):
    know(monkeypatch, name, folder := checkout(OF[name]))
    code, printed, written = run(folder, "--of", name)
    assert code == 0 and not printed.err and written == WRITTEN[name]
    out = tmp_path / "out.yaml"
    assert printed.out.endswith(f"of {BASE[name]} ({name}); use it as {SETS[name].used.format(out)}\n")
    if SETS[name].for_prompts:
        prompts = load_prompts("section_first", str(out), all_wording())
        assert all(written[key] in (*vars_of(prompts), *prompts.own.values()) for key in written)
    else:
        wording = load_wording(out)
        assert {key: getattr(wording, key) for key in written} == written


def vars_of(prompts):
    return prompts.memory, prompts.final, prompts.empty_memory, prompts.no_recall


FIRST = [("memagent", "memagent-train"), ("rememr1", "rememr1-train"), ("ruler", "ruler"),
         ("memsifter", "memsifter-chat")]


@pytest.mark.parametrize("kind,name", FIRST)
def test_a_checkout_is_recognised(monkeypatch, checkout, run, kind, name):
    know(monkeypatch, name, folder := checkout(kind))
    code, printed, written = run(folder)
    assert code == 0 and written == WRITTEN[name] and f"({name});" in printed.out


def test_the_file_says_where_each_text_is_from(monkeypatch, checkout, run, tmp_path):
    know(monkeypatch, "memagent-train", folder := checkout("memagent"))
    run(folder)
    head = [line for line in (tmp_path / "out.yaml").read_text().splitlines() if line.startswith("#")]
    assert head[0].startswith("# Texts of https://github.com/BytedTsinghua-SIA/MemAgent, under its licence;")
    sha256 = SETS["memagent-train"].templates["memory"].sha256
    assert head[1] == f"# memory: recurrent/impls/memory.py TEMPLATE sha256 {sha256}" and len(head) == 4


def test_the_bytes_depend_on_the_texts_alone(monkeypatch, checkout, run, tmp_path):
    know(monkeypatch, "memagent-eval", folder := checkout("memagent"))
    run(folder, "--of", "memagent-eval", output=tmp_path / "one.yaml")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("a" * 40 + "\n")
    path = folder / "taskutils/memory_eval/utils/recurrent.py"
    path.write_text("# more\n" + path.read_text())
    run(folder, "--of", "memagent-eval", output=tmp_path / "two.yaml")
    assert (tmp_path / "one.yaml").read_bytes() == (tmp_path / "two.yaml").read_bytes()


ODD = 'Tab\there, é, 中, "quotes", \'more\', # no comment, : colon, \\, a blank \n {prompt}{memory}{chunk}\n\n'


def test_every_character_survives_the_file(monkeypatch, checkout, run):
    path = (folder := checkout("memagent")) / "recurrent/impls/memory.py"
    path.write_text(re.sub(r'TEMPLATE = """.*?"""', lambda _: f"TEMPLATE = {ODD!r}", path.read_text(), flags=re.S))
    know(monkeypatch, "memagent-train", folder)
    _, _, written = run(folder)
    assert written["memory"] == ODD.replace("{prompt}", "{problem}").replace("{chunk}", "{section}")


# --- other versions -------------------------------------------------------------------------------------------------


def changed(folder, file, old, new):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))


def test_another_text_is_refused_with_both_hashes_and_the_way_out(monkeypatch, checkout, run):
    know(monkeypatch, "memagent-train", folder := checkout("memagent"))
    known = SETS["memagent-train"].templates["memory"].sha256
    changed(folder, "recurrent/impls/memory.py", "Note {chunk}", "Read {chunk}")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("abcdef0123" * 4)
    message = refused(run(folder))
    path = folder / "recurrent/impls/memory.py"
    assert re.fullmatch(
        rf"error: {path} at abcdef0: TEMPLATE has sha256 ([0-9a-f]{{16}}), that of 76b7a65 has {known[:16]}; "
        r"its slots are all there: check out 76b7a65 of BytedTsinghua-SIA/MemAgent, or add --any-version to write it "
        r"all the same\n", message) and known[:16] not in message.partition(", that of")[0]


def test_any_version_writes_it_and_says_so(monkeypatch, checkout, run, tmp_path):
    know(monkeypatch, "memagent-train", folder := checkout("memagent"))
    changed(folder, "recurrent/impls/memory.py", "Note {chunk}", "Read {chunk}")
    code, printed, written = run(folder, "--any-version")
    assert code == 0 and written["memory"] == MEMORY.replace("Note", "Read")
    assert printed.err.startswith("warning: ") and printed.err.endswith("; written all the same\n")
    assert printed.err.count("\n") == 1
    lines = (tmp_path / "out.yaml").read_text().splitlines()
    assert [line.endswith(", not that of 76b7a65") for line in lines[:4]] == [False, True, False, False]


TEMPLATE_OF = "recurrent/impls/memory.py: TEMPLATE"
BROKEN = [
    ("memagent-train", "recurrent/impls/memory.py", "Note {chunk}", "Note it", f"{TEMPLATE_OF} lacks the slot chunk,"),
    ("memagent-train", "recurrent/impls/memory.py", "Note {chunk}", "Note {chunk} {extra}",
     f"{TEMPLATE_OF} has a slot that nothing fills: extra,"),
    ("memagent-train", "recurrent/impls/memory.py", "{memory} for", "{old_memory} for",
     f"{TEMPLATE_OF} lacks the slot memory and has a slot that nothing fills: old_memory,"),
    ("memagent-train", "recurrent/impls/memory.py", "Note {chunk}", "Note {chunk} {chunk}",
     f"{TEMPLATE_OF} repeats the slot chunk,"),
    ("memagent-eval", "taskutils/memory_eval/utils/recurrent.py", "Note {chunk}", "Note {chunk} {",
     "recurrent.py: TEMPLATE is no template ("),
    ("memagent-eval", "taskutils/memory_eval/utils/recurrent.py", "Note {chunk}", "Note {chunk!r}",
     "recurrent.py: TEMPLATE has a slot {chunk} of a form of its own,"),
    ("memagent-eval", "taskutils/memory_eval/utils/openai_api.py", "$Q$", "$QUESTION$",
     "openai_api.py: template_0shot lacks the slot Q and has a slot that nothing fills: QUESTION,"),
    ("rememr1-eval", "taskutils/memory_eval/utils/rememr1.py", "and {recalled_memory} for", "for",
     "rememr1.py: TEMPLATE lacks the slot recalled_memory,"),
    ("memagent-ruler", "taskutils/memory_data/synthetic/constants.py", "holds {query}", "holds it",
     "constants.py: TASKS/variable_tracking/template lacks the slot query, so `vt` cannot"),
    ("ruler", "scripts/data/synthetic/constants.py", r"Look.\n{context}\n", r"Look.\n{context}",
     "constants.py: TASKS/qa/template has no line's end behind the slot document, so `qa_document` cannot"),
    ("memsifter-chat", "configs/chat_default_prompt.yaml", "{history_chats}", "{history}",
     "prompt_template/user_prompt_text lacks the slot history_chats and has a slot that nothing fills: history,"),
]


@pytest.mark.parametrize("flags", [(), ("--any-version",)], ids=["", "any"])
@pytest.mark.parametrize("name,file,old,new,message", BROKEN, ids=lambda value: str(value)[:30])
def test_other_slots_are_refused_whatever_is_allowed(monkeypatch, checkout, run, name, file, old, new, message, flags):
    know(monkeypatch, name, folder := checkout(OF[name]))
    changed(folder, file, old, new)
    line = refused(run(folder, "--of", name, *flags))
    assert message in line
    assert f"that of {SETS[name].commit} of {BASE[name]} has " in line and "it has sha256 " in line


def test_a_refusal_leaves_the_file_of_before(checkout, run, tmp_path):
    (tmp_path / "out.yaml").write_text("final: mine")
    code, _, written = run(checkout("memagent"))
    assert code == 1 and written == {"final": "mine"}


# --- what is missing ------------------------------------------------------------------------------------------------


def missing(folder, how):
    path = folder / "recurrent/impls/memory.py"
    if how == "file":
        path.unlink()
    elif how == "name":
        changed(folder, "recurrent/impls/memory.py", "TEMPLATE = ", "PROMPT = ")
    elif how == "made":
        changed(folder, "recurrent/impls/memory.py", 'TEMPLATE = """', 'TEMPLATE = more + """')
    elif how == "two":
        path.write_text(path.read_text() + "\nTEMPLATE = 'another'\n")
    elif how == "syntax":
        path.write_text("TEMPLATE = (")
    elif how == "bytes":
        path.write_bytes(b"TEMPLATE = '\xff'")
    elif how == "call":
        changed(folder, "recurrent/impls/memory.py", 'encode("None so far", ', "encode(text, ")


WHAT = [
    ("file", "memory.py: no such file, of which `memory` is made"),
    ("name", "memory.py: has no text TEMPLATE, of which `memory` is made"),
    ("made", "memory.py: has no text TEMPLATE, of which `memory` is made"),
    ("two", "memory.py: has several texts TEMPLATE, of which `memory` is made"),
    ("syntax", "memory.py: cannot be read: SyntaxError: "),
    ("bytes", "memory.py: cannot be read: UnicodeDecodeError: "),
    ("call", "memory.py: has no text NO_MEMORY_TOKENS(), of which `empty_memory` is made"),
]


@pytest.mark.parametrize("how,message", WHAT)
def test_what_a_checkout_lacks_is_named_with_the_remedy(checkout, run, how, message):
    missing(folder := checkout("memagent"), how)
    line = refused(run(folder, "--of", "memagent-train", "--any-version"))
    assert message in line and line.endswith("; check out 76b7a65 of BytedTsinghua-SIA/MemAgent\n")


def test_a_yaml_file_that_is_empty_has_no_text(checkout, run):
    path = (folder := checkout("memsifter")) / "configs/chat_default_prompt.yaml"
    for content, message in [("", "has no text prompt_template/"), ("a: [", "cannot be read: NotYaml: ")]:
        path.write_text(content)
        assert message in refused(run(folder))


def test_a_folder_that_is_no_checkout_and_one_that_is_none(run, tmp_path):
    line = refused(run(tmp_path))
    assert "no checkout of BytedTsinghua-SIA/MemAgent, syr-cn/ReMemR1, NVIDIA/RULER, plageon/MemSifter" in line
    assert "--of memagent-train|" in line
    assert "/nowhere: no such folder; name a git clone of BytedTsinghua" in refused(run(tmp_path / "nowhere"))


def test_an_output_that_is_no_file_is_refused(monkeypatch, checkout, run, tmp_path):
    know(monkeypatch, "memagent-train", folder := checkout("memagent"))
    assert "is a folder and stays as it is" in refused(run(folder, output=tmp_path))


def test_what_a_set_is_called_is_checked_first(run, tmp_path):
    with pytest.raises(SystemExit) as end:
        run(tmp_path, "--of", "memagent")
    assert end.value.code == 2


HEADS = [
    ({"HEAD": "f" * 40 + "\n"}, "f" * 40),
    ({"HEAD": "ref: refs/heads/main\n", "refs/heads/main": "a" * 40 + "\n"}, "a" * 40),
    ({"HEAD": "ref: refs/heads/main\n", "packed-refs": f"# pack-refs\n{'b' * 40} refs/heads/main\n"}, "b" * 40),
    ({"HEAD": "ref: refs/heads/main\n"}, ""),
    ({"HEAD": "ref: refs/heads/main\n", "packed-refs": f"{'b' * 40} refs/heads/other\n"}, ""),
    ({}, ""),
    ({"HEAD": "f" * 2**17}, ""),
    ({"HEAD": "ref: ../../other\n", "../../other": "not of this clone"}, ""),
]


@pytest.mark.parametrize("files,commit", HEADS)
def test_the_commit_of_a_clone_is_read_from_its_files(tmp_path, files, commit):
    for name, content in files.items():
        (tmp_path / "clone" / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clone" / ".git" / name).write_text(content)
    assert commit_of(tmp_path / "clone") == commit


# --- the pieces -----------------------------------------------------------------------------------------------------

AS = {"a": "x", "b": "y"}
STYLES = [
    (Style.FORMAT, r"{a} {{}} }} {b}", r"{x} {} } {y}", r"{x} {{}} }} {y}"),
    (Style.TOKENS, r"{a} {{}} {1} {b}", r"{x} {{}} {1} {y}", r"{x} {{{{}}}} {{1}} {y}"),
    (Style.PLAIN, r"{a} {b}", r"{a} {b}", r"{{a}} {{b}}"),
]


@pytest.mark.parametrize("style,text,prompt,wording", STYLES)
def test_a_slot_is_found_as_the_published_code_finds_it(style, text, prompt, wording):
    pieces = renamed(split(text, style), {} if style is Style.PLAIN else AS, once=True)
    assert (as_prompt(pieces), as_wording(pieces)) == (prompt, wording)


def test_of_many_odd_slots_the_first_are_told():
    with pytest.raises(SlotError, match=r"fills: s0, s1, s2, s3, s4, s5, s6, s7$"):
        renamed([("", f"s{number}") for number in range(20_000)], {}, once=True)


def test_marks_of_str_replace():
    pieces = renamed(split("$A$ {{}} $5 $B$", Style.REPLACE), {"A": "x", "B": "y"}, once=True)
    assert as_prompt(pieces) == "{x} {{}} $5 {y}"


@pytest.mark.parametrize("text,document,question", [
    ("Look: {d}\nWho is {q}?", "Look: {d}", "Who is {q}?"), ("{d}\n\n\nWho?", "{d}\n\n", "Who?"),
    ("{d}\n{q}", "{d}", "{q}"),
])
def test_one_newline_joins_document_and_question(text, document, question):
    around, behind = halves(split(text, Style.FORMAT), "d")
    assert (as_prompt(around), as_prompt(behind)) == (document, question)
    assert as_prompt(around) + "\n" + as_prompt(behind) == text


@pytest.mark.parametrize("text", ["{d} Who?", "{d}{q}", "{d}"])
def test_a_question_that_no_newline_parts_from_the_document_is_refused(text):
    with pytest.raises(SlotError, match="no line's end behind the slot d"):
        halves(split(text, Style.FORMAT), "d")


SOURCES = [
    ("x.py", "def f():\n    A = 'one'", "A", "one"),
    ("x.py", "A: str = 'one'", "A", "one"),
    ("x.py", "A = B = 'one'", "B", "one"),
    ("x.py", "A = 'one' 'two'", "A", "onetwo"),
    ("x.py", "A = 'one'\nA = 'one'\nA = 3", "A", "one"),
    ("x.py", "A = {'b': {'c': 'one'}, 'd': 1}", "A/b/c", "one"),
    ("x.py", "A = f('one', g())", "A()", "one"),
    ("x.yaml", "a: {b: one}", "a/b", "one"),
]


@pytest.mark.parametrize("file,content,name,text", SOURCES)
def test_where_a_text_may_stand(tmp_path, file, content, name, text):
    (tmp_path / file).write_text(content)
    assert text_in(tmp_path, file, name) == text


NO_TEXTS = [("A = f('one')", "A"), ("A = 'one'", "A()"), ("A = f()", "A()"), ("A += 'x'", "A"),
            ("A = {'b': x}", "A/b"), ("A = {1: 2, 'b': 'one'}", "A/b"), ("A = {'b': 1}", "A/b"), ("A = 'one'", "A/b")]


@pytest.mark.parametrize("content,name", NO_TEXTS)
def test_what_is_no_text(tmp_path, content, name):
    (tmp_path / "x.py").write_text(content)
    with pytest.raises(PublishedError, match=r"x\.py: has no text A"):
        text_in(tmp_path, "x.py", name)


HOSTILE = {
    "brackets": (lambda file: file.write_text("A = " + "(" * 5000 + ")" * 5000), "SyntaxError: |nested too deep"),
    "signs": (lambda file: file.write_text("A = " + "-" * 20_000 + "1"), "nested too deep"),
    "an f-string that takes minutes": (lambda file: file.write_text(f"A = f'{'{a}' * 350_000}'"),
                                       "ValueError: more than 65536 bytes"),
    "a device": (lambda file: file.symlink_to("/dev/zero"), "is a link out of the checkout"),
    "a pipe": (os.mkfifo, "is no regular file"),
    "a link out of it": (lambda file: file.symlink_to("../other.py"), "is a link out of the checkout"),
    "a link to itself": (lambda file: file.symlink_to(file.name), "OSError: "),
    "a link to nothing": (lambda file: file.symlink_to("none.py"), "no such file"),
}


@pytest.mark.parametrize("made,message", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_would_hurt_ends_in_a_line(tmp_path, made, message):
    (tmp_path / "other.py").write_text("A = 'one'")
    (tmp_path / "checkout").mkdir()
    made(tmp_path / "checkout" / "x.py")
    with pytest.raises(PublishedError, match=rf"x\.py: (cannot be read: .*)?({message})"):
        text_in(tmp_path / "checkout", "x.py", "A")


def test_half_a_character_ends_in_a_line(checkout, run):
    file = checkout("memagent") / "recurrent/impls/memory.py"
    file.write_text(file.read_text().replace("Note", r"\ud800"))
    line = refused(run(file.parents[2], "--of", "memagent-train", "--any-version"))
    assert "memory.py: TEMPLATE has half a character" in line
