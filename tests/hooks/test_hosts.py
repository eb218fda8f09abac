"""The hooks in slime and vime themselves: their contract suites, and our checks run inside their checkouts.

    SLIME_ROOT=... VIME_ROOT=... MEGATRON_ROOT=... python -m pytest tests/hooks/test_hosts.py

``inside_host/check_*.py`` call the hosts' real code on a CPU: conversion and split, rollout loops against
``fake_router``, reward calls. Stubs are the SGLang package, by ours, and what the contract suites put in place by
themselves.
"""

import pytest

from mem_agent.tests.helpers.host_checkout import HOSTS, TESTS, named

CHECKS = sorted(str(path) for path in (TESTS / "inside_host").glob("check_*.py"))
OVERRIDES = {
    "CUSTOM_GENERATE_FUNCTION_PATH": "mem_agent.rollout.generate",
    "CUSTOM_RM_PATH": "mem_agent.rollout.reward_func",
    "CUSTOM_CONVERT_SAMPLES_TO_TRAIN_DATA_PATH": "mem_agent.custom_convert.custom_convert",
    "DYNAMIC_SAMPLING_FILTER_PATH": "mem_agent.rollout.nonzero_std",
}

pytestmark = pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)


def test_the_plugin_contract_suites_pass_with_our_hooks(host):
    named = {f"{host.name.upper()}_CONTRACT_{key}": path for key, path in OVERRIDES.items()}
    run = host.pytest("tests/plugin_contracts", **named)
    assert run.counts == {"passed": host.contract_tests}, run.output


def test_our_checks_pass_inside_the_host(host):
    run = host.pytest(*CHECKS)
    assert set(run.counts) == {"passed"}, run.output


def test_the_hosts_parsers_accept_what_the_launcher_makes(host):
    megatron = str(named("MEGATRON_ROOT", "Megatron-LM with the host's patch"))
    run = host.pytest(str(TESTS / "inside_host" / "parse_arguments.py"), first=megatron, MEGATRON_ROOT=megatron)
    assert run.counts == {"passed": 16}, run.output
