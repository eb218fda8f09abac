"""How the launcher ends follows its job's state, through lost answers and broken logs; it stops its own job alone."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent.config import Config
from mem_agent.launch import ray_job
from mem_agent.system.errors import MemAgentError

ray = pytest.importorskip("ray.job_submission")
STATUS = ray.JobStatus


class Client:
    """Ray's client; ``states`` are used up one by one, except the last, and an exception among them is raised."""

    def __init__(self):
        self.states, self.jobs, self.refusals = [STATUS.SUCCEEDED], [], []
        self.submitted, self.stopped, self.log = [], [], ["line\n"]

    def list_jobs(self):
        return self.jobs

    def submit_job(self, **job):
        if self.refusals:
            raise self.refusals.pop(0)
        self.submitted.append(job)

    def stop_job(self, job):
        self.stopped.append(job)
        self.states = [STATUS.STOPPED]

    def get_job_status(self, job):
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, BaseException):
            raise state
        return state

    async def tail_job_logs(self, job):
        for line in self.log:
            if isinstance(line, BaseException):
                raise line
            yield line
            await asyncio.sleep(0)


@pytest.fixture
def client(monkeypatch):
    made = Client()
    monkeypatch.setattr(ray, "JobSubmissionClient", lambda address: made)
    monkeypatch.setattr(ray_job, "_POLL_S", 0.01)
    monkeypatch.setattr(ray_job.time, "sleep", lambda seconds: None)
    return made


def run(tmp_path, show=lambda lines: None, **settings):
    config = Config(save_path=str(tmp_path), **settings)
    command = ["python", "train.py", "--save", str(tmp_path)]
    ray_job.run_job(config, "http://127.0.0.1:8265", {"A": "1"}, command, tmp_path / "job.log", show)


def test_a_job_is_submitted_with_its_variables_and_its_log_is_kept(client, tmp_path):
    shown = []
    run(tmp_path, shown.append)
    (job,) = client.submitted
    assert job["runtime_env"] == {"env_vars": {"A": "1"}} and job["entrypoint"].endswith(f"--save {tmp_path}")
    assert shown == ["line\n"] and (tmp_path / "job.log").read_text() == "line\n"


def test_keys_go_to_a_joined_cluster_alone(client, tmp_path, monkeypatch):
    """A head of our own has them from our environment."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    run(tmp_path)
    run(tmp_path, ray_address="http://head:8265")
    assert [job["runtime_env"]["env_vars"].get("HF_TOKEN") for job in client.submitted] == [None, "hf_secret"]


def test_a_broken_log_does_not_end_a_job_and_a_lost_cluster_is_one_line(client, tmp_path):
    client.log.append(RuntimeError("closed"))
    client.states = [STATUS.RUNNING, STATUS.RUNNING, STATUS.SUCCEEDED]
    run(tmp_path)
    assert client.stopped == []
    client.states = [STATUS.FAILED]
    with pytest.raises(MemAgentError, match=r"FAILED.*job\.log"):
        run(tmp_path)
    client.states = [OSError("no route")]
    with pytest.raises(MemAgentError, match="no route"):
        run(tmp_path)


def test_an_interrupt_stops_the_job(client, tmp_path):
    client.states = [KeyboardInterrupt(), STATUS.RUNNING]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert client.stopped == [client.submitted[0]["submission_id"]]


def test_a_job_that_trains_in_the_folder_is_not_joined_by_another(client, tmp_path):
    job = SimpleNamespace(submission_id="old", status=STATUS.RUNNING, entrypoint=f"python train.py --save {tmp_path}")
    client.jobs = [job]
    with pytest.raises(MemAgentError, match="job old trains there"):
        run(tmp_path)
    job.status = STATUS.FAILED
    run(tmp_path)


def test_a_dropped_connection_and_a_late_agent_are_waited_for(client, tmp_path):
    client.refusals = [OSError("Connection aborted"), RuntimeError("No available agent to submit job")]
    client.states = [STATUS.RUNNING, OSError("Connection aborted"), STATUS.SUCCEEDED]
    run(tmp_path)
    assert len(client.submitted) == 1


def test_a_job_whose_acceptance_was_lost_is_followed(client, tmp_path):
    client.refusals = [OSError("Connection aborted"), RuntimeError("Job with submission_id 1 already exists")]
    run(tmp_path)
    assert (tmp_path / "job.log").read_text() == "line\n"


def test_no_head_is_one_line(silent_port):
    with pytest.raises(MemAgentError, match="no job was submitted"):
        ray_job.run_job(Config(), f"http://127.0.0.1:{silent_port}", {}, ["x"], None, print)


@pytest.mark.parametrize(("settings", "loopback"), [
    ({}, True), ({"master_addr": "10.0.0.7"}, False), ({"num_nodes": 2, "master_addr": "10.0.0.7"}, False),
])
def test_a_head_that_no_machine_joins_listens_on_loopback(settings, loopback):
    command = ray_job.head_command(Config(**settings), (1, 2), gpus=8)
    assert ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0" in command) == loopback


def test_library_settings_reach_workers_and_keys_and_own_settings_do_not():
    user = {"NCCL_DEBUG": "INFO", "HF_HOME": "/hf", "HF_CKPT": "/model", "NO_PROXY": "10.1.1.1", "LANG": "C",
            "NCCL_NVLS_ENABLE": "0", "NCCL_IB_PKEY": "3", "HF_TOKEN": "hf_abc", "WANDB_API_KEY": "wb_abc"}
    found = ray_job.worker_variables(user, Config(master_addr="10.0.0.1"), "/p", nvlink=True)
    assert (found["NCCL_DEBUG"], found["HF_HOME"], found["NCCL_IB_PKEY"]) == ("INFO", "/hf", "3")
    assert found["NCCL_NVLS_ENABLE"] == "0"  # the user's own
    assert found["no_proxy"] == found["NO_PROXY"] == "127.0.0.1,localhost,10.0.0.1,10.1.1.1"
    assert not {"HF_CKPT", "LANG", "HF_TOKEN", "WANDB_API_KEY"} & set(found)
