"""The names of torch_memory_saver that both hosts import; it moves CUDA memory, of which a rehearsal has none.

Hosts call the others only with colocation or offloading, which no rehearsal has.
"""

from unittest.mock import MagicMock

torch_memory_saver = MagicMock(_impl=None, get_cpu_backup=lambda tensor, zero_copy=False: None)
