"""The example configuration: it can be used as it is, and it names every key with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from clearway.config.configuration import Config, Mode, PreemptorRule, parse_config

EXAMPLE = Path(__file__).parents[2] / "deploy" / "clearway.toml"
NO_DEFAULT = {
    "daemon.wake_file",
    "slurm.conf",
    "slurm.act_on_release",
    "slurm.rest_token_file",
    "api.token_file",
    "api.socket",
    "api.certificate",
    "api.certificate_key",
    "access.jwks_file",
    "promises.calendar",
    "access.jwks_audience",
    "access.proxy_header",
    "access.proxy_peers",
    "client.url",
    "client.token_file",
    "client.authority",
    "budget.jobs_per_hour",
    "budget.lost_node_hours_per_hour",
    "budget.user_lost_node_hours_per_hour",
    "budget.account_evictions_per_hour",
    "budget.account_jobs_per_hour",
    "budget.account_lost_node_hours_per_hour",
    "budget.rule_evictions_per_hour",
    "budget.rule_jobs_per_hour",
    "budget.rule_lost_node_hours_per_hour",
    "planning.end_confidence",
    "execution.checkpoint_bandwidth_mib_s",
    "notify.webhook",
    "notify.slack",
    "notify.mail",
    "notify.texts",
}


def uncommented() -> str:
    """With every key switched on: those are commented out without a space after the #."""
    return re.sub(r"^#(?=[\[a-z_])", "", EXAMPLE.read_text(), flags=re.MULTILINE)


def sections() -> dict[str, type[BaseModel]]:
    return {
        name: field.annotation
        for name, field in Config.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def test_it_can_be_used_as_it_is() -> None:
    config = parse_config(EXAMPLE.read_text(), "example")
    assert config.daemon.mode is Mode.OBSERVE, "a first start must not touch a job"
    assert config.preemptors == (PreemptorRule(name="urgent", partition=("urgent",), max_delay=600.0),)
    assert config == Config(preemptors=config.preemptors), "everything else is the default"


def test_every_key_can_be_switched_on() -> None:
    found = parse_config(uncommented(), "example")
    assert found.model_fields_set >= sections().keys(), "a section without a key that is switched on"


@pytest.mark.parametrize("section", sorted(sections()))
def test_every_key_is_there_with_its_default(section: str) -> None:
    config = parse_config(uncommented(), "example")
    values: Any = getattr(config, section)
    assert values.model_fields_set == set(sections()[section].model_fields), "a key is missing"
    for key, field in sections()[section].model_fields.items():
        if f"{section}.{key}" not in NO_DEFAULT:
            assert getattr(values, key) == field.get_default(call_default_factory=True), f"{section}.{key}"


def test_every_condition_of_a_rule_is_there() -> None:
    rules = parse_config(uncommented(), "example").preemptors
    assert set().union(*(rule.model_fields_set for rule in rules)) == set(PreemptorRule.model_fields)
