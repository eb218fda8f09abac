"""Settings, by environment and by file: also those that somebody else has made."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from typing import Any

from mem_agent.agents.prompts import load_prompts
from mem_agent.checkpoints.agent_settings import settings_of_run
from mem_agent.checkpoints.hf_model import config_for_model
from mem_agent.checkpoints.model_card import card_of_run, read_card, with_evaluation
from mem_agent.config import Config, load_yaml
from mem_agent.data.document_store import row_slice, store_folder
from mem_agent.data.math_questions import read_countdown, read_gsm8k, read_math
from mem_agent.data.options import parse_lengths
from mem_agent.rewards.marginal_utility import read_tiers
from mem_agent.ruler.wording import load_wording as ruler_wording
from mem_agent.sessions.wording import load_wording
from mem_agent.sifter.rounds.data_recipe import read_recipe
from mem_agent.sifter.stages.runtime_env import LONGEST, read_runtime_env
from mem_agent.system.errors import MemAgentError
from mem_agent.system.plugins import load_class, parse_settings
from mem_agent.system.server_url import chat_base, checked_url
from mem_agent.tasks import TASKS, load_task
from mem_agent.tests.fuzz.target import PACK, Target, scratch, written

YAML = (
    b"mem_agent:", b"\n  ", b": ", b"- ", b"&a ", b"*a", b"!!int ", b"!!python/name:os.system ", b"[", b"{", b"|\n",
    b"'", b"2020-13-45", b"0x", b"1e9", b"~", b"<<: ", b"!!timestamp ", b"!!float ", b"? ", b"---\n", b"%YAML 9", b'"',
    b"#", b"9" * 30, b"\t", b"!!bool ", b"!!set ", b"!!omap ", b"!!binary ", b"{problem}", b"{section}", b"{memory}",
)
NAMES = ("AGENT", "TASK", "TASK_ARGS", "MEM_CHUNK_TOKENS", "EVAL_DATA", "STYLE", "N_SAMPLES_PER_PROMPT", "HF_CKPT",
         "MEM_THINKING", "SEED", "LR", "MEM_PROMPTS", "BASE_URL", "EVAL_TOP_P", "MEM_REWARD", "SAVE_PATH")


def _settings_file(data: bytes) -> None:
    """``mem_agent.yaml`` of a run, of a model, and on a model's card."""
    folder = written("model/mem_agent.yaml", data).parent
    config = load_yaml(folder / "mem_agent.yaml")
    assert Config.from_mapping(config.to_mapping()) == config
    card_of_run(folder, "iter_1", "m")
    _refused_or(lambda: settings_of_run(folder))
    _refused_or(lambda: config_for_model(folder, {}))  # which is not told what only a run is


def _settings_lines(data: bytes) -> None:
    """An environment: ``NAME=value`` a line."""
    lines = [line.partition("=") for line in data.decode("utf-8", "replace").replace("\0", "").split("\n")]
    config = Config.from_env({name: value for name, _, value in lines})
    config.with_absolute_paths(), config.to_yaml(), config.eval_files, config.seed_for("a")
    load_task(config.tasks[0], "") if config.tasks[0] in TASKS else None


def _values(data: bytes) -> None:
    """Settings that are little languages of their own."""
    text = data.decode("utf-8", "replace")
    with suppress(ValueError):  # which AnswerUtilitySettings puts into a line with the variable
        read_tiers(text)
    for read in (
        lambda: parse_settings(TASKS["gsm8k"].Settings, text, "TASK_ARGS"), lambda: parse_lengths(text),
        lambda: checked_url("BASE_URL", text, "KEY"), lambda: chat_base("URL", text, "KEY"),
        lambda: row_slice(text),
        lambda: store_folder(text), lambda: None if ":" in text else load_class("TASK", text, TASKS, object),
    ):
        _refused_or(read)


def _refused_or(read: Any) -> None:
    """All of several readers are to see the input, so a refusal of one is not the end."""
    with suppress(MemAgentError):
        read()


def _prompts(data: bytes) -> None:
    path = written("prompts.yaml", data)
    for read in (
        lambda: load_prompts("section_first", str(path)), lambda: load_wording.__wrapped__(str(path)),
        lambda: ruler_wording(path), lambda: read_recipe(path),
    ):
        _refused_or(read)


def _card(data: bytes) -> None:
    from huggingface_hub import EvalResult

    found = EvalResult(task_type="t", dataset_type="d", dataset_name="n", metric_type="m", metric_value=1.0)
    with_evaluation(read_card(written("card/README.md", data).parent), "| a |", [found])


def _runtime_env(data: bytes) -> None:
    """What a script reads is the variables, each its own, and all of a length that a process can be given."""
    found = read_runtime_env(written("env.yaml", data))
    said = b"".join(f"{name}={value}\0".encode() for name, value in found.items())
    assert [pair.partition(b"=")[0].decode() for pair in said.split(b"\0")[:-1]] == list(found)
    assert len(said) <= 8 * LONGEST


def _recipe(data: bytes) -> None:
    """A recipe is a list of settings: reading it runs nothing and writes nothing, and refuses in one line."""
    file = written("recipe/mine.env", data)
    tools = scratch() / "tools"  # none but those that reading takes: what a recipe says is not tried on this machine
    tools.mkdir(exist_ok=True)
    (tools / "cat").unlink(missing_ok=True)
    (tools / "cat").symlink_to("/bin/cat")
    script = f'source "{PACK}/_common.sh"; PATH="{tools}"; load_recipe "$1"'
    done = subprocess.run(["bash", "-c", script, "bash", str(file)], cwd=file.parent, capture_output=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False)
    left = {path.name for path in file.parent.iterdir()} - {"mine.env"}
    for name in left:
        (file.parent / name).unlink()
    assert not left, f"reading it wrote {left}"
    assert (done.returncode == 0 and not done.stderr) or done.stderr.startswith(b"error: "), done.stderr[-300:]
    assert done.stderr.count(b"\n") <= 1, done.stderr[-300:]


def _math_row(data: bytes) -> None:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(fields, dict):
        for read in (read_gsm8k, read_math, read_countdown):
            _refused_or(lambda read=read: read(fields))


_RECIPE = (b"# A comment\nHF_CKPT=Qwen/Qwen2.5-0.5B\nMEM_CHUNK_TOKENS=${CHUNK:-512}\n"
           b'AGENT_ARGS="a=\\"b c\\""\nX=$HF_CKPT\n')
_RUNTIME_ENV = (
    b"working_dir: .\nenv_vars:\n  BASE_URL: 'http://h/v1'\n  TEMPERATURE: 0.6\n  LOUD: yes\n",
    b"x0: &x0 text\nx1: &x1 [*x0, *x0]\nenv_vars: {A: *x0, B: *x1}\n",
)
_CARD = (b"---\ntags:\n- mem-agent\n---\n\n# M, trained\n\n## Evaluation\n\n<!-- evaluation -->\nNone.\n"
         b"<!-- end of evaluation -->\n")
TARGETS = (
    Target("settings_file", _settings_file, (
        Config(mem_chunk_tokens=256).to_yaml().encode(),
        b"mem_agent:\n  AGENT: gated\n  MEM_CHUNK_TOKENS: 1024\n"), YAML, (OSError,)),
    Target("settings_lines", _settings_lines, (
        b"AGENT=gated\nMEM_CHUNK_TOKENS=512\nEVAL_DATA=a 'b c'\nTASK=qa,math\n",
        b"STYLE=\nSEED=7\nMEM_THINKING=yes\n"),
        (*(f"{name}=".encode() for name in NAMES), b"\n", b"'", b"1e400", b"nan", "²".encode(), b"-1", b"~", b"\\"),
        (OSError,)),
    Target("setting_values", _values, (
        b'mode=strict form="boxed"', b"50 200 6400", b"1 3 5", b"http://127.0.0.1:80/v1", b"a.jsonl@[0:100]", b"qa"),
        (b"mode=", b"'", b'"', b" ", b"http://", b"[::1", b":", b"@[", b"]", "²".encode(), "٣".encode(), b"9" * 50),
        (OSError,)),
    Target("prompt_files", _prompts, (
        b"memory: '{problem} {section} {memory}'\nempty_memory: x\n", b"en:\n  rank: '{history} {question}'\n",
        b"memory_datasets:\n  train:\n    locomo: 3\n", b"niah: 'x {key}'\n"), YAML),
    Target("card", _card, (_CARD,), (*YAML, b"<!-- evaluation -->", b"<!-- end of evaluation -->", b"# ")),
    Target("runtime_env", _runtime_env, _RUNTIME_ENV, (*YAML, b"env_vars:", b'"\\0"', b'"\\ud800"', b"=")),
    Target("recipe", _recipe, (_RECIPE,), (b"$(", b")", b"`", b"> x", b"${", b"}", b'"', b"\\", b"x[", b"]", b"=",
           b"\n", b"A=", b"$PATH", b"VALUE_OF_A_RECIPE"), slow=True),
    Target("math_rows", _math_row, (b'{"question": "q", "answer": "x #### 4"}', b'{"nums": [3, 5], "target": 8}',
           b'{"problem": "p", "solution": "\\\\boxed{4}", "answer": "4"}')),
)  # fmt: skip
