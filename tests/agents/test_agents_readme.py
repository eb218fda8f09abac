"""The worked example of agents/README.md: its code, its table line and its test run as they stand there."""

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mem_agent import agents, rollout
from mem_agent.client.rollout_client import close_clients
from mem_agent.hooks.sample import Sample
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

README = Path(agents.__file__).with_name("README.md")
TEXT = README.read_text()
AGENT, ENTRY, TESTS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def notebook(monkeypatch):
    """The example as a module of the package and as an entry of the table, for one test."""
    module = ModuleType("mem_agent.agents.notebook")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(agents, "AGENTS", dict(agents.AGENTS))
    exec(compile(AGENT, "agents/notebook.py", "exec"), module.__dict__)
    exec(ENTRY, {"AGENTS": agents.AGENTS, "Notebook": module.Notebook})
    return module


def encode(text):
    tokenizer = make_tokenizer()
    return tokenizer.encode(text, add_special_tokens=False) + [tokenizer.eos_token_id]


def test_it_reads_a_document_through_the_hook_and_a_server(notebook, tmp_path):
    make_tokenizer().save_pretrained(tmp_path)
    router = FakeRouter([encode("red"), encode("blue"), encode("\\boxed{red}")])
    sample = Sample(prompt="who?", metadata={"context": "QWZRXYUJ", "ground_truth": ["red"]})

    async def main():
        async with running(router):
            args = SimpleNamespace(hf_checkpoint=str(tmp_path), vllm_router_ip="127.0.0.1",
                                   vllm_router_port=router.port,
                                   mem_agent={"AGENT": "notebook", "MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 24})
            try:
                done = await rollout.generate(args, sample, {"temperature": 1.0})
                return done, await rollout.reward_func(args, done)
            finally:
                await close_clients()

    done, reward = asyncio.run(main())
    assert reward == 1.0 and [t["kind"] for t in done.train_metadata["turns"]] == ["memory", "memory", "final"]
    assert "red\nblue" in make_tokenizer().decode(router.requests[-1]["token_ids"])
    assert [m["gold"] for m in done.train_metadata["memories"]] == [True, True]


def test_its_own_tests_pass(notebook):
    scope: dict = {}
    exec(compile(TESTS, "tests/test_notebook.py", "exec"), scope)
    for replies, memories, dropped in scope["CASES"].values():
        scope["test_what_a_reply_does"](replies, memories, dropped)
