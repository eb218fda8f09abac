"""Rollouts survive a kill; a replay under other settings is refused; absorbed ones go."""

import hashlib
from dataclasses import asdict, fields, replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.agents import answer_settings, training_settings
from mem_agent.config import Config, Shapes
from mem_agent.system import atomic_file
from mem_agent.tests.helpers.small_files import files_of_at_most
from mem_agent.training.journal import Journal, Rollout, fingerprint
from mem_agent.training.run_log import RunLog, progress_line, read_metrics

ROLLOUT = Rollout({"tokens": [[1, 2]], "rewards": [0.1 + 0.2]}, 9, {"reward": 1 / 3})


def test_round_trip_is_exact(tmp_path):
    Journal(tmp_path, Config()).write(3, ROLLOUT)
    assert Journal(tmp_path, Config(num_rollout=7)).read(3) == ROLLOUT
    assert Journal(tmp_path, Config()).read(4) is None


def test_other_settings_refuse_the_replay(tmp_path):
    Journal(tmp_path, Config()).write(3, ROLLOUT)
    assert Journal(tmp_path, Config(lr=1.0)).read(3) is None
    assert Journal(tmp_path, Config(num_engines=2)).read(3) == ROLLOUT


def test_half_written_files_are_nothing(tmp_path):
    journal = Journal(tmp_path, Config())
    journal.write(3, ROLLOUT)
    (journal.folder / "rollout_0000004.tmp").write_bytes(b"{")
    (journal.folder / "rollout_0000005.json").write_bytes(b"")
    assert journal.read(4) is None and journal.read(5) is None and journal.read(3) == ROLLOUT


def test_what_a_killed_run_has_left_of_a_record_goes_with_the_next(tmp_path):
    journal = Journal(tmp_path, Config())
    journal.write(3, ROLLOUT)
    for number in (3, 4):
        journal.folder.joinpath(f".rollout_000000{number}.json.{number}.tmp").write_bytes(b"{")
    journal.write(4, ROLLOUT)
    assert sorted(path.name for path in journal.folder.iterdir()) == ["rollout_0000003.json", "rollout_0000004.json"]


# --- damage ----------------------------------------------------------------------------------------------------------


RECORD = {"fingerprint": fingerprint(Config()), **asdict(ROLLOUT)}
OTHER_SHAPES = {
    "a list": [1], "null": None, "a number": 7, "a text": "x", "nothing": {},
    "no fingerprint": {key: value for key, value in RECORD.items() if key != "fingerprint"},
    "a renamed key": {"data" if key == "train_data" else key: value for key, value in RECORD.items()},
    "one key more": RECORD | {"x": 1},
    **{f"{key} is {value!r}": RECORD | {key: value} for key in RECORD if key != "fingerprint"
       for value in (None, [], "x", 1.5, True)},
    "a column that is no list": RECORD | {"train_data": {"tokens": 1}},
    **{f"its number is {value!r}": RECORD | {"number": value} for value in (None, [], "3", 3.0, True)},
    **{f"its next group is {value}": RECORD | {"next_group": value} for value in (-1, 2**53, 2**62)},
    "a metric that is no number": RECORD | {"metrics": {"reward": "x"}},
}
DAMAGED = {what: orjson.dumps(content) for what, content in OTHER_SHAPES.items()}
DAMAGED |= {"deep": b"[" * 100_000, "no text": b"\xff\xfe", "cut": orjson.dumps(RECORD)[:50], "zeros": bytes(40)}


def damaged(tmp_path, caplog) -> str:
    """What is said of record 3; 4, which followed it, is put aside with it."""
    journal = Journal(tmp_path, Config())
    assert journal.read(3) is None
    aside = {"rollout_0000003.json.1", "rollout_0000004.json.1"}
    assert {path.name for path in journal.folder.iterdir()} == {"rollout_0000002.json", *aside}
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith(f"{journal.folder / 'rollout_0000003.json'}: ") and "\n" not in said
    assert said.endswith("; rollout 4 is sampled anew; put aside: rollout_0000003.json, rollout_0000004.json")
    return said


def written(tmp_path) -> Path:
    journal = Journal(tmp_path, Config())
    for number in (2, 3, 4):
        journal.write(number, ROLLOUT)
    return journal.folder / "rollout_0000003.json"


@pytest.mark.parametrize("what", DAMAGED)
def test_a_record_of_another_shape_is_one_line(tmp_path, caplog, what):
    written(tmp_path).write_bytes(DAMAGED[what])
    assert damaged(tmp_path, caplog)


def test_a_folder_in_the_place_of_a_record_is_one_line(tmp_path, caplog):
    path = written(tmp_path)
    path.unlink()
    path.mkdir()
    assert "is no file" in damaged(tmp_path, caplog)


def test_one_digit_that_changed_is_seen(tmp_path, caplog):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"tokens":[[1,2]]', b'"tokens":[[1,3]]'))
    assert "is not as it was written, its hash is another" in damaged(tmp_path, caplog)


@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_no_changed_byte_changes_what_is_replayed(tmp_path_factory, place, change):
    path = written(tmp_path_factory.mktemp("run"))
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= change
    path.write_bytes(content)
    assert Journal(path.parents[1], Config()).read(3) is None


def test_a_copy_of_another_rollouts_record_is_not_replayed(tmp_path, caplog):
    path = written(tmp_path)
    path.write_bytes(path.with_name("rollout_0000002.json").read_bytes())
    assert "is the record of rollout 3; rollout 4 is sampled anew" in damaged(tmp_path, caplog)


def test_a_record_without_its_number_is_replayed(tmp_path, caplog):
    """As older versions wrote it."""
    path, body = written(tmp_path), orjson.dumps(RECORD)
    path.write_bytes(b'{"sha256":"%b",' % hashlib.sha256(body).hexdigest().encode() + body[1:])
    assert Journal(tmp_path, Config()).read(3) == ROLLOUT and not caplog.messages


def test_a_record_without_a_hash_is_replayed_as_it_was(tmp_path, caplog):
    path = written(tmp_path)
    path.write_bytes(orjson.dumps(RECORD))
    with caplog.at_level("INFO", "mem_agent"):
        assert Journal(tmp_path, Config()).read(3) == ROLLOUT
    assert caplog.messages == [f"{path} has no hash: it is replayed without a check"]


def test_what_followed_a_rollout_that_is_sampled_anew_is_put_aside_and_kept(tmp_path, caplog):
    path, journal = written(tmp_path), Journal(tmp_path, Config())
    first, refused = path.with_name("rollout_0000004.json").read_bytes(), path.read_bytes()
    journal.write(3, ROLLOUT)
    assert ("rollout 4 was sampled anew; put aside, with what followed: rollout_0000003.json, rollout_0000004.json"
            in caplog.text)
    assert path.with_name("rollout_0000003.json.1").read_bytes() == refused
    journal.write(4, ROLLOUT)
    journal.write(3, ROLLOUT)
    assert path.with_name("rollout_0000004.json.1").read_bytes() == first
    assert path.with_name("rollout_0000004.json.2").exists() and journal.read(4) is None


def test_forget_removes_up_to_the_checkpoint(tmp_path):
    journal = Journal(tmp_path, Config())
    for number in range(5):
        journal.write(number, ROLLOUT)
    journal.forget(2)
    assert [journal.read(n) is None for n in range(5)] == [True, True, True, False, False]


def test_a_metric_does_not_replace_the_number_of_a_line(tmp_path):
    RunLog(tmp_path, 0).write(5, {"rollout": 99, "reward": 0.5})
    assert read_metrics(tmp_path) == [{"rollout": 5, "reward": 0.5}]


def test_what_lies_among_the_records_and_is_none_stays(tmp_path):
    journal = Journal(tmp_path, Config())
    for number in range(3):
        journal.write(number, ROLLOUT)
    moved = journal._path(1).rename(tmp_path / "elsewhere.json")
    journal._path(1).symlink_to(moved)
    journal._path(0).unlink()
    journal._path(0).mkdir()
    journal.forget(2)
    assert [path.name for path in journal.folder.iterdir()] == ["rollout_0000000.json"] and moved.is_file()


def test_a_resumed_log_has_each_rollout_once(tmp_path):
    log = RunLog(tmp_path, 0)
    for number in range(4):
        log.write(number, {"reward": number})
    with log.path.open("ab") as file:
        file.write(b'[0]\nnull\n{}\n{"rollout": "0"}\n\xff\n{"rollout": 4, "rew')
    RunLog(tmp_path, 2).write(2, {"reward": 9})
    assert [(m["rollout"], m["reward"]) for m in read_metrics(tmp_path)] == [(0, 0), (1, 1), (2, 9)]


def test_a_copy_of_the_log_by_a_hard_link_does_not_grow_with_it(tmp_path):
    """``cp -al`` of a run that goes on."""
    log = RunLog(tmp_path, 0)
    log.write(0, {"reward": 0})
    (tmp_path / "copy").hardlink_to(log.path)
    before = log.path.read_bytes()
    log.write(1, {"reward": 1})
    assert [m["rollout"] for m in read_metrics(tmp_path)] == [0, 1] and (tmp_path / "copy").read_bytes() == before


def test_a_line_of_the_log_is_written_whole_where_a_write_is_short(tmp_path, monkeypatch):
    """As on a disk that is nearly full: one write takes a part, and only the next one fails."""
    whole = atomic_file._NamedFile.write
    monkeypatch.setattr(atomic_file._NamedFile, "write", lambda file, content: whole(file, bytes(content)[:7]))
    RunLog(tmp_path, 0).write(0, {"reward": 0.5})
    assert read_metrics(tmp_path) == [{"rollout": 0, "reward": 0.5}]


def test_a_line_that_a_full_disk_has_not_taken_is_not_joined_by_the_next(tmp_path):
    log = RunLog(tmp_path, 0)
    with pytest.raises(OSError, match=r"metrics\.jsonl"), files_of_at_most(10):
        log.write(0, {"reward": 0.5})
    log.write(1, {"reward": 0.75})
    assert read_metrics(tmp_path) == [{"rollout": 1, "reward": 0.75}]


# --- the fingerprint -------------------------------------------------------------------------------------------------

NOTHING = set("""
    style host save_path data_root num_rollout over_sampling_batch_size save_interval keep_checkpoints mem_doc_store
    mem_request_timeout mem_max_retries mem_retry_backoff mem_routing mem_lead mem_concurrency
    length eval_samples keep_trajectories keep_trajectories_mb base_url
    eval_api eval_model eval_server_wait eval_interval eval_data eval_raw num_engines engine_max_seqs engine_kv_bytes
    engine_block_size engine_restarts engine_start_timeout host_root megatron_root model_family torch_dist_writer
    num_nodes num_gpus gpu_memory_gb engine_gpus engine_memory_fraction tracker tracker_project ray_address ray_port
    ray_dashboard_port ray_start_timeout master_addr val_samples val_temperature val_top_p rehearse_ranks
    rehearse_rollouts
    answer_url answer_gpus answer_engine_gpus answer_concurrency answer_timeout answer_retries
    data_dir datasets splits output_dir model_name methods chat_concurrency chat_timeout chat_retries
    embedding_model_name embed_store_path trust_remote_code
    serve_concurrency serve_timeout serve_parse_timeout serve_document_tokens serve_body_mb serve_files_mb
""".split())
"""Settings under which a run learns and measures the same. A new setting does not belong here unless somebody has
thought about it: a resumed run replays what was sampled before it changed."""
ANSWERS = {"eval_answer", "eval_max_chunks", "eval_temperature", "eval_top_p", "eval_mode", "eval_top_k",
           "eval_retriever", "eval_embedding", "rank_top_k", "top_k", "max_input_tokens", "full_input_tokens",
           "max_output_token"}
"""Settings that evaluation alone reads."""
READ_BY = {"mem_parallel": "parallel", "mem_recall": "rememr1", "mem_recall_model": "rememr1",
           "mem_evidence_reward": "rememr1", "mem_recall_order": "rememr1", "mem_recall_query": "rememr1"}
"""Settings that one agent alone reads."""
NEEDED_BY = {"max_gen_batches": {"dynamic_filter": "nonzero_std"}}
"""Without which a setting is refused."""
OTHER = {"agent": "gated", "task": "ruler", "reward": "some.module:Reward", "agent_args": "most=3",
         "global_batch_size": 8, "over_sampling_batch_size": 8, "mem_turn_cost": 0.5, "adam_beta1": 0.5,
         "adam_beta2": 0.5, "eps_clip": 0.5, "mem_alpha": 0.5, "eval_top_p": 0.5, "engine_memory_fraction": 0.5,
         "rehearse_ranks": 1, "tp": 2, "eps_clip_c": 3.0, "val_top_p": 0.5}
"""Values for fields where any other will not do."""


@pytest.fixture
def base(tmp_path):
    for name in ("train.jsonl", "other.jsonl", "other.yaml"):
        (tmp_path / name).write_text("{}\n")
    return Config(train_data=str(tmp_path / "train.jsonl"), train_procs=2)


def with_another(base, name, tmp_path):
    """``base`` with another value of one field."""
    value, choices = getattr(base, name), next(f for f in fields(Config) if f.name == name).metadata["choices"]
    files = {"train_data": "other.jsonl", "mem_prompts": "other.yaml"}
    if name in files:
        other = str(tmp_path / files[name])
    elif name in OTHER:
        other = OTHER[name]
    elif choices:
        other = next(choice for choice in choices if choice != value)
    elif isinstance(value, bool):
        other = not value
    else:
        other = value + "x" if isinstance(value, str) else value * 2 or 1
    assert other != value
    return replace(base, **{name: other})


def test_every_setting_was_thought_about():
    shapes = {f.name: f.metadata["shapes"] for f in fields(Config)}
    assert {name for name, shaped in shapes.items() if shaped is Shapes.NOTHING} == NOTHING
    assert {name for name, shaped in shapes.items() if shaped is Shapes.ANSWERS} == ANSWERS


@pytest.mark.parametrize("name", [f.name for f in fields(Config) if f.name != "style"])  # which changes others
def test_a_replay_survives_a_change_of_what_shapes_no_training_alone(name, base, tmp_path):
    for agent in {"memagent", READ_BY.get(name, "memagent")}:
        before = replace(base, agent=agent, **NEEDED_BY.get(name, {}))
        shaping = name not in NOTHING | ANSWERS and READ_BY.get(name, agent) == agent
        changed = with_another(before, name, tmp_path)
        assert (fingerprint(changed) != fingerprint(before)) == shaping, agent


@pytest.mark.parametrize("named", ["mem_prompts", "agent", "task", "reward", "train_data"])
def test_a_file_that_is_written_anew_under_its_name_refuses_the_replay(named, base, tmp_path):
    """The prompts and the user's classes by what they say, the training file by its size."""
    path = tmp_path / "mine.py"
    source = "from mem_agent.agents.memagent import MemAgent\nclass Mine(MemAgent): pass\n"
    path.write_text(source)
    config = replace(base, **{named: str(path) + ":Mine" * (named in ("agent", "task", "reward"))})
    before = fingerprint(config)
    assert fingerprint(config) == before
    path.write_text(source + "# changed\n")
    assert fingerprint(config) != before
    path.write_text(source)
    assert fingerprint(config) == before


def test_an_agent_of_the_users_reads_what_it_says_it_reads(base, tmp_path):
    (tmp_path / "own.py").write_text(
        "from mem_agent.agents.memagent import MemAgent\nfrom mem_agent.agents.parallel import Parallel\n"
        "class Plain(MemAgent): pass\nclass Wide(Parallel): pass\n"
    )
    for name, reads in (("Plain", False), ("Wide", True)):
        own = replace(base, agent=f"{tmp_path}/own.py:{name}")
        assert ("mem_parallel" in training_settings(own)) == ("mem_parallel" in answer_settings(own)) == reads


def test_a_run_goes_on_from_another_folder_and_under_the_settings_it_left(tmp_path, monkeypatch):
    (tmp_path / "train.jsonl").write_text("{}")
    (tmp_path / "own.py").write_text("from mem_agent.agents.memagent import MemAgent as Own")
    monkeypatch.chdir(tmp_path)
    config = Config(train_data="train.jsonl", agent="own.py:Own", save_path="run")
    Journal("run", config).write(3, ROLLOUT)
    assert Journal("run", config.with_absolute_paths()).read(3) == ROLLOUT
    (tmp_path / "own.py").write_text("from mem_agent.agents.rememr1 import ReMemR1 as Own")
    assert Journal("run", config).read(3) is None


def test_a_metric_that_was_no_number_is_replayed_and_left_out_of_the_line(tmp_path):
    journal = Journal(tmp_path, Config())
    journal.write(0, Rollout({}, 1, {"reward": float("nan"), "turns": 2.0}))
    replayed = journal.read(0)
    assert replayed.metrics == {"reward": None, "turns": 2.0}
    assert progress_line(0, 3, replayed.metrics | {"seconds": 1.0}) == "rollout 1/3 | turns 2.0 | 1.0 s ()"
    for lacking in ({}, {"trajectories": None}):
        assert progress_line(0, 3, {"failed": 1.0, "seconds": 1.0} | lacking) == "rollout 1/3 | 1.0 s ()"
