"""One vLLM server: how it is started, and the calls that control it.

Control calls go straight to the server's own URL. The router would pass them to whichever single worker it likes.
Every call either did what it says or raises ``EngineError``; nothing here retries.

Settings that are more than taste:

- ``--logprobs-mode processed_logprobs``: the returned log-probs are those of the distribution that was sampled from,
  at any temperature.
- ``--enable-scale-out`` and ``VLLM_SERVER_DEV_MODE=1``: without them the token-in-token-out and the weight endpoints
  answer 403 and 404.
- ENGINE_ARGS stands last, and of two flags of one name vLLM takes the last.
- On CPU, one executor without a shared-memory queue and one OpenMP thread: other settings spin on the cores that the
  trainer needs. ``VLLM_CPU_KVCACHE_SPACE`` is removed because it would override ``--kv-cache-memory-bytes``. Dynamo is
  off because even an eager server would otherwise run a C++ compiler for many seconds within the first request. The
  engine process is forked from the API server's, which has imported vLLM already (``engine_server.py``).
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Literal

from ..config import Config, ConfigError
from ..rollout_client import GENERATE
from ..system.gather import watched
from ..system.plugins import shell_words
from ..system.processes import FleetError
from ..system.python_command import python_module
from .control import CONTROL_TIMEOUT_S, ControlClient

Device = Literal["cpu", "cuda"]
PauseMode = Literal["abort", "wait", "keep"]

SERVER = "vllm.entrypoints.openai.api_server"
FORKING_SERVER = "mem_agent.serving.engine_server"
"""The same with half the imports, on CPU."""
SERVED_NAME = "policy"
"""What requests may put into their ``model`` field."""
SEQUENCES, BLOCK_TOKENS, KV_BYTES, GPU_SHARE = 64, 32, 2**30, 0.7
"""Decoded at once; of a cache block, in which prefixes are shared; of the cache on CPU; of a GPU that engines take."""
RELOAD_TIMEOUT_S, LOOK_EVERY_S = 600.0, 5.0
"""Weights may take minutes to be read; that often is looked whether the engine still lives."""
HUNG_TIMEOUT_S = 20.0
"""An idle engine answers within milliseconds; one that takes this long twice is taken for hung. A busy one answers
between two steps, and on CPU a step of a long prompt may take minutes."""
KERNELS = "64"
"""As many oneDNN keeps, by shape, of those that it compiled, unless ONEDNN_PRIMITIVE_CACHE_CAPACITY says otherwise. By
its own default, 1,024, a pocket engine grows from 640 to 1,110 MB within 6,000 requests; with 64 it stays at 684, and
takes the same CPU time (51.7 s for 3,872 requests against 50.5; vLLM 0.32, AMD EPYC, once each)."""


class EngineError(FleetError):
    """A control call failed: the message names server, call and answer."""


def engine_command(config: Config, model: Path, port: int, device: Device, index: int) -> list[str]:
    """The command line of server number ``index`` for ``model`` on 127.0.0.1."""
    command = [
        *python_module(FORKING_SERVER if device == "cpu" else SERVER),
        "--model", str(model), "--served-model-name", SERVED_NAME,
        "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", str(config.engine_max_len),
        # Engines with one seed would sample the same replies to the same prompt.
        "--seed", str(config.seed + index),
        "--logprobs-mode", "processed_logprobs",
        "--generation-config", "vllm",
        "--worker-extension-cls", "mem_agent.serving.engine_extension.PolicyReload",
        "--middleware", "mem_agent.serving.engine_key.RequireKey",
        "--enable-prefix-caching", "--enable-prompt-tokens-details",
        *engine_options(config, device),
    ]
    if config.trust_remote_code:
        command += ["--trust-remote-code"]
    if device == "cuda":
        engines_of_one_gpu = -(-config.num_engines // len(visible_gpus(os.environ)))
        command += ["--gpu-memory-utilization", f"{GPU_SHARE / engines_of_one_gpu:g}"]
    return command + shell_words("ENGINE_ARGS", config.engine_args)


def visible_gpus(env: Mapping[str, str]) -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them. Raises ConfigError where there is none."""
    import torch

    count = torch.cuda.device_count()
    named = [name for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if count == 0:
        raise ConfigError("no GPU for engines: torch.cuda finds none; look at CUDA_VISIBLE_DEVICES and the driver")
    return named[:count] or [str(number) for number in range(count)]


def engine_options(config: Config, device: Device) -> list[str]:
    """What a server that runs on ``device`` is told by whoever starts it, this pack or a host."""
    options = [
        "--dtype", "float32" if device == "cpu" else "bfloat16",
        "--max-num-seqs", str(SEQUENCES),
        "--block-size", str(BLOCK_TOKENS),
        "--enable-scale-out", "--disable-uvicorn-access-log",
    ]
    if device == "cpu":
        # With chunked prefill, a seeded request whose prompt is only partly computed rewinds its random generator,
        # which CPU generators cannot do: the whole engine dies ("CPU Generator does not use offset", vLLM 0.32).
        options += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(max(4096, config.engine_max_len))]
        options += ["--kv-cache-memory-bytes", str(KV_BYTES), "--enforce-eager",
                    "--distributed-executor-backend", "uni"]
    return options


def engine_environment(base: Mapping[str, str], device: Device, index: int) -> dict[str, str]:
    """``base`` with what a server needs; servers get the visible GPUs in turns."""
    env = {k: v for k, v in base.items() if k != "VLLM_CPU_KVCACHE_SPACE"}
    env |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}  # whatever address the machine's name has
    if device == "cpu":
        env.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", KERNELS)
        return env | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                      "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    env.pop("TORCHDYNAMO_DISABLE", None)  # vLLM 0.32 compiles ahead of time, and fails with it
    gpus = visible_gpus(base)
    return env | {"CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)]}


class EngineClient(ControlClient):
    """The control calls of the server at ``url``."""

    kind = "engine"
    error = EngineError

    async def healthy(self, timeout_s: float = 5.0) -> bool:
        """Whether the API server answers and its engine did not die. A hung engine can still look healthy here."""
        return await self.answers("/health", timeout_s)

    async def try_out(self, timeout_s: float) -> None:
        """Have a prompt read and a token decoded. No cache block is filled and no random number drawn by it."""
        params = {"max_tokens": 2, "temperature": 0, "ignore_eos": True}
        await self.call("POST", GENERATE, {"token_ids": [0, 0], "sampling_params": params}, timeout_s)

    async def load(self, folder: Path, version: str, mode: PauseMode, drain_timeout_s: float) -> None:
        """From whatever it serves to ``folder``'s weights as ``version``, with nothing cached from before.

        An ``EngineError`` anywhere leaves it paused, which is the state in which this can be called again.
        """
        await self.pause(mode, CONTROL_TIMEOUT_S + (drain_timeout_s if mode == "wait" else 0.0))
        await self.reload_weights(folder)
        await self.name_weights(version)
        await self.reset_prefix_cache()
        await self.resume()

    async def name_weights(self, version: str) -> None:
        """Set the version and see that the server reports it."""
        await self.update_weight_version(version)
        if (found := await self.weight_info()) != version:
            raise FleetError(f"engine {self.url} reports weight version {found!r} instead of {version!r}; "
                             "it is not a server of this fleet or does not support weight updates")

    async def pause(self, mode: PauseMode = "abort", timeout_s: float = CONTROL_TIMEOUT_S) -> None:
        """Stop scheduling. abort: requests in flight return what they have; wait: they finish; keep: they freeze."""
        await self.call("POST", f"/pause?mode={mode}", timeout_s=timeout_s)

    async def resume(self) -> None:
        await self.call("POST", "/resume")

    async def reload_weights(self, folder: Path, timeout_s: float = RELOAD_TIMEOUT_S) -> None:
        """Load ``folder``'s safetensors in place. After a failure the weights are broken: keep it paused."""
        body = {"method": "reload_policy", "kwargs": {"weights_path": str(folder)}}
        await self._while_it_lives(self.call("POST", "/collective_rpc", body, timeout_s))

    async def update_weight_version(self, version: str) -> None:
        """Name the loaded weights; every later token is reported with this name."""
        await self.call("POST", "/update_weight_version", {"new_version": version})

    async def reset_prefix_cache(self) -> None:
        """Forget key-value blocks of earlier weights. Refused while requests hold blocks, hence an error then."""
        reply = await self.call("POST", "/reset_prefix_cache")
        if reply.get("success") is not True:
            raise EngineError(f"engine {self.url}: /reset_prefix_cache was refused: {reply!s:.300}")

    async def weight_info(self, timeout_s: float = CONTROL_TIMEOUT_S) -> str:
        """The weight version, asked of the engine process itself: an answer proves that it is not hung."""
        reply = await self.call("GET", "/weight_info", timeout_s=timeout_s)
        return str(reply.get("weight_version"))

    async def _while_it_lives(self, call: Coroutine[Any, Any, Any]) -> None:
        """vLLM never answers a call whose engine process died of it, and its API server waits for the call to end."""

        async def look() -> None:
            if not await self.healthy(HUNG_TIMEOUT_S):
                raise EngineError(f"engine {self.url}: its engine process has died while it was given weights")

        await watched(call, look, LOOK_EVERY_S)
