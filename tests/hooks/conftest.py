import pytest

from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """The folder of a tokenizer."""
    path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(path)
    return str(path)
