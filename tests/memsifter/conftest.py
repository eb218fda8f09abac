"""Stage 1's file of ten questions, and a model's folder, in the environment of a stage."""

import pytest

from mem_agent.serving import fleet
from mem_agent.tests.helpers.evaluations import make_model
from mem_agent.tests.helpers.fake_router import chat_model, running_beside
from mem_agent.tests.helpers.stage_rows import embedded_row, history_question, write_rows
from mem_agent.tests.helpers.stages_here import without_ray


@pytest.fixture
def folder(tmp_path, monkeypatch):
    without_ray(monkeypatch)
    for name in ("API_KEY", "OPENAI_API_KEY", "TEMPERATURE", "METHODS", "DATASETS", "MODEL_NAME", "OUTPUT_DIR",
                 "BASE_URL", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEM_MAX_FINAL", "64")
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "out/emb/set_test_embed.parquet", [embedded_row(history_question(n)) for n in range(10)])
    make_model(tmp_path / "ranker", positions=4096)
    return tmp_path


@pytest.fixture
def engines(monkeypatch):
    """What was started in place of engines, which a stub answers for, and the stub."""
    begun = []

    class Stub:
        def __init__(self, config, model, run_folder):
            self.url, self.config = chat.url, config

        async def __aenter__(self):
            begun.append(self.config.engine_max_len)

        async def stop(self):
            begun.append("stopped")

    monkeypatch.setattr(fleet, "Fleet", Stub)
    with running_beside(chat_model(models=({"id": "policy"},))) as chat:
        yield begun, chat
