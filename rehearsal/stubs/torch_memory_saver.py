"""The names of torch_memory_saver that both hosts import; it moves CUDA memory, of which a rehearsal has none.

Hosts call them only with colocation or offloading, which no rehearsal has.
"""

import contextlib
from typing import Any


class _Nothing:
    _impl = None

    def pause(self, *args: Any) -> None: ...

    def resume(self, *args: Any) -> None: ...

    def disable(self) -> Any:
        return contextlib.nullcontext()

    def region(self, *args: Any, **kwargs: Any) -> Any:
        return contextlib.nullcontext()

    def get_cpu_backup(self, tensor: Any, zero_copy: bool = False) -> None: ...


torch_memory_saver = _Nothing()
