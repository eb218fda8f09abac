"""The fleet against stub engines behind the real router: order of calls, failures, replacement, nothing left."""

import asyncio
import os
import shlex
import shutil
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest
import torch
from safetensors.torch import load_file, save_file

from mem_agent.config import Config
from mem_agent.serving import control, fleet, servers
from mem_agent.serving.fleet import Fleet
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer
from mem_agent.tests.system.test_processes import group_members

STUB = Path(__file__).parents[1] / "helpers" / "stub_engine.py"
SYNC = ["pause", "reload_policy", "update_weight_version", "reset_prefix_cache", "resume"]
TENSORS = {"a.weight": torch.zeros(4), "b.weight": torch.ones(2, 3)}


class Stubs:
    """Stub engines instead of vLLM; ``options[index]`` are those of that engine's first start."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal.txt"
        self.options: dict[int, str] = {}

    def command(self, config: Config, model: Path, port: int, device: str, index: int) -> list[str]:
        return [sys.executable, str(STUB), str(port), str(self.journal), self.options.pop(index, "")]

    def calls(self) -> dict[str, list[str]]:
        """The control calls of each engine, by its URL."""
        result: dict[str, list[str]] = {}
        for line in self.journal.read_text().splitlines():
            port, call = line.split()
            result.setdefault(f"http://127.0.0.1:{port}", []).append(call)
        return result


@pytest.fixture
def stubs(tmp_path, monkeypatch) -> Stubs:
    stubs = Stubs(tmp_path)
    monkeypatch.setattr(servers, "engine_command", stubs.command)
    return stubs


@pytest.fixture
def model(tmp_path) -> Path:
    folder = tmp_path / "model"
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    save_file(TENSORS, folder / "model.safetensors")
    return folder


def make_fleet(model: Path, **settings) -> Fleet:
    return Fleet(Config(**settings), model, run_folder=model.parent / "run")


def groups(running: Fleet) -> list[int]:
    return [p.pid for p in running._processes]


def url_of(running: Fleet, index: int = 0) -> str:
    return running.engines[index].client.url


async def workers(running: Fleet) -> set[str]:
    async with aiohttp.ClientSession() as session, session.get(running.url + "/list_workers") as reply:
        return set((await reply.json())["urls"])


async def version(running: Fleet) -> str:
    """Of the engine that answers a request at the router."""
    async with aiohttp.ClientSession() as session:
        async with session.post(running.url + "/inference/v1/generate", json={"token_ids": [1]}) as reply:
            assert reply.status == 200, await reply.text()
            return (await reply.json(content_type=None))["version"]


@pytest.mark.asyncio
async def test_sync_order_on_every_engine_and_nothing_left_after_stop(stubs, model):
    async with make_fleet(model, num_engines=2) as running:
        with pytest.raises(FleetError, match=r"1 tensors .* missing, e\.g\. b\.weight"):
            await running.sync_weights({"a.weight": torch.zeros(4)}, "1")
        assert 0 < await running.sync_weights(TENSORS, "7") < 20
        assert len(await workers(running)) == 2 and await version(running) == "7"
        started, folder = groups(running), running._folder
        stored = load_file(folder / "model.safetensors")
        assert sorted(stored) == sorted(TENSORS) and torch.equal(stored["b.weight"], TENSORS["b.weight"])
        await running.start_over()
        shutil.rmtree(folder)  # systemd empties /dev/shm where a user's last session ends
        await running.sync_weights(TENSORS, "8")
        assert await version(running) == "8"
    assert list(stubs.calls().values()) == [["update_weight_version", *SYNC, *SYNC, *SYNC]] * 2
    assert len(started) == 3 and [group_members(g) for g in started] == [[], [], []]
    assert not folder.exists()


@pytest.mark.asyncio
async def test_an_engine_that_dies_while_it_loads_is_replaced_and_never_resumed(stubs, model, monkeypatch):
    monkeypatch.setattr(control, "LOOK_EVERY_S", 0.5)
    stubs.options = {0: "dies-in-reload"}
    async with make_fleet(model) as running:
        old = url_of(running)
        await running.sync_weights(TENSORS, "1")
        assert running.restarts == 1 and await workers(running) == {url_of(running)} != {old}
        assert await version(running) == "1"
    assert "resume" not in stubs.calls()[old] and list(stubs.calls().values())[-1] == SYNC


@pytest.mark.asyncio
async def test_a_killed_engine_comes_back_with_current_weights_before_the_router_knows_it(stubs, model, monkeypatch):
    monkeypatch.setattr(fleet, "MOST_RESTARTS", 1)  # between two syncs
    async with make_fleet(model, num_engines=2) as running:
        for number in ("5", "6"):
            await running.sync_weights(TENSORS, number)
            assert await running.ensure_alive() == 0
            os.killpg(running.engines[0].process.pid, signal.SIGKILL)
            assert await running.ensure_alive() == 1
            assert await workers(running) == {url_of(running, 0), url_of(running, 1)}
        running.engines[0].settled = False  # as after a cancelled sync: it may be paused with a broken model
        with pytest.raises(FleetError) as failure:
            await running.ensure_alive()
    assert list(stubs.calls().values())[2:] == [[*SYNC, *SYNC], SYNC]
    for part in ("1 servers", "engine-0", str(model.parent / "run/logs/engine-0.log")):
        assert part in str(failure.value) and "\n" not in str(failure.value)


@pytest.mark.asyncio
async def test_a_hung_engine_and_a_dead_router_are_replaced(stubs, model, monkeypatch):
    monkeypatch.setattr(fleet, "REPLACE_GRACE_S", 0.5)
    async with make_fleet(model) as running:
        url, group = running.url, running.engines[0].process.pid
        for pid in set(group_members(group)) - {group}:
            os.kill(pid, signal.SIGSTOP)
        assert await running.ensure_alive(0.5) == 1
        assert group_members(group) == [] and await version(running) == "0"
        os.killpg(running._router.pid, signal.SIGKILL)
        wait_for(lambda: running.out_of_service)
        assert await running.ensure_alive() == 1
        assert running.url == url and await version(running) == "0"


@pytest.mark.asyncio
async def test_what_an_engine_dies_of_is_the_error_of_its_start(stubs, model):
    stubs.options = {0: "never-healthy", 1: "dies"}
    running = make_fleet(model, num_engines=2)
    with pytest.raises(FleetError, match=r"engine-1 .*code 1; log .*ValueError: no room for the KV cache") as error:
        async with asyncio.timeout(HANGS_AFTER_S), running:
            pytest.fail("it serves")
    assert groups(running) == [] and "\n" not in str(error.value)


def test_a_bad_model_folder_or_port_is_one_line(model, tmp_path, capsys):
    assert fleet.main(["--model", str(tmp_path)]) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert fleet.main(["--model", str(model), "--port", str(port)]) == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "no config.json" in first and f"port {port} " in last


# --- command lines ---------------------------------------------------------------------------------------------------


def test_engine_command_line_and_environment_golden():
    config = Config(engine_max_len=1024, engine_args="--max-num-seqs 16 --x 'a b'", seed=3)
    command = servers.engine_command(config, Path("/models/m"), 20001, "cpu", 1)
    assert command[0] == sys.executable
    assert shlex.join(command[1:]) == (
        "-P -m mem_agent.serving.engine_server --model /models/m --served-model-name policy "
        "--host 127.0.0.1 --port 20001 --max-model-len 1024 "
        "--seed 4 --logprobs-mode processed_logprobs --generation-config vllm "
        "--worker-extension-cls mem_agent.serving.engine_server.PolicyReload "
        "--enable-prefix-caching "
        "--enable-prompt-tokens-details --dtype float32 --max-num-seqs 64 --block-size 32 "
        "--enable-scale-out --disable-uvicorn-access-log "
        "--no-enable-chunked-prefill --max-num-batched-tokens 4096 --kv-cache-memory-bytes 1073741824 "
        "--enforce-eager --distributed-executor-backend uni --max-num-seqs 16 --x 'a b'"
    )
    own = {"PATH": "/bin", "VLLM_CPU_KVCACHE_SPACE": "4", "OMP_NUM_THREADS": "8"}
    assert servers.engine_environment(own, "cpu", 0) == {
        "PATH": "/bin", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    }


@pytest.mark.parametrize(("engines", "visible", "count", "gpus", "share"), [
    (3, "4,5", 2, ["4", "5", "4"], "0.35"), (2, "", 2, ["0", "1", "0"], "0.7"),
    (2, "GPU-a,GPU-b,GPU-c", 1, ["GPU-a"] * 3, "0.35"),
])
def test_engines_share_the_gpus_that_exist(monkeypatch, engines, visible, count, gpus, share):
    """Compiled by vLLM's own server; ahead of time, which TORCHDYNAMO_DISABLE would forbid."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    base = {"CUDA_VISIBLE_DEVICES": visible, "TORCHDYNAMO_DISABLE": "1"}
    envs = [servers.engine_environment(base, "cuda", i) for i in range(3)]
    assert [env["CUDA_VISIBLE_DEVICES"] for env in envs] == gpus and "TORCHDYNAMO_DISABLE" not in envs[0]
    command = servers.engine_command(Config(num_engines=engines), Path("/models/m"), 20001, "cuda", 0)
    assert command[command.index("--gpu-memory-utilization") + 1] == share
    assert {"bfloat16", "vllm.entrypoints.openai.api_server"} < set(command) and "--enforce-eager" not in command
