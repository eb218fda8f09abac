"""The fleet against stub engines behind the real router: order of calls, failures, replacement, nothing left."""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import torch
from aiohttp import web
from safetensors.torch import load_file

from mem_agent.config import Config, ConfigError
from mem_agent.serving import control, fleet, servers
from mem_agent.serving.control import ControlError, EngineClient
from mem_agent.serving.engine_server import KEY_VARIABLE, RequireKey
from mem_agent.serving.fleet import Fleet, write_weights
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.stub_fleet import SYNC, TENSORS, make_fleet, model, port_of, stubs
from mem_agent.tests.system.test_processes import group_members

__all__ = ["model", "stubs"]


def groups(running: Fleet) -> list[int]:
    return [p.pid for p in running._processes]


async def ask_router(running: Fleet, path: str) -> dict:
    async with aiohttp.ClientSession() as session, session.get(running.url + path) as reply:
        return await reply.json()


async def generate(running: Fleet) -> dict:
    async with aiohttp.ClientSession() as session:
        async with session.post(running.url + "/inference/v1/generate", json={"token_ids": [1]}) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json(content_type=None)


@pytest.mark.asyncio
async def test_sync_order_on_every_engine_and_nothing_left_after_stop(stubs, model):
    async with make_fleet(model, num_engines=2) as running:
        seconds = await running.sync_weights(TENSORS, "7")
        assert 0 < seconds < 20
        assert len((await ask_router(running, "/workers"))["workers"]) == 2
        assert (await generate(running))["version"] == "7"
        started = groups(running)
        folder = running._folder
        stored = load_file(folder / "model.safetensors")
        assert sorted(stored) == sorted(TENSORS) and torch.equal(stored["b.weight"], TENSORS["b.weight"])
        assert [f.name for f in folder.iterdir()] == ["model.safetensors"]
    for calls in stubs.calls().values():
        assert calls == ["update_weight_version", *SYNC]
    assert len(started) == 3 and [group_members(g) for g in started] == [[], [], []]
    assert not folder.exists()


@pytest.mark.asyncio
async def test_a_wrong_version_is_an_error_and_nothing_is_left(stubs, model):
    stubs.options = {0: [["wrong-version", "child"]]}
    running = make_fleet(model)
    with pytest.raises(FleetError, match="reports weight version 'stale' instead of '0'"):
        async with running:
            raise AssertionError("must not become ready")
    assert groups(running) == []


@pytest.mark.asyncio
async def test_missing_tensors_are_refused_before_any_engine_is_touched(stubs, model):
    async with make_fleet(model) as running:
        with pytest.raises(FleetError, match=r"1 tensors .* missing, e\.g\. b\.weight"):
            await running.sync_weights({"a.weight": torch.zeros(4)}, "1")
        assert list(stubs.calls().values()) == [["update_weight_version"]]


@pytest.mark.asyncio
async def test_an_engine_that_cannot_load_is_replaced_and_never_resumed(stubs, model):
    stubs.options = {0: [["bad-reload=1"]]}
    async with make_fleet(model) as running:
        [old] = running.engine_urls
        await running.sync_weights(TENSORS, "1")
        [new] = running.engine_urls
        assert running.restarts == 1 and new != old
        assert (await ask_router(running, "/list_workers"))["urls"] == [new]
        assert (await generate(running))["version"] == "1"
    assert "resume" not in stubs.calls()[port_of(old)]
    assert stubs.calls()[port_of(new)] == SYNC


@pytest.mark.asyncio
async def test_an_engine_that_dies_while_it_is_given_weights_is_replaced_without_waiting_for_its_answer(stubs, model):
    stubs.options = {0: [["dies-in-reload"]]}
    async with make_fleet(model) as running:
        [old] = running.engine_urls
        async with asyncio.timeout(control.RELOAD_TIMEOUT_S / 2):
            await running.sync_weights(TENSORS, "1")
        [new] = running.engine_urls
        assert running.restarts == 1 and (await generate(running))["version"] == "1"
    assert stubs.calls()[port_of(old)][-1] == "reload_policy", "it is not asked again"
    assert stubs.calls()[port_of(new)] == SYNC


@pytest.mark.asyncio
async def test_a_killed_engine_comes_back_with_current_weights_before_the_router_knows_it(stubs, model):
    async with make_fleet(model, num_engines=2) as running:
        await running.sync_weights(TENSORS, "5")
        assert await running.ensure_alive() == 0
        victim, other = running.engine_urls
        os.killpg(running.engine_pids[0], signal.SIGKILL)
        assert await running.ensure_alive() == 1
        replaced = running.engine_urls[0]
        assert set((await ask_router(running, "/list_workers"))["urls"]) == {replaced, other}
    assert victim != replaced and stubs.calls()[port_of(replaced)] == SYNC


@pytest.mark.asyncio
async def test_a_hung_engine_is_replaced(stubs, model, monkeypatch):
    monkeypatch.setattr(fleet, "REPLACE_GRACE_S", 0.5)
    async with make_fleet(model) as running:
        [group] = running.engine_pids
        for pid in set(group_members(group)) - {group}:
            os.kill(pid, signal.SIGSTOP)
        assert await running.ensure_alive(0.5) == 1
        assert group_members(group) == []
        assert (await generate(running))["version"] == "0"


@pytest.mark.asyncio
async def test_a_dead_router_comes_back_at_its_address_with_the_engines(stubs, model):
    async with make_fleet(model) as running:
        url = running.url
        os.killpg(running._router.pid, signal.SIGKILL)
        assert await running.ensure_alive() == 1
        assert running.url == url and (await generate(running))["version"] == "0"


@pytest.mark.asyncio
async def test_restarts_are_limited_and_the_error_names_engine_code_log_and_cause(stubs, model, monkeypatch):
    monkeypatch.setattr(fleet, "MOST_RESTARTS", 0)
    async with make_fleet(model) as running:
        os.killpg(running.engine_pids[0], signal.SIGKILL)
        wait_for(lambda: not group_members(running.engine_pids[0]))
        with pytest.raises(FleetError) as failure:
            await running.ensure_alive()
    message = str(failure.value)
    assert "\n" not in message
    for part in ("0 servers", "engine-0", "code 137", str(model.parent / "run/logs/engine-0.log")):
        assert part in message


@pytest.mark.asyncio
async def test_what_an_engine_dies_of_at_its_first_request_is_the_error_of_its_start(stubs, model):
    """A head size without a kernel: healthy, and dead once a prompt is read. The router would only say 503."""
    stubs.options = {0: [["dies-at-work"]]}
    with pytest.raises(FleetError, match=r"engine-0 .*engine-0\.log: RuntimeError: Unsupported head_dim=20 \(its "
                                         r"first request failed: .* answered 500") as error:
        async with make_fleet(model):
            pytest.fail("it serves")
    assert "\n" not in str(error.value)


@pytest.mark.asyncio
async def test_an_engine_that_dies_at_start_stops_the_others_at_once(stubs, model):
    stubs.options = {0: [["never-healthy"]], 1: [["dies"]]}
    running = make_fleet(model, num_engines=2)
    with pytest.raises(FleetError, match=r"engine-1 .*exited with code 1; log .*ValueError: no room for the KV cache"):
        async with asyncio.timeout(HANGS_AFTER_S):
            await running.__aenter__()
    assert groups(running) == []


@pytest.mark.asyncio
async def test_cancellation_while_starting_leaves_nothing(stubs, model):
    stubs.options = {0: [["never-healthy"]]}
    running = make_fleet(model)
    task = asyncio.create_task(running.__aenter__())
    while len(groups(running)) < 2:
        await asyncio.sleep(0.05)
    started = groups(running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [group_members(g) for g in started] == [[], []]


@pytest.mark.asyncio
async def test_a_sync_that_was_cut_short_is_repaired_by_ensure_alive(stubs, model):
    async with make_fleet(model) as running:
        running._engines[0].settled = False  # as after a cancelled sync: it may be paused with a broken model
        assert await running.ensure_alive() == 1
        assert (await generate(running))["version"] == "0"


@pytest.mark.asyncio
@pytest.mark.parametrize("needs_weights", [Fleet.start_over, Fleet.ensure_alive])
async def test_an_engine_never_serves_the_starting_weights_under_the_name_of_others(stubs, model, needs_weights):
    """The folder of the weights is gone between two syncs: systemd's RemoveIPC empties /dev/shm."""
    async with make_fleet(model) as running:
        await running.sync_weights(TENSORS, "5")
        shutil.rmtree(running._folder)
        [engine] = running._engines
        engine.process.stop(0.0)
        with pytest.raises(FleetError, match=r"model\.safetensors: was removed .* same command continues") as error:
            await needs_weights(running)
        assert "\n" not in str(error.value) and not engine.settled
        assert list(stubs.calls().values()) == [["update_weight_version", *SYNC]], "those of the one that was stopped"


@pytest.mark.asyncio
async def test_a_sync_makes_the_folder_of_the_weights_again(stubs, model):
    async with make_fleet(model) as running:
        await running.sync_weights(TENSORS, "1")
        shutil.rmtree(running._folder)
        await running.sync_weights(TENSORS, "2")
        assert (await generate(running))["version"] == "2" and running.restarts == 0
    assert not running._folder.exists()


def test_tied_and_strided_tensors_can_be_stored(tmp_path):
    embedding = torch.arange(12.0).reshape(3, 4)
    parts = {"embed": embedding, "head": embedding, "t": embedding.t(), "p": torch.nn.Parameter(embedding[1:])}
    write_weights(parts, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(stored[name], tensor) for name, tensor in parts.items())
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.asyncio
async def test_a_run_that_goes_on_may_lose_a_server_again(stubs, model, monkeypatch):
    monkeypatch.setattr(fleet, "MOST_RESTARTS", 1)
    async with make_fleet(model) as running:
        for version in ("1", "2"):
            os.killpg(running.engine_pids[0], signal.SIGKILL)
            assert await running.ensure_alive() == 1
            await running.sync_weights(TENSORS, version)
        assert running.restarts == 2


def test_engine_command_line_golden():
    config = Config(engine_max_len=1024, engine_args="--max-num-seqs 16 --x 'a b'", seed=3)
    command = servers.engine_command(config, Path("/models/m"), 20001, "cpu", 1)
    assert command[0] == sys.executable
    assert shlex.join(command[1:]) == (
        "-P -m mem_agent.serving.engine_server --model /models/m --served-model-name policy "
        "--host 127.0.0.1 --port 20001 --max-model-len 1024 "
        "--seed 4 --logprobs-mode processed_logprobs --generation-config vllm "
        "--worker-extension-cls mem_agent.serving.engine_server.PolicyReload "
        "--middleware mem_agent.serving.engine_server.RequireKey --enable-prefix-caching "
        "--enable-prompt-tokens-details --dtype float32 --max-num-seqs 64 --block-size 32 "
        "--enable-scale-out --disable-uvicorn-access-log "
        "--no-enable-chunked-prefill --max-num-batched-tokens 4096 --kv-cache-memory-bytes 1073741824 "
        "--enforce-eager --distributed-executor-backend uni --max-num-seqs 16 --x 'a b'"
    )


def test_flags_that_no_shell_could_read_are_a_bad_setting():
    with pytest.raises(ConfigError, match="ENGINE_ARGS"):
        servers.engine_command(Config(engine_args="--x 'a"), Path("/models/m"), 20001, "cpu", 0)


def test_engine_environment_golden():
    env = servers.engine_environment({"PATH": "/bin", "VLLM_CPU_KVCACHE_SPACE": "4", "OMP_NUM_THREADS": "8"}, "cpu", 0)
    assert env == {
        "PATH": "/bin", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    }
    own = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024"}
    assert own.items() <= servers.engine_environment(own, "cpu", 0).items()


@pytest.mark.parametrize(("visible", "count", "expected"), [
    ("4,5", 2, ["4", "5", "4"]), ("", 1, ["0", "0", "0"]), ("", 2, ["0", "1", "0"]),
    ("GPU-a,GPU-b,GPU-c", 1, ["GPU-a"] * 3),
])
def test_engines_get_gpus_that_exist_in_turns(monkeypatch, visible, count, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    found = [servers.engine_environment({"CUDA_VISIBLE_DEVICES": visible}, "cuda", i) for i in range(3)]
    assert [env["CUDA_VISIBLE_DEVICES"] for env in found] == expected


def test_without_a_gpu_an_engine_on_one_is_a_bad_setting(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES"):
        servers.engine_environment({}, "cuda", 0)


def test_engines_on_cuda_are_compiled(monkeypatch):
    """vLLM 0.32 compiles ahead of time, and fails with TORCHDYNAMO_DISABLE. Here was no GPU to run it on."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "TORCHDYNAMO_DISABLE" not in servers.engine_environment({"TORCHDYNAMO_DISABLE": "1"}, "cuda", 0)


@pytest.mark.parametrize(("engines", "gpus", "share"), [(1, 1, "0.7"), (2, 2, "0.7"), (2, 1, "0.35"), (3, 2, "0.35")])
def test_engines_take_their_share_of_a_gpus_memory(monkeypatch, engines, gpus, share):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    config = Config(num_engines=engines)
    command = servers.engine_command(config, Path("/models/m"), 20001, "cuda", 0)
    assert command[command.index("--gpu-memory-utilization") + 1] == share
    assert "bfloat16" in command and "--enforce-eager" not in command


def test_router_command_line_golden():
    command = servers.router_command(20001, 20002)
    assert " ".join(command[1:]).startswith(
        "-P -m vllm_router.launch_router --host 127.0.0.1 --port 20001 --prometheus-host 127.0.0.1 "
        "--prometheus-port 20002 --policy sticky_least_loaded --log-level warning --request-timeout-secs 600 "
    )
    assert servers.router_environment({"HTTP_PROXY": "http://p"})["NO_PROXY"] == "127.0.0.1,localhost"


@pytest.mark.asyncio
async def test_a_fleet_is_out_of_service_without_its_router_or_without_its_last_engine(stubs, model):
    async with make_fleet(model, num_engines=2) as running:
        first, second = (e.process for e in running._engines)
        for process, last in ((first, False), (second, True)):
            assert not running.out_of_service
            os.killpg(process.pid, signal.SIGKILL)
            wait_for(lambda process=process: process.exit_code is not None)
            assert running.out_of_service is last
    async with make_fleet(model) as running:
        os.killpg(running._router.pid, signal.SIGKILL)
        wait_for(lambda: running.out_of_service)


@pytest.mark.asyncio
@pytest.mark.parametrize(("path", "header", "passed"), [
    ("/pause", b"Bearer key", True), ("/pause", b"Bearer other", False), ("/pause", b"", False),
    ("/health", b"", True),
])
async def test_control_calls_need_the_key(monkeypatch, path, header, passed):
    monkeypatch.setenv(KEY_VARIABLE, "key")
    reached, sent = [], []

    async def app(scope, receive, send):
        reached.append(scope["path"])

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": path, "headers": [(b"authorization", header)]}
    await RequireKey(app)(scope, None, send)
    assert bool(reached) == passed and [m["status"] for m in sent if "status" in m] == ([] if passed else [401])


def test_only_engines_on_cpu_are_forked(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    config = Config(engine_max_len=64)
    modules = [servers.engine_command(config, tmp_path, 1, device, 0)[3] for device in ("cpu", "cuda")]
    assert modules == ["mem_agent.serving.engine_server", "vllm.entrypoints.openai.api_server"]


@pytest.mark.asyncio
async def test_a_server_that_answers_something_else_is_one_line():
    async def answer(_):
        return web.Response(text="<html>a proxy</html>", status=502)

    app = web.Application()
    app.router.add_post("/pause", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ControlError, match=r"/pause.* answered 502: <html>a proxy"):
            await EngineClient(url, session).load(Path(), "1")
    await runner.cleanup()

FORKED = """
from mem_agent.serving.engine_server import fork_engines
fork_engines()
from vllm.v1.engine import utils
print(utils.get_mp_context().get_start_method())
"""


@pytest.mark.parametrize(("env", "code", "said"), [
    ({"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}, 0, "fork"),
    ({"OMP_NUM_THREADS": "2"}, 1, "OpenMP threads that are gone"),
])
def test_vllm_forks_its_engine_where_it_has_one_thread(env, code, said):
    env = servers.engine_environment(os.environ, "cpu", 0) | env
    done = subprocess.run([sys.executable, "-c", FORKED], env=env, capture_output=True, text=True)
    assert done.returncode == code and said in done.stdout + done.stderr
