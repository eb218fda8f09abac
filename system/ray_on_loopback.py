"""What a Ray that no other machine joins finds in its environment, so that its servers listen on loopback alone.

Ray binds them to loopback where that is the machine's address. On Linux it takes an outer one, even if 127.0.0.1 is
named (``ray.services.resolve_ip_for_localhost``), unless it is told that there are no clusters here, as on Windows and
macOS. Ray 2.60 was looked at, each listener of it: ``tests/sifter/test_own_ray.py``, ``tests/launch/test_ray.py``.
"""

RAY_ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
