"""What slime asks for beyond ``torch.cuda``: an accelerator of its registry, and an older SGLang's weight update."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import psutil
import torch

from .imports import after_import


def install() -> None:
    after_import("slime.utils.accelerator", _set_cpu)
    after_import("slime.backends.sglang_utils.sglang_engine", _frame_weight_updates)
    after_import("slime.utils.misc", _stay_on_this_machine)
    after_import(f"{_UPDATES}.update_weight_from_distributed", _meet_on_this_machine)


_UPDATES = "slime.backends.megatron_utils.update_weight"


def _stay_on_this_machine(module: Any) -> None:
    """Ray answers with the machine's own address, which is open to its network, even where it is told 127.0.0.1."""
    module.get_current_node_ip = lambda: "127.0.0.1"


def _meet_on_this_machine(module: Any) -> None:
    """Where trainer and engines meet, slime asks Ray itself."""
    module.ray._private.services.get_node_ip_address = lambda *args: "127.0.0.1"


def _set_cpu(module: ModuleType) -> None:
    module.set_accelerator(_cpu(module.Accelerator))


def _cpu(base: type) -> Any:
    """slime's own code asks its registry alone; by ``gloo`` here every group is gloo, that of weights included."""

    class Cpu(base):  # type: ignore[misc]
        name = device_type = "cpu"
        communication_backend_name = "gloo"

        def is_available(self) -> bool:
            return True

        def device(self, index: Any = None) -> torch.device:
            return torch.device("cpu")

        def device_name(self, index: Any = None) -> str:
            return "cpu"

        def set_device(self, index: Any) -> None: ...

        def current_device(self) -> str:
            return "cpu"

        def device_count(self) -> int:
            return 1

        def synchronize(self, device: Any = None) -> None: ...

        def current_stream(self, device: Any = None) -> None: ...

        def empty_cache(self) -> None: ...

        def mem_get_info(self, device: Any = None) -> tuple[int, int]:
            memory = psutil.virtual_memory()
            return memory.available, memory.total

        def memory_allocated(self, device: Any = None) -> int:
            return 0

        def memory_reserved(self, device: Any = None) -> int:
            return 0

        def distributed_device_id(self, index: Any = None) -> None:
            return None

        def resolve_visible_device_id(self, physical_device_id: Any) -> int:
            return 0

    return Cpu()


def _frame_weight_updates(module: ModuleType) -> None:
    """SGLang 0.5.23, which this pack pins, wants a distributed update announced and ended; slime's 0.5.15 does not."""
    engine = module.SGLangEngine
    update = engine.update_weights_from_distributed

    def framed(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._make_request("begin_weight_update")
        answer = update(self, *args, **kwargs)
        self._make_request("end_weight_update")
        return answer

    engine.update_weights_from_distributed = framed
