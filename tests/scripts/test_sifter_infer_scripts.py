"""scripts/infer: what each would run under the seed's variables, one line for wrong use, and a server that ends."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from mem_agent.tests.helpers.fake_chat import HANG, FakeChat, chat_server
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.stage_rows import embedded_row, history_question, write_rows

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "scripts" / "infer"
OWN = ("RECIPE", "MODEL_PATH", "MODEL_NAME", "BASE_URL", "API_KEY", "OPENAI_API_KEY", "CHAT_MODEL_PATH", "METHODS",
       "CHAT_MODEL_NAME", "DATA_DIR", "OUTPUT_DIR", "EMBED_STORE_PATH", "EMBEDDING_MODEL_NAME", "RUNTIME_ENV",
       "RAY_ADDRESS", "DATASETS", "SPLITS", "TEMPERATURE", "RANK_BASE_URL", "RANK_API_KEY", "ENGINE_MAX_LEN")
KEY = "sk-secret-0123456789"


def environment(**env):
    return {k: v for k, v in os.environ.items() if k not in OWN} | env


def script(name, *arguments, **env):
    command = ["bash", str(FOLDER / name), *arguments]
    return subprocess.run(command, env=environment(**env), capture_output=True, text=True, cwd="/",
                          timeout=HANGS_AFTER_S)


def commands(name, *arguments, **env):
    """Each line that would be run, its words behind ``mem_agent``."""
    done = script(name, *arguments, DRY_RUN="1", **env)
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    assert all(line[:3] == ["setpriv", "--pdeathsig", "TERM"] for line in lines)
    return [line[line.index("mem_agent") + 1 :] for line in lines]


@pytest.mark.parametrize("name,env,expected", [
    ("session_embedding.sh", {"RAY_ADDRESS": "auto"}, [["session-embedding", "--ray", "auto"]]),
    ("session_ranking.sh", {"MODEL_PATH": "/m/r", "OUTPUT_DIR": "/o"},
     [["serve-engines", "--model", "/m/r", "--url-file", "/o/r/url.PID"],
      ["session-ranking", "--model", "/m/r", "--url", "URL"]]),
    ("session_ranking.sh", {"MODEL_PATH": "/m/r", "BASE_URL": "http://h", "API_KEY": KEY},
     [["session-ranking", "--model", "/m/r"]]),
    ("chat_infer.sh", {"BASE_URL": "http://h", "API_KEY": KEY}, [["chat-infer"]]),
    ("chat_infer.sh", {"CHAT_MODEL_PATH": "/m/c", "OUTPUT_DIR": "/o", "MODEL_NAME": "c2"},
     [["serve-engines", "--model", "/m/c", "--url-file", "/o/c2/url.PID"],
      ["chat-infer", "--model", "/m/c", "--url", "URL"]]),
    ("memsifter.sh", {"MODEL_PATH": "/m/r", "CHAT_MODEL_PATH": "/m/c", "OUTPUT_DIR": "/o"},
     [["session-embedding", "--tokenizer", "/m/r", "--keep-counts"],
      ["serve-engines", "--model", "/m/r", "--url-file", "/o/r/url.PID"],
      ["session-ranking", "--model", "/m/r", "--url", "URL"],
      ["serve-engines", "--model", "/m/c", "--url-file", "/o/c/url.PID"],
      ["chat-infer", "--model", "/m/c", "--url", "URL"],
      ["sifter-table", "/o"]]),
    ("memsifter.sh", {"MODEL_PATH": "/m/r", "BASE_URL": "http://h", "RANK_BASE_URL": "http://r", "OUTPUT_DIR": "/o"},
     [["session-embedding", "--tokenizer", "/m/r", "--keep-counts"], ["session-ranking", "--model", "/m/r"],
      ["chat-infer"], ["sifter-table", "/o"]]),
])
def test_what_would_be_run(name, env, expected):
    assert commands(name, **env) == expected


def test_arguments_go_to_the_stage():
    assert commands("chat_infer.sh", "--limit", "3", BASE_URL="http://h") == [["chat-infer", "--limit", "3"]]


@pytest.mark.parametrize("name,env,told", [
    ("session_ranking.sh", {}, "set MODEL_PATH to the ranker"), ("memsifter.sh", {}, "set MODEL_PATH to the ranker"),
    ("memsifter.sh", {"MODEL_PATH": "/m"}, "set BASE_URL to a chat endpoint, or CHAT_MODEL_PATH"),
    ("chat_infer.sh", {}, "set BASE_URL to a chat endpoint, or CHAT_MODEL_PATH"),
    ("chat_infer.sh", {"RECIPE": "/none.env"}, "RECIPE='/none.env' cannot be read"),
])
def test_one_line_for_wrong_use(name, env, told):
    done = script(name, DRY_RUN="1", **env)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def results(tmp_path):
    write_rows(tmp_path / "emb" / "set_test_embed.parquet", [embedded_row(history_question(n)) for n in range(4)])
    return {"OUTPUT_DIR": str(tmp_path), "EMBEDDING_MODEL_NAME": "emb", "CHAT_RETRIES": "0"}


def test_the_key_is_on_no_command_line_and_the_client_ends_with_the_script(results):
    chat = FakeChat(lambda body, number: HANG)
    with chat_server(chat):
        env = environment(BASE_URL=chat.url, API_KEY=KEY, **results)
        run = subprocess.Popen(["bash", str(FOLDER / "chat_infer.sh")], env=env, stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
        wait_for(lambda: chat.bodies, run)
        lines = {path.parent.name: _text(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
        assert not [line for line in lines.values() if KEY in line]
        clients = [pid for pid, line in lines.items() if "chat-infer" in line and "setpriv" not in line
                   and _text(Path("/proc", pid, "environ")).find(results["OUTPUT_DIR"]) >= 0]
        assert clients and chat.headers[0]["Authorization"] == f"Bearer {KEY}"
        run.send_signal(signal.SIGTERM)
        assert run.wait(HANGS_AFTER_S) == 130
    assert not [pid for pid in clients if Path("/proc", pid).exists()]


def _text(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
