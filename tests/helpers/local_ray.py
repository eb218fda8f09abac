"""Tests that start a Ray of this machine."""

import importlib.util
import sys

import pytest

needs_local_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None or " " in sys.executable,
    reason="no Ray, or a Python whose path has a blank, from which Ray starts no workers",
)
