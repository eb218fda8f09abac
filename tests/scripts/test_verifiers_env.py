"""As an environment of ``verifiers``: found by the package's name, one chat request a turn, scored as training does.

Where the library itself is installed these run with it; else with its names alone (``helpers.verifiers_stub``).
"""

import asyncio
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import mem_agent
from mem_agent.config import ConfigError
from mem_agent.tests.helpers import verifiers_stub
from mem_agent.tests.helpers.fake_router import chat_model, running_beside

POCKET = Path(mem_agent.__file__).parent / "pocket"
SETTINGS = f"MEM_PROMPTS='{POCKET}/start/mem_agent_prompts.yaml' MEM_CHUNK_TOKENS=32 MEM_MAX_MEMORY=8 MEM_MAX_FINAL=12"
TEXT = "metal silver.\n" + "Rain fell.\n" * 12 + "tool saw.\n"


@pytest.fixture(scope="module", autouse=True)
def library():
    stubbed = importlib.util.find_spec("verifiers") is None
    if stubbed:
        verifiers_stub.install()
    yield
    if stubbed:
        for name in ("verifiers", "verifiers.v1", "mem_agent.verifiers_env"):
            sys.modules.pop(name, None)


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.jsonl"
    metadata = {"ground_truth": ["silver"], "context": TEXT}
    row = {"prompt": "Which metal?", "label": "silver", "metadata": metadata}
    file.write_text("".join(json.dumps(row) + "\n" for _ in range(2)))
    return file


def taskset(rows):
    kind = mem_agent.MemoryTaskset
    return kind(sys.modules[kind.__module__].MemoryTasksetConfig(rows=rows))


def launched(task, url, settings=SETTINGS):
    kind = mem_agent.MemoryHarness
    config = sys.modules[kind.__module__].MemoryHarnessConfig(tokenizer=str(POCKET / "start"), settings=settings)
    trace = SimpleNamespace(metrics={}, root_reply=None)
    trace.record_metrics = trace.metrics.update
    context = SimpleNamespace(model="served")
    result = asyncio.run(kind(config).launch(context, trace, None, f"{url}/v1", "the-key", {}, task.data))
    trace.last_reply = trace.root_reply
    return result, trace


def remembers(body):
    """Keeps the metal that the text or the memory names, and answers with it."""
    text = body["messages"][-1]["content"]
    found = re.search(r"metal (\w+)", text)
    return f"\\boxed{{{found[1]}}}" if "Text:" not in text else f"metal {found[1]}" if found else "none"


def test_a_task_is_a_row_without_its_document(rows):
    first, second = taskset(rows).load()
    assert (first.data.prompt, first.data.row, second.data.row) == ("Which metal?", 0, 1)
    assert "Rain" not in first.data.model_dump_json()


def test_every_turn_is_one_chat_request_with_the_key_that_was_given(rows):
    task = next(iter(taskset(rows).load()))
    with running_beside(chat_model(remembers, key="the-key")) as chat:
        result, trace = launched(task, chat.url)
        chat.key = "another"
        refused, _ = launched(task, chat.url)
    assert (result.exit_code, result.stdout) == (0, "\\boxed{silver}")
    assert refused.exit_code == 1 and "HTTP 401" in refused.stderr and "the-key" not in refused.stderr
    assert trace.metrics["turns"] > 2
    assert all(len(body["messages"]) == 1 and "temperature" not in body for body in chat.requests)
    first = chat.requests[0]["messages"][0]["content"]
    assert "silver" in first and "saw" not in first
    assert asyncio.run(task.reward(trace)) == {"answer": 1.0}
    assert asyncio.run(task.measured(trace))["em"] == 1.0


@pytest.mark.parametrize(("settings", "said"), [
    ("MEM_CHUNK_TOKENS", "no NAME=value"), ("MEM_CHUNK_TOKENS=none", "MEM_CHUNK_TOKENS"),
])
def test_bad_settings_are_one_line(rows, settings, said):
    task = next(iter(taskset(rows).load()))
    with pytest.raises(ConfigError, match=said):
        launched(task, "http://127.0.0.1:1", settings)
