"""How the launcher ends follows its job's state, through lost answers and broken logs; it stops its own job alone."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from mem_agent.config import Config, ConfigError
from mem_agent.launch import machine, ray_cluster
from mem_agent.launch.launch import print_log
from mem_agent.system.errors import MemAgentError
from mem_agent.system.ports import free_ports, hold_port
from mem_agent.tests.helpers.fake_job_server import FakeJobServer, lead_astray, serving

pytest.importorskip("ray")
from mem_agent.launch import job_server, ray_jobs
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

COMMAND = ["python", "train.py", "--wandb-group", "my run"]
JOB = "/api/jobs/mine"


@pytest.fixture
def server(monkeypatch):
    lead_astray(monkeypatch)
    monkeypatch.setattr(ray_jobs, "_POLL_S", 0.01)
    monkeypatch.setattr(job_server, "_TIMEOUT_S", HANGS_AFTER_S)
    with serving(FakeJobServer()) as fake:
        yield fake


@pytest.fixture
def run(server, tmp_path):
    """``run()`` runs the job "mine" on ``server``."""
    (tmp_path / "runtime_env.yaml").write_text(yaml.safe_dump({"env_vars": {"A": "1"}}))
    environment, log = tmp_path / "runtime_env.yaml", tmp_path / "job.log"
    where = server.address, "mine", environment
    return lambda patience=HANGS_AFTER_S, head_port=0: ray_jobs.run_job(
        *where, COMMAND, log, print_log, patience, head_port)


@pytest.fixture
def pauses(monkeypatch):
    """Those between two questions; time passes in them alone, and they take none."""
    taken = []
    monkeypatch.setattr(ray_jobs, "time", SimpleNamespace(sleep=taken.append, monotonic=lambda: sum(taken)))
    return taken


@pytest.fixture
def short_for_silence(server, monkeypatch):
    """A request that the server does not answer is given up soon; all others have time."""
    ask = job_server.JobServer._do_request

    def asked(self, method, endpoint, **options):
        answer = {("POST", "/api/jobs/"): server.submissions[0][0], ("GET", JOB): server.states[0]}
        silent = answer.get((method, endpoint), 200) is None
        monkeypatch.setattr(job_server, "_TIMEOUT_S", 0.3 if silent else HANGS_AFTER_S)
        return ask(self, method, endpoint, **options)

    monkeypatch.setattr(job_server.JobServer, "_do_request", asked)


def test_the_job_is_submitted_once_with_its_command_and_the_runtime_env_of_the_file(run, server):
    run()
    (submitted,) = server.submitted
    assert submitted["submission_id"] == "mine" and shlex.split(submitted["entrypoint"]) == COMMAND
    assert submitted["runtime_env"] == {"env_vars": {"A": "1"}}
    assert all(asked == "POST /api/jobs/" or JOB in asked for asked in server.asked)
    assert f"POST {JOB}/stop" not in server.asked


@pytest.mark.parametrize("states", [
    ["PENDING", "RUNNING", "SUCCEEDED"], [500, "RUNNING", 404, "SUCCEEDED"], ["strange", "SUCCEEDED"],
])
def test_a_log_that_breaks_and_answers_that_fail_leave_the_end_to_the_jobs_state(states, run, server, caplog):
    server.states = states
    run()
    assert server.states == ["SUCCEEDED"] and "the log of job mine breaks off here" in caplog.text


@pytest.mark.parametrize("state", ["FAILED", "STOPPED"])
def test_a_job_that_does_not_succeed_is_one_line(state, run, server):
    server.states, server.message = [state], "Job entrypoint command failed\nwith exit code 3\n"
    with pytest.raises(MemAgentError) as error:
        run()
    assert str(error.value) == f"job mine {state}: Job entrypoint command failed with exit code 3; its log is above"


RAISED = "mem_agent.hooks.survivors.AllFailed: all 8 trajectories of a rollout failed"
TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 53, in train',
             "ray.exceptions.RayTaskError(AllFailed): ray::Manager.generate()", "    require(samples)", RAISED]
WORKERS = [f"(Actor pid=7) ValueError: {number}" for number in range(10)]


@pytest.mark.parametrize("message,logged,reason", [
    ([*TRACEBACK, *WORKERS[:5]], [], RAISED),
    (WORKERS, [*TRACEBACK, *WORKERS], RAISED),
    (["ValueError: x"], [], "ValueError: x"),
    ([RAISED], ["KeyError: 'before the log broke off'"], RAISED),
    (["failed with exit code 137, last available logs (truncated to 20,000 chars):", "{'a': 0}"], [],
     "failed with exit code 137"),
], ids=["in the message", "in the log", "of an earlier run", "in the message alone", "killed"])
def test_a_job_that_raised_is_the_line_that_it_raised_last(tmp_path, message, logged, reason):
    log, earlier = tmp_path / "job.log", "KeyError: 'of an earlier run'\n"
    log.write_text(earlier + "".join(f"{line}\n" for line in logged))
    assert ray_jobs._reason("\n".join(message), log, len(earlier)) == reason


@pytest.mark.parametrize("lost", [503, None])
def test_a_cluster_that_is_gone_too_long_ends_the_launch(lost, run, server, monkeypatch, pauses, short_for_silence):
    """With an answer that says nothing, and without one."""
    monkeypatch.setattr(ray_jobs, "_POLL_S", 250.0)
    server.states = ["RUNNING", lost]
    with pytest.raises(MemAgentError, match="job mine: its cluster does not answer any more: "):
        run()
    assert pauses == [250.0] * 3 and f"POST {JOB}/stop" not in server.asked  # gone after 750 s, not after 500


def test_an_answer_without_end_is_lost_and_not_read(run, server, monkeypatch):
    monkeypatch.setattr(ray_jobs, "_LOST_AFTER_S", 0.0)
    monkeypatch.setattr(job_server, "_MOST_BYTES", 2**20)
    server.message = "x" * 2**21
    with pytest.raises(MemAgentError, match="cluster does not answer any more: its answer is longer than 1048576 by"):
        run()
    server.message = "x" * 2**19
    run()


def test_each_answer_begins_the_time_that_a_cluster_may_be_away_anew(run, server, monkeypatch, pauses):
    monkeypatch.setattr(ray_jobs, "_POLL_S", 250.0)
    server.states = [*[503, "RUNNING"] * 5, "SUCCEEDED"]
    run()
    assert pauses == [250.0] * 10


@pytest.mark.parametrize("after", ["POST /api/jobs/", f"GET {JOB}/logs/tail", f"GET {JOB}"])
@pytest.mark.parametrize("users", [set(), {12345}], ids=["nobody", "another user"])
def test_whoever_has_the_port_of_our_dead_head_is_not_asked(users, after, run, server, monkeypatch, pauses):
    """Once the launcher has been there; what it sends has the user's token."""
    monkeypatch.setattr(ray_jobs, "_POLL_S", 250.0)
    me = {os.geteuid()}
    monkeypatch.setattr(job_server, "listening_users", lambda port: users if after in server.asked else me)
    server.states = ["RUNNING", "SUCCEEDED"]
    with pytest.raises(MemAgentError, match=r"cluster does not answer any more: the Ray head .* gone from port 80$"):
        run(head_port=80)
    assert server.asked[-1] == after and server.asked.count(after) == 1


@pytest.fixture
def interrupted(monkeypatch):
    """A Ctrl-C comes in the first pause between two questions; later pauses take no time."""
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(ray_jobs.time, "sleep", sleep)


@pytest.mark.parametrize("states,stops,asked", [
    (["RUNNING", "STOPPED"], [200], 1),
    (["RUNNING", "RUNNING", "RUNNING", "STOPPED"], [200], 3),
    (["RUNNING", "STOPPED"], [404, 404, 200], 3),  # its submission was still under way
])
def test_an_interrupt_stops_the_job_and_waits_for_its_end(states, stops, asked, run, server, interrupted):
    server.states, server.stops = states, stops
    with pytest.raises(KeyboardInterrupt):
        run()
    assert server.asked.count(f"POST {JOB}/stop") == asked and server.states == ["STOPPED"]


@pytest.mark.parametrize("stops,says", [([404], "could not be stopped: "), ([200], "has not stopped within a minute")])
def test_a_job_that_cannot_be_stopped_does_not_hold_the_launcher(stops, says, run, server, interrupted, caplog):
    server.states, server.stops = ["RUNNING"], stops
    with pytest.raises(KeyboardInterrupt):
        run()
    assert f"job mine {says}" in caplog.text


@pytest.mark.parametrize("submission", [400, 500, None])
def test_a_submission_that_fails_is_one_line_and_leaves_no_job(submission, run, server, short_for_silence):
    """One without an answer may have arrived all the same."""
    server.submissions, server.states = [(submission, "no")], ["STOPPED"]
    with pytest.raises(MemAgentError, match="job mine was not accepted: ") as error:
        run()
    assert "\n" not in str(error.value) and f"POST {JOB}/stop" in server.asked


def test_a_job_is_offered_until_the_head_has_an_agent_to_start_it(run, server, monkeypatch, caplog):
    """A head under load lists its machine a minute before the agent that starts jobs is up; that is said once."""
    caplog.set_level("INFO", "mem_agent")
    monkeypatch.setattr(ray_jobs, "_RETRY_S", 0.01)
    no_agent = (500, "No available agent to submit job, please try again later.")
    server.submissions = [no_agent, no_agent, (200, {"job_id": None, "submission_id": "mine"})]
    run()
    assert len(server.submitted) == 3 and f"POST {JOB}/stop" not in server.asked
    assert sum("no agent yet" in message for message in caplog.messages) == 1


def test_a_head_that_never_gets_an_agent_is_one_line(run, server, monkeypatch):
    monkeypatch.setattr(ray_jobs, "_RETRY_S", 0.01)
    server.submissions, server.states = [(500, "No available agent to submit job")], ["STOPPED"]
    with pytest.raises(MemAgentError, match=r"job mine was not accepted: .*No available agent"):
        run(patience=0.05)


with ray_jobs.new_job() as LEFT:
    """Its launcher is gone."""


@pytest.fixture
def left(server, tmp_path):
    """``left(...)``: the cluster has a job that trains in ``tmp_path / "run"``, but for what is said otherwise."""
    (tmp_path / "run").mkdir()

    def put(name=LEFT, status="RUNNING", folder=tmp_path / "run", command=""):
        ours = shlex.join([*COMMAND, "--load", str(tmp_path / "run"), "--save", str(folder), "--save-interval"])
        server.jobs.append({"type": "SUBMISSION", "entrypoint": command or ours, "submission_id": name,
                            "status": status})

    return put


def test_the_job_of_a_launcher_that_was_killed_is_stopped_and_no_other_one(left, server, tmp_path):
    left("mem_agent-20261125-134216-1", folder=tmp_path / "another")
    left("mem_agent-20261125-134216-2", "FAILED")
    left("somebody's")
    left(None)
    (tmp_path / "link").symlink_to("run")
    assert not machine.trains_there_already(server.address, str(tmp_path / "run"))
    left(folder=tmp_path / "link")
    assert machine.trains_there_already(server.address, str(tmp_path / "run"))
    server.states = ["RUNNING", "STOPPED"]
    ray_jobs.stop_earlier_jobs(server.address, str(tmp_path / "run"))
    assert {asked for asked in server.asked if asked.startswith("POST")} == {f"POST /api/jobs/{LEFT}/stop"}
    assert server.states == ["STOPPED"]


@pytest.mark.parametrize("whose", ["of a launcher that lives", "of another machine", "of an earlier version"])
def test_a_job_whose_launcher_may_live_is_not_stopped(whose, left, server, tmp_path, monkeypatch):
    """It may have another folder of the same name, in its container or on its machine."""
    elsewhere, before = "mem_agent-20261125-134216-5e1ff0000078-9c41d2aa", "mem_agent-20261125-134216-20076"
    with ray_jobs.new_job() as living:
        name = {"of a launcher that lives": living, "of another machine": elsewhere}.get(whose, before)
        left(name)
        with pytest.raises(MemAgentError) as error:
            ray_jobs.stop_earlier_jobs(server.address, str(tmp_path / "run"))
    assert str(error.value) == (
        f"SAVE_PATH={tmp_path / 'run'}: job {name} of {server.address} trains there, and its launcher may live; if "
        f"you know that it does not, stop the job: ray job stop --address {server.address} {name}")
    assert machine.trains_there_already(server.address, str(tmp_path / "run")) and server.asked[0] == "GET /api/jobs/"
    assert not [asked for asked in server.asked if asked.startswith("POST")]


@pytest.mark.parametrize("command", ["python -c 'oops --save RUN", "train --save 'RUN\0'", "train --save '\ud800'",
                                     "x" * 2**25 + " --save RUN"], ids=["quote", "NUL", "half", "long"])
def test_a_strangers_job_of_any_command_trains_elsewhere(command, left, server, tmp_path):
    left(command=command.replace("RUN", str(tmp_path / "run")))
    assert ray_jobs.earlier_jobs(server.address, str(tmp_path / "run")) == []


def test_a_job_that_was_left_and_goes_on_is_one_line(left, server, tmp_path, pauses):
    left()
    server.states = ["RUNNING"]
    with pytest.raises(MemAgentError, match=f"job {LEFT} of {server.address} still trains there; stop it: ray"):
        ray_jobs.stop_earlier_jobs(server.address, str(tmp_path / "run"))


def test_a_cluster_that_does_not_list_its_jobs_is_one_line(server, tmp_path):
    server.jobs = [{"status": "strange"}]
    with pytest.raises(MemAgentError, match=f"RAY_ADDRESS={server.address}: its jobs cannot be listed: ") as error:
        ray_jobs.stop_earlier_jobs(server.address, str(tmp_path))
    assert "\n" not in str(error.value) and not machine.trains_there_already(server.address, str(tmp_path))


@pytest.fixture
def asked(server, tmp_path):
    """``asked(token)``: what a launcher says of the cluster whose user has ``token``, in a HOME of its own."""
    code = ("import sys; from mem_agent.launch.machine import machines\n"
            "try: print(machines(sys.argv[1]))\nexcept ValueError as error: print(type(error).__name__, error)")

    def ask(token, **variables):
        (tmp_path / ".ray").mkdir()
        if token:
            (tmp_path / ".ray" / "auth_token").write_text(token)
        env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH_")} | {"HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code, server.address], env=env | variables,
                              capture_output=True, text=True, timeout=HANGS_AFTER_S)
        return done.stdout.strip()

    return ask


@pytest.mark.parametrize("has,variables", [("theirs", {}), ("", {"RAY_AUTH_TOKEN": "theirs"}),
                                           ("other", {"RAY_AUTH_TOKEN_PATH": "HOME/theirs"})])
def test_a_cluster_is_asked_with_the_users_token_wherever_it_is(has, variables, asked, server, tmp_path):
    server.token = "theirs"
    (tmp_path / "theirs").write_text("theirs")
    assert asked(has, **{k: v.replace("HOME", str(tmp_path)) for k, v in variables.items()}) == "[]"


@pytest.mark.parametrize("has,variables,message", [
    ("", {}, "wants a token, and none was sent; set RAY_AUTH_TOKEN_PATH to a file with the cluster's"),
    ("other", {}, "does not accept this user's token; set RAY_AUTH_TOKEN_PATH to a file"),
    ("theirs", {"RAY_AUTH_MODE": "disabled"}, "and none was sent; RAY_AUTH_MODE=disabled keeps it back, unset that"),
])
def test_a_cluster_with_another_token_is_one_line(has, variables, message, asked, server):
    server.token = "theirs"
    said = asked(has, **variables)
    assert said.startswith(f"TokenRefused {server.address}: Ray's job server ") and message in said
    assert "\n" not in said


def test_a_head_that_wants_another_token_ends_the_wait_at_once(server, tmp_path):
    server.token = "theirs"
    port = int(server.address.rpartition(":")[2])
    head = SimpleNamespace(exit_code=None, log_path=tmp_path / "log")
    with pytest.raises(MemAgentError, match=f"the Ray head was started, and {server.address}: Ray's job"):
        ray_cluster._wait_for_machines(Config(ray_dashboard_port=port), 1, head)


def test_a_head_whose_port_another_user_has_is_not_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(ray_cluster, "listening_users", lambda port: {os.geteuid(), 12345})
    monkeypatch.setattr(ray_cluster, "machines", lambda address: pytest.fail("it was sent a token"))
    head = SimpleNamespace(exit_code=None, log_path=tmp_path / "log")
    with pytest.raises(MemAgentError, match="RAY_DASHBOARD_PORT=8265: another user of this machine listens there"):
        ray_cluster._wait_for_machines(Config(), 1, head)


def test_a_head_that_has_ended_did_not_start_whoever_answers_in_its_place(server, tmp_path):
    server.nodes = [{"node_id": "a", "state": "ALIVE", "resources_total": {"GPU": 1.0}}]
    codes = [None, 1, 1]
    head = type("Head", (), {"exit_code": property(lambda _: codes.pop(0)), "log_path": tmp_path / "log"})()
    with pytest.raises(MemAgentError, match="the Ray head did not start"):
        ray_cluster._wait_for_machines(Config(ray_dashboard_port=int(server.address.rpartition(":")[2])), 1, head)


def test_the_ports_of_a_head_are_held_for_it(unused):
    config = Config(ray_port=unused[0], ray_dashboard_port=unused[1])
    with ray_cluster.held_ports(config):
        with pytest.raises(ConfigError, match=f"^RAY_PORT={unused[0]}: .* held by another run; choose another"):
            with ray_cluster.held_ports(config):
                pass
        with ray_cluster.held_ports(Config(ray_port=unused[0], ray_address="http://head:8265")):
            pass
    with ray_cluster.held_ports(config):
        pass


@pytest.fixture
def unused():
    """Three ports, of which the last two are neighbours."""
    for first in free_ports(100):
        if all(hold is not None and not hold.close() for hold in map(hold_port, (first, first + 1, first + 2))):
            return first, first + 1
    pytest.fail("no three ports are free")


@pytest.mark.parametrize(("named", "nodes", "parent"), [
    ("TMP", 1, "TMP"), ("", 1, "/tmp"), ("/a/folder/that/is/too/long", 1, "/tmp"), ("", 2, None),
])
def test_a_head_has_a_folder_of_its_own_for_its_sockets(named, nodes, parent, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setenv("RAY_TMPDIR", named.replace("TMP", short))
        monkeypatch.setattr(tempfile, "gettempdir", lambda: "/tmp")
        with ray_cluster._own_files(Config(num_nodes=nodes)) as variables:
            if parent is None:
                assert variables == {}
                return
            folder = Path(variables["RAY_TMPDIR"])
            assert folder.parent == Path(parent.replace("TMP", short)) and folder.stat().st_mode & 0o777 == 0o700
            (folder / "ray").mkdir()
        assert not folder.exists()


def test_a_token_in_a_variable_reaches_our_head_as_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    environment = ray_cluster._head_environment(Config(), tmp_path / "head")  # which a rehearsal has not made
    file = Path(environment["RAY_AUTH_TOKEN_PATH"])
    assert file.read_text() == "mine" and file.stat().st_mode & 0o777 == 0o600 and "RAY_AUTH_TOKEN" not in environment


@pytest.mark.parametrize(("settings", "variable", "has"), [
    ({}, None, "0"), ({"master_addr": "localhost"}, None, "0"), ({}, "1", "1"),
    ({"master_addr": "10.0.0.7"}, None, None), ({"num_nodes": 2, "master_addr": "10.0.0.7"}, None, None),
])
def test_a_head_that_no_machine_joins_listens_on_loopback(tmp_path, monkeypatch, settings, variable, has):
    """All of Ray's processes then do: `test_ray.py`."""
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(name, variable) if variable else None
    assert ray_cluster._head_environment(Config(**settings), tmp_path).get(name) == has


@pytest.mark.parametrize(("changes", "made"), [
    ({}, True), ({"RAY_AUTH_TOKEN": "mine"}, False), ({"RAY_AUTH_TOKEN_PATH": "/mine"}, False),
    ({"RAY_AUTH_MODE": "disabled"}, False), ({"file": "mine"}, False), ({"nodes": "2"}, False),
    ({"home": "none"}, True),
])
def test_a_head_for_one_machine_has_a_token_where_the_user_has_none(tmp_path, monkeypatch, changes, made):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in changes.items():
        monkeypatch.setenv(name, value) if name.isupper() else None
    if "home" in changes:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)  # of which no passwd knows
    if "file" in changes:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("mine")
    heads = []

    def head(name, command, environment, *_, **__):
        heads.append(environment)
        return SimpleNamespace(stop=lambda grace_s: None)

    monkeypatch.setattr(ray_cluster, "ChildProcess", head)
    monkeypatch.setattr(ray_cluster, "_wait_for_machines", lambda *_: None)
    before, tokens = dict(os.environ), tmp_path / "tokens"
    tokens.mkdir() if not made else None
    own = tokens / "ray_token"
    with ray_cluster.cluster(Config(num_nodes=int(changes.get("nodes", 1))), 8, 0, tmp_path / "log", tokens):
        (environment,) = heads
        if made:
            assert len(own.read_text()) == 64 and own.stat().st_mode & 0o777 == 0o600
            assert environment["RAY_AUTH_TOKEN_PATH"] == str(own) and "RAY_AUTH_MODE" not in environment
            assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(own)  # by which the job is submitted
            assert Path(environment["RAY_TMPDIR"]).stat().st_mode & 0o777 == 0o700
        else:
            assert environment.get("RAY_AUTH_MODE") == before.get("RAY_AUTH_MODE") and dict(os.environ) == before
    assert dict(os.environ) == before and not own.exists()


def test_a_joined_cluster_is_neither_started_nor_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_cluster, "ChildProcess", None)
    with ray_cluster.cluster(Config(ray_address="http://head:8265"), 8, 0, tmp_path / "log", tmp_path / "tokens"):
        pass
