"""A setting that the chosen host does not read is one line, whichever host it is."""

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.hooks.plugins import EMBEDDED, OF_HOSTS, refuse_ignored

SET = {"fully_async": True, "host_root": "/slime", "host_args": "--x 1", "engine_args": "--max-num-seqs 4",
       "train_dtype": "bfloat16"}


@pytest.mark.parametrize(("host", "name"), [
    *(("local", name) for name in OF_HOSTS), *(("slime", name) for name in EMBEDDED)])
def test_a_setting_that_the_host_does_not_read_is_refused(host, name):
    refuse_ignored(Config(), host)
    config = Config(**{name: SET.get(name, 2)})
    with pytest.raises(ConfigError, match=f"^{name.upper()}=") as error:
        refuse_ignored(config, host)
    assert f"HOST={host}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("host", "name"), [("slime", "fully_async"), ("vime", "host_args"), ("local", "lora_rank")])
def test_what_the_host_reads_is_taken(host, name):
    refuse_ignored(Config(**{name: SET.get(name, 2)}), host)
