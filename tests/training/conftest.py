"""The model that most of these tests train."""

from pathlib import Path

import pytest

from mem_agent.tests.helpers.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """Two groups of query heads, and a vocabulary that no number of ranks divides."""
    return make_tiny_model(tmp_path_factory.mktemp("model"), vocab=513, tied=True, heads=4, kv_heads=2)
