"""A write that fails says of which file: each of the pack's writers is tried on a full disk."""

import asyncio
import errno
import json
import shutil
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mem_agent.checkpoints import convert, hf_to_torch_dist
from mem_agent.checkpoints.agent_settings import write_files
from mem_agent.checkpoints.complete_folder import complete_folder
from mem_agent.checkpoints.hf_folder import copy_model_files, write_shards
from mem_agent.config import Config
from mem_agent.data.document_store import DocumentWriter
from mem_agent.data.manifest import Manifest
from mem_agent.data.session_file import SessionFile
from mem_agent.evaluation.questions import Contexts
from mem_agent.hooks import batch_reward
from mem_agent.launch import ray_cluster, ray_jobs
from mem_agent.launch.remote_env import runtime_env_file
from mem_agent.pocket import prepare as pocket
from mem_agent.rehearsal import sglang_engine
from mem_agent.rehearsal.tiny_model import write_tiny_model
from mem_agent.rewards.answer_utility import AnswerUtility
from mem_agent.rewards.intrinsic import state_file
from mem_agent.sessions.records import HistoryQuestion, Session, Turn
from mem_agent.sifter.blocks.row_journal import RowJournal
from mem_agent.sifter.rounds.row_shards import Spool, write_shard
from mem_agent.sifter.session_log import SessionLog
from mem_agent.sifter.stages import embed_stage
from mem_agent.sifter.stores.record_store import RecordStore
from mem_agent.system.atomic_file import replacing
from mem_agent.system.one_line_errors import one_line_errors
from mem_agent.tests.helpers.small_files import files_of_at_most
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.training.run_log import RunLog

LONG = "x" * 5000
AT_MOST = 1000


def settings_beside_weights(folder, _):
    write_files({"mem_agent.yaml": LONG.encode()}, folder)


def index_of_weights(folder, _):
    names = {f"{number}.safetensors": [str(number) * 800] for number in range(2)}
    write_shards(folder, names, lambda name: [(name, torch.zeros(1))])


def number_format_of_weights(folder, _):
    convert._set_dtype(folder / "config.json", "float16")


def model_files(folder, _):
    with complete_folder(folder / "model", force=False) as draft:
        copy_model_files(folder, draft)


def what_a_library_writes(folder, _):
    with complete_folder(folder / "model", force=False):
        raise OSError(errno.ENOSPC, "No space left on device")


def release(folder, _):
    hf_to_torch_dist.write_release(folder / "tiny", folder / "dist")


def release_common(folder, monkeypatch):
    monkeypatch.setattr(hf_to_torch_dist, "save", lambda *_, **__: None)
    release(folder, monkeypatch)


def documents_of_questions(folder, _):
    with closing(Contexts(folder)) as contexts:
        contexts.put(LONG)


def spooled_rows(folder, _):
    with closing(Spool(folder)) as spool:
        spool.put({"prompt": LONG})
        list(spool.rows([0]))


def shard_of_rows(folder, _):
    write_shard(folder / "train_0.parquet", iter([{"label": np.random.default_rng(1).bytes(5000).hex()}]))


def memory_of_rewards(folder, _):
    state_file.write(folder / "memory.npz", {}, {"values": np.zeros(5000)})


def count_of_rollouts(folder, _):
    reward = AnswerUtility.__new__(AnswerUtility)
    reward._rollouts = 10 ** AT_MOST
    reward.save(folder)


class OfAUser:
    def save(self, folder):
        (folder / "seen").write_text(LONG)


def state_of_a_user_s_reward(folder, _):
    batch_reward._save(SimpleNamespace(save=folder), OfAUser(), 3)


def environment_of_workers(folder, _):
    with runtime_env_file({"A": LONG}, {}, folder):
        pass


def token_of_workers(folder, _):
    with runtime_env_file({}, {"HF_TOKEN": LONG}, folder):
        pass


def token_of_ray(folder, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", LONG)
    ray_cluster._head_environment(Config(), folder)


def log_of_a_job(folder, monkeypatch):
    async def lines(_job):
        yield LONG

    monkeypatch.setattr(ray_jobs, "NO_ANSWER", ())
    server = SimpleNamespace(tail_job_logs=lines)
    asyncio.run(ray_jobs._follow_log(server, "job", folder / "job.log", lambda _: None))


def texts_to_embed(folder, monkeypatch):
    text = np.random.default_rng(1).bytes(5000).hex()
    monkeypatch.setattr(embed_stage, "_missing_texts", lambda *_: iter([([text], 0)]))
    embed_stage._embed_missing(None, folder, folder / "out", "", None, None)


def pocket_rows(folder, _):
    pocket.prepare(folder, 1, "arithmetic")


def pocket_questions(folder, monkeypatch):
    task = pocket.Task(lambda _: iter(()), {"a": lambda _: iter([LONG])})
    monkeypatch.setattr(pocket, "TASKS", {"empty": task})
    pocket.prepare(folder, 1, "empty")


def stand_ins(folder, monkeypatch):
    monkeypatch.setattr(sglang_engine, "_TORCHVISION", LONG)
    monkeypatch.setattr(sglang_engine, "_STAND_INS", ())
    sglang_engine._write_stand_ins(folder / "tiny")


def small_model(folder, _):
    content = json.loads((folder / "tiny" / "config.json").read_text())
    write_tiny_model(content, folder / "empty", folder / "small")


def data_file(folder, _):
    with Manifest(folder).draft("eval_5.json", {}) as out:
        out.write(LONG.encode())


def document(folder, _):
    with DocumentWriter(folder / "store") as documents:
        documents.add(LONG)


def histories(folder, _):
    text = np.random.default_rng(1).bytes(5000).hex()
    one = Session("s", (Turn("user", text),))
    with replacing(folder / "sessions.parquet") as file:
        sessions = SessionFile(file)
        sessions.add(HistoryQuestion("q", "who?", ("a",), (one,)))
        sessions.close()


def sifted_row(folder, _):
    with RowJournal(folder / "part.journal", ["a"]) as journal:
        journal.keep(0, {"reply": LONG})


def vectors(folder, _):
    RecordStore(folder / "vectors", "f", "float32").add([b"k" * 16], np.zeros((1, 5000)))


def session(folder, _):
    with closing(SessionLog(folder / "log.jsonl")) as log:
        log.add(Session("s", (Turn("user", LONG),)))


def metrics(folder, _):
    RunLog(folder, 0).write(0, dict.fromkeys(map(str, range(500)), 1.0))


WRITERS = {
    settings_beside_weights: "mem_agent.yaml",
    index_of_weights: "model.safetensors.index.json",
    number_format_of_weights: "config.json",
    model_files: "config.json",
    what_a_library_writes: "model",
    release: "dist/release",
    release_common: "dist/.release.writing/common.pt",
    documents_of_questions: "",
    spooled_rows: "",
    shard_of_rows: "train_0.parquet",
    memory_of_rewards: "memory.npz",
    count_of_rollouts: "rollouts.json",
    state_of_a_user_s_reward: "reward_state/0000003",
    environment_of_workers: "runtime_env.yaml",
    token_of_workers: "tokens/hf_token",
    token_of_ray: "ray_token",
    log_of_a_job: "job.log",
    texts_to_embed: "out.texts/texts.parquet",
    pocket_rows: "train.jsonl",
    pocket_questions: "eval_a.json",
    stand_ins: "tiny/torchvision-0.28.0.dist-info/METADATA",
    small_model: "small",
    data_file: "eval_5.json",
    document: "store/documents.bin",
    histories: "sessions.parquet",
    sifted_row: "part.journal",
    vectors: "vectors",
    session: "log.jsonl",
    metrics: "metrics.jsonl",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_full_disk_is_one_line_with_the_name_of_the_file(model, tmp_path, monkeypatch, capsys, write):
    (tmp_path / "config.json").write_text(json.dumps({"a": LONG}))
    shutil.copytree(model, tmp_path / "tiny")
    command = one_line_errors("nothing")(lambda: write(tmp_path, monkeypatch))
    with files_of_at_most(AT_MOST):
        assert command() == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and str(tmp_path / WRITERS[write]) in line, line
    assert any(why in line for why in ("File too large", "No space left", "the disk is full")), line
