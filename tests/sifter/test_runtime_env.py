"""A Ray runtime environment of somebody else gives variables of a bounded length, or one line."""

import pytest

from mem_agent.sifter.stages.runtime_env import LONGEST, NoRuntimeEnv, main, read_runtime_env

ALIASES = "\n".join(["x0: &x0 [a, a]", *(f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}]" for n in range(1, 30)),
                     "env_vars: {A: *x29}"])
LARGE = f"env_vars: {{A: {'x' * 60000}, B: {'y' * 6000}}}"
TEXT = f"t: &t {'x' * 60000}\nenv_vars: {{" + ", ".join(f"A{n}: *t" for n in range(1000)) + "}"


@pytest.mark.parametrize("text,found", [
    ("env_vars: {A: b, B: 0.60, C: 3, D: yes, E: 1:30}", {"A": "b", "B": "0.60", "C": "3", "D": "yes", "E": "1:30"}),
    ("env_vars:\n  RUN_DATE: 2026-11-23\n  A: b\n", {"RUN_DATE": "2026-11-23", "A": "b"}),
    ("env_vars:\n  NCCL_DEBUG:\n  A: b\n  B: ~", {"NCCL_DEBUG": "", "A": "b", "B": ""}),
    ("base: &b {A: x, C: y}\nenv_vars:\n  <<: *b\n  C: z\n", {"A": "x", "C": "z"}),
    ("base: &b {A: x}\nenv_vars: *b", {"A": "x"}),
    ("pip: &p [torch, ray]\nenv_vars: {A: b}\nconda: {dependencies: [{pip: *p}]}\n", {"A": "b"}),
    ("env_vars:", {}), ("pip: [x]", {}), ("", {}),
])
def test_variables_are_texts_as_they_are_written(tmp_path, text, found):
    (tmp_path / "env.yaml").write_text(text)
    assert read_runtime_env(tmp_path / "env.yaml") == found


@pytest.mark.parametrize("text,told", [
    (ALIASES, "aliases of more than 1048576 characters; write"), (TEXT, "aliases of more than 1048576 characters"),
    (LARGE, f"env_vars of more than {LONGEST} characters"), ("env_vars: &a {A: *a}", "an alias of what it stands in"),
    ("env_vars: [A]", "no YAML file with env_vars"), ("- A", "no YAML file"), ("env_vars: x", "no YAML file"),
    ("env_vars: {A: [b]}", "A is no text; write a text, a number or nothing"), ("env_vars: {A: {}}", "A is no text"),
    ('env_vars: {A: "b\\0LD_PRELOAD=x"}', "A is no text"), ('env_vars: {A: "\\ud800"}', "no YAML file"),
    ("env_vars: {A=B: c}", "'A=B' is no name of a variable"), ("env_vars: {1: c}", "'1' is no name"),
    ("env_vars: {Ä: c}", "'Ä' is no name"), ("env_vars: {A: b", "no YAML file"),
])
def test_another_file_is_one_line(tmp_path, text, told, capsys):
    path = tmp_path / "env.yaml"
    path.write_text(text)
    with pytest.raises(NoRuntimeEnv):
        read_runtime_env(path)
    assert main(str(path)) == 1
    said, wrong = capsys.readouterr()
    assert (said, wrong.count("\n")) == ("", 1) and wrong.startswith(f"error: RUNTIME_ENV='{path}': {told}")
