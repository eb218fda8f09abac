"""What slime needs beyond ``torch.cuda``: an accelerator of its registry, addresses on loopback, an older SGLang's
weight update, and a real SGLang server on the CPU, from an environment of its own (requirements/sglang.txt).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ..system.cli import python_module
from ..system.processes import ChildProcess


def meet_on_this_machine(module: Any) -> None:
    """Where trainer and engines meet, slime asks Ray itself."""
    module.ray._private.services.get_node_ip_address = lambda *args: "127.0.0.1"


def set_cpu(module: Any) -> None:
    """slime's own code asks its registry alone; by ``gloo`` here every group is gloo, that of weights included. The
    rest is what ``torch.cuda`` answers (``cuda_shim``).
    """

    class Cpu(module.CUDAAccelerator):
        name = device_type = "cpu"
        communication_backend_name = "gloo"

        def is_available(self) -> bool:
            return True

        def device_name(self, index: Any = None) -> str:
            return "cpu"

        current_device = device_name

        def distributed_device_id(self, index: Any = None) -> None:
            return None

        def resolve_visible_device_id(self, physical_device_id: Any) -> int:
            return 0

        def supports(self, capability: str) -> bool:
            return False

    module.set_accelerator(Cpu())


def frame_weight_updates(module: Any) -> None:
    """SGLang 0.5.23, which this pack pins, wants a distributed update announced and ended; slime's 0.5.15 does not."""
    engine = module.SGLangEngine
    update = engine.update_weights_from_distributed

    def framed(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._make_request("begin_weight_update")
        answer = update(self, *args, **kwargs)
        self._make_request("end_weight_update")
        return answer

    engine.update_weights_from_distributed = framed


# --- the engine ------------------------------------------------------------------------------------------------------



def start_sglang(python: str, model: Path, port: int, context: int, folder: Path, seed: int = 1) -> ChildProcess:
    """Start a server for ``model`` on 127.0.0.1; it answers ``/health`` when it is ready.

    Args:
        python: the Python of the environment with SGLang.
        context: tokens of a prompt with its reply.
        folder: for its log and stand-ins.
    """
    command = [
        *python_module("sglang.launch_server", python=python),
        "--model-path", str(model), "--host", "127.0.0.1", "--port", str(port),
        "--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native",
        "--sampling-backend", "pytorch", "--grammar-backend", "none", "--disable-overlap-schedule",
        "--max-total-tokens", str(max(16384, 16 * context)), "--context-length", str(context),
        "--random-seed", str(seed), "--sleep-on-idle",
    ]
    stand_ins = folder / "stand_ins"
    for name in ("sgl_kernel", "torchvision"):  # imported and, where it computes in plain PyTorch, never called
        (stand_ins / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).with_name("absent.py"), stand_ins / name / "__init__.py")
    about = stand_ins / "torchvision-0.28.0.dist-info"  # transformers compares this version
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n")
    environment = {
        **os.environ, "PYTHONPATH": str(stand_ins), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
        "SGLANG_USE_CPU_ENGINE": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0",
    }
    return ChildProcess("sglang", command, environment, folder / "sglang.log")
