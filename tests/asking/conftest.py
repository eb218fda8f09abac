import pytest

from mem_agent.tests.helpers.evaluations import make_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A tokenizer without weights."""
    return make_model(tmp_path_factory.mktemp("model"), positions=4096)
