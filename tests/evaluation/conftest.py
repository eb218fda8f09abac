import pytest

from mem_agent.tests.helpers.evaluations import make_model


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "model")
