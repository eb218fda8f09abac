"""No process gets the user's keys that is no command of the pack, and whoever starts another has thought of it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.rewards import math_checker
from mem_agent.serving.engine import engine_environment
from mem_agent.serving.router import router_environment
from mem_agent.system.process_environment import is_secret, without_secrets
from mem_agent.tests.helpers.sources import ROOT, SOURCES

SCRUBBED = {"without_secrets", "engine_environment", "router_environment", "_head_environment"}
OWN = "a command of the pack, which reads the user's settings and asks servers with the user's keys"
BENCH = "a measurement on a developer's machine, of the pack's commands"
REASONS = {
    "benchmarks": BENCH,
    "data/document_workers.py": "a fork of a process that document_process.py started without secrets",
    "docs": "the pages are built by the developer, from the checkout alone",
    "launch/model_args.py": "its environment is PATH alone",
    "serving/engine_server.py": "a fork of the engine's server, whose environment had no secrets",
    "serving/fleet.py": "_launch hands on what engine_environment and router_environment made",
    "sifter/rounds/round_steps.py": OWN,
    "system/forked_map.py": "a fork has the memory of its parent, whatever its environment says",
    "system/guard.py": "starts a server with its own environment, which ChildProcess was given",
    "system/processes.py": "ChildProcess hands on what its callers, who are looked at here, give it",
    "training/evaluation.py": OWN,
    "training/ranks.py": OWN,
}
STARTS = {
    "Popen", "run", "call", "check_call", "check_output", "create_subprocess_exec", "create_subprocess_shell", "execv",
    "execve", "execvp", "execvpe", "execl", "execle", "execlp", "posix_spawn", "posix_spawnp", "fork", "forkpty",
    "system", "popen", "spawnv", "spawnve", "get_context", "ProcessPoolExecutor", "Process", "Pool", "ChildProcess",
}
MODULES = {"subprocess", "os", "asyncio", "multiprocessing", "futures", "pty"}


def starts(tree: ast.AST) -> list[ast.Call]:
    """The calls in a file that start a process."""
    imported = {"ChildProcess"} | {
        alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        for alias in node.names if (node.module or "").split(".")[-1] in MODULES | {"process"}
    }

    def is_start(call: ast.Call) -> bool:
        if isinstance(call.func, ast.Name):
            return call.func.id in STARTS & imported
        return (isinstance(call.func, ast.Attribute) and call.func.attr in STARTS
                and isinstance(call.func.value, ast.Name) and call.func.value.id in MODULES
                and (call.func.value.id, call.func.attr) != ("asyncio", "run"))

    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_start(node)]


def names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def has_scrubbed_environment(call: ast.Call, function: ast.AST) -> bool:
    """An environment is given, and the function that starts the process makes it by one of SCRUBBED."""
    given = [k for k in call.keywords if k.arg == "env"] or len(call.args) > 2
    return bool(given) and bool(SCRUBBED & names(function))


def unscrubbed() -> set[str]:
    found = set()
    for file in [*SOURCES, *(ROOT / "docs").glob("*.py")]:
        place = file.relative_to(ROOT)
        tree = ast.parse(file.read_text())
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        for call in starts(tree):
            around = [f for f in functions if f.lineno <= call.lineno <= (f.end_lineno or 0)]
            function = max(around, key=lambda f: f.lineno, default=tree)
            if not has_scrubbed_environment(call, function):
                found.add(place.as_posix() if place.parts[0] not in REASONS else place.parts[0])
    return found


def test_every_start_of_a_process_leaves_the_users_keys_behind_or_has_a_reason():
    assert unscrubbed() == set(REASONS)


@pytest.mark.parametrize("code,found", [
    ("import subprocess\nsubprocess.run(['x'])", 1), ("from subprocess import Popen\nPopen(['x'])", 1),
    ("import os\nos.execv('x', [])", 1), ("from multiprocessing import get_context\nget_context('fork')", 1),
    ("import asyncio\nasyncio.run(main())\nthing.run()", 0), ("def run(): pass\nrun()", 0),
])
def test_starts_are_found(code, found):
    assert len(starts(ast.parse(code))) == found


CANARIES = {"OPENAI_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD",
            "my_token", "GOOGLE_CREDENTIALS", "HUGGING_FACE_HUB_TOKEN", "CI_JOB_JWT_V2", "LDAP_BINDPW", "SENTRY_DSN",
            "AZURE_STORAGE_CONNECTION_STRING", "SLACK_WEBHOOK_URL", "GITHUB_PAT_RO", "SNOWFLAKE_PASSCODE"}
KEPT = {"PATH": os.environ["PATH"], "HTTPS_PROXY": "http://user:password@proxy:3128",
        "MEM_CHUNK_TOKENS": "512", "TOKENIZERS_PARALLELISM": "false", "HF_TOKEN_PATH": "/f"}


@pytest.mark.parametrize("made", [
    without_secrets, router_environment, lambda env: engine_environment(env, "cpu", 0),
    lambda env: engine_environment(env, "cuda", 0),
])
def test_a_child_has_no_canary(made):
    env = made(KEPT | dict.fromkeys(CANARIES, "canary"))
    done = subprocess.run([sys.executable, "-c", "import os; print(*os.environ.values())"], env=env,
                          capture_output=True, text=True, check=True)
    assert "canary" not in done.stdout and all(is_secret(name) for name in CANARIES)
    assert KEPT.items() <= env.items()


def test_the_process_that_compares_answers_has_no_canary(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "yellow-bird")
    math_checker.stop_worker()
    assert math_checker.math_equal("equal", "1/2", "0.5") and math_checker._worker is not None
    assert b"yellow-bird" not in Path(f"/proc/{math_checker._worker.pid}/environ").read_bytes()
    math_checker.stop_worker()
