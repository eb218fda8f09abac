"""How the launcher ends follows its job's state, through lost answers and broken logs; it stops its own job alone."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from mem_agent.config import Config
from mem_agent.launch import ray_job
from mem_agent.system.errors import MemAgentError

ray = pytest.importorskip("ray.job_submission")
STATUS = ray.JobStatus


async def log(job):
    yield "line\n"


async def broken_log(job):
    yield "line\n"
    raise RuntimeError("closed")


@pytest.fixture
def client(monkeypatch):
    made = Mock(tail_job_logs=log)
    made.list_jobs.return_value, made.get_job_status.return_value = [], STATUS.SUCCEEDED
    monkeypatch.setattr(ray, "JobSubmissionClient", lambda address: made)
    monkeypatch.setattr(ray_job.time, "sleep", lambda seconds: None)
    return made


def run(tmp_path, show=lambda lines: None, **settings):
    config = Config(save_path=str(tmp_path), **settings)
    command = ["python", "train.py", "--save", str(tmp_path)]
    ray_job.run_job(config, "http://127.0.0.1:8265", {"A": "1"}, command, tmp_path / "job.log", show)


def test_a_job_gets_its_variables_and_in_a_joined_cluster_keys_and_its_log_is_kept(client, tmp_path, monkeypatch):
    """A head of our own has keys from our environment."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    shown = []
    run(tmp_path, shown.append)
    run(tmp_path, ray_address="http://head:8265")
    own, joined = (call.kwargs for call in client.submit_job.call_args_list)
    assert own["runtime_env"] == {"env_vars": {"A": "1"}} and own["entrypoint"].endswith(f"--save {tmp_path}")
    assert joined["runtime_env"]["env_vars"]["HF_TOKEN"] == "hf_secret"
    assert shown == ["line\n"] and (tmp_path / "job.log").read_text() == "line\nline\n"


def test_a_broken_log_does_not_end_a_job(client, tmp_path):
    client.tail_job_logs = broken_log
    client.get_job_status.side_effect = [STATUS.RUNNING, STATUS.RUNNING, STATUS.SUCCEEDED]
    run(tmp_path)
    assert client.get_job_status.call_count == 3 and not client.stop_job.called


@pytest.mark.parametrize("status,message", [([STATUS.FAILED], r"FAILED.*job\.log"), (OSError("no route"), "no route")])
def test_a_failed_job_and_a_lost_cluster_are_one_line(client, tmp_path, status, message):
    client.get_job_status.side_effect = status
    with pytest.raises(MemAgentError, match=message):
        run(tmp_path)


def test_a_job_that_trains_in_the_folder_is_not_joined_by_another(client, tmp_path):
    job = SimpleNamespace(submission_id="old", status=STATUS.RUNNING, entrypoint=f"python train.py --save {tmp_path}")
    client.list_jobs.return_value = [job]
    with pytest.raises(MemAgentError, match="job old trains there"):
        run(tmp_path)
    job.status = STATUS.FAILED
    run(tmp_path)


@pytest.mark.parametrize("third", [None, RuntimeError("Job with submission_id 1 already exists")])
def test_a_dropped_connection_a_late_agent_and_a_lost_acceptance_are_waited_for(client, tmp_path, third):
    dropped, late = OSError("Connection aborted"), RuntimeError("No available agent to submit job")
    client.submit_job.side_effect = [dropped, late, third]
    client.get_job_status.side_effect = [STATUS.RUNNING, dropped, STATUS.SUCCEEDED]
    run(tmp_path)
    assert client.submit_job.call_count == 3


def test_no_head_is_one_line(silent_port):
    with pytest.raises(MemAgentError, match="no job was submitted"):
        ray_job.run_job(Config(), f"http://127.0.0.1:{silent_port}", {}, ["x"], None, print)


def test_library_settings_reach_workers_and_keys_and_own_settings_do_not():
    user = {"NCCL_DEBUG": "INFO", "HF_HOME": "/hf", "HF_CKPT": "/model", "NO_PROXY": "10.1.1.1", "LANG": "C",
            "NCCL_IB_PKEY": "3", "HF_TOKEN": "hf_abc", "WANDB_API_KEY": "wb_abc"}
    found = ray_job.worker_variables(user, Config(master_addr="10.0.0.1"), "/p")
    assert (found["NCCL_DEBUG"], found["HF_HOME"], found["NCCL_IB_PKEY"]) == ("INFO", "/hf", "3")
    assert found["no_proxy"] == found["NO_PROXY"] == "127.0.0.1,localhost,10.0.0.1,10.1.1.1"
    assert not {"HF_CKPT", "LANG", "HF_TOKEN", "WANDB_API_KEY"} & set(found)
