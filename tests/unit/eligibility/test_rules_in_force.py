"""A rule holds on a site where Slurm checks what it rests on; elsewhere no job is urgent by it."""

from __future__ import annotations

from typing import Any

import pytest

from clearway.config.configuration import Config, PreemptorRule
from clearway.eligibility.urgent import in_force, refusals
from clearway.model.site import Vouched
from clearway.slurm.parse.site import read_identity, read_vouched

NOTHING, ALL = Vouched(), Vouched(accounts=True, qos=True)
ACCOUNTS = Vouched(accounts=True, partitions={"urgent": "AllowQos"})
SLURMDBD = "AccountingStorageType   = accounting_storage/slurmdbd\n"
PARTITIONS = (
    "PartitionName=batch AllowGroups=hpc AllowAccounts=ALL AllowQos=ALL State=UP\n"
    "PartitionName=vip AllowGroups=ALL AllowAccounts=vip,hot AllowQos=ALL State=UP\n"
    "PartitionName=most AllowGroups=ALL DenyAccounts=guest AllowQos=ALL State=UP\n"
    "PartitionName=fast AllowGroups=ALL AllowAccounts=vip AllowQos=urgent State=UP\n"
    "PartitionName=slow AllowGroups=ALL AllowAccounts=ALL DenyQos=urgent State=UP\n"
)


@pytest.mark.parametrize(
    ("rule", "vouched", "rests_on"),
    [
        ({"account": ["vip"]}, NOTHING, "the account"),
        ({"account": ["vip"]}, ACCOUNTS, ""),
        ({"qos": ["urgent"]}, NOTHING, "the QoS"),
        ({"qos": ["urgent"]}, ACCOUNTS, "the QoS"),
        ({"qos": ["urgent"], "account": ["vip"]}, ACCOUNTS, "the QoS"),
        ({"qos": ["urgent"], "account": ["vip"]}, ALL, ""),
        ({"partition": ["batch"]}, NOTHING, ""),
        ({"partition": ["batch", "urgent"]}, ACCOUNTS, "AllowQos of partition urgent"),
        ({"partition": ["batch"], "account": ["vip"]}, NOTHING, "the account"),
        ({"user": ["ann"]}, NOTHING, ""),
        ({"user": ["ann"], "account": ["vip"], "qos": ["urgent"]}, NOTHING, ""),
        ({"account": ["vip"], "anybody": True}, NOTHING, ""),
        ({"job_name": ["live-*"], "anybody": True}, NOTHING, ""),
    ],
)
def test_what_slurm_does_not_check_makes_no_job_urgent(rule: dict[str, Any], vouched: Vouched, rests_on: str) -> None:
    config = Config.model_validate({"preemptors": [rule]})
    told = refusals(config.preemptors, vouched)
    assert len(in_force(config, vouched).preemptors) == (not rests_on)
    assert list(told) == [0] * bool(rests_on)
    if rests_on:
        assert f"rule 1 makes no job urgent: Slurm does not check {rests_on} on this site" in told[0]


def test_the_other_rules_keep_their_names() -> None:
    """Plans, budgets and the journal name a rule without a name by its place in the file."""
    rules = [{"account": ["vip"]}, {"partition": ["urgent"]}, {"name": "beam", "user": ["ann"]}]
    config = Config.model_validate({"preemptors": rules})
    assert [rule.name for rule in in_force(config, NOTHING).preemptors] == ["rule 2", "beam"]
    assert in_force(config, ALL) is config


def test_by_name_and_comment_alone_a_site_has_to_say_that_everybody_may_ask() -> None:
    with pytest.raises(ValueError, match="anybody = true says that this is wanted"):
        PreemptorRule(job_name=("live-*",), comment=True)
    assert PreemptorRule(job_name=("live-*",), comment=True, anybody=True).anybody


@pytest.mark.parametrize(
    ("config", "accounts", "qos"),
    [
        ("AccountingStorageEnforce = none\nAccountingStorageType   = accounting_storage/none\n", False, False),
        (f"AccountingStorageEnforce = none\n{SLURMDBD}", False, False),
        (f"AccountingStorageEnforce = associations\n{SLURMDBD}", True, False),
        (f"AccountingStorageEnforce = associations,limits,safe\n{SLURMDBD}", True, False),
        (f"AccountingStorageEnforce = associations,limits,qos\n{SLURMDBD}", True, True),
        (f"AccountingStorageEnforce = nojobs,nosteps\n{SLURMDBD}", False, False),
        (
            "AccountingStorageEnforce = associations,qos\nAccountingStorageType   = accounting_storage/none\n",
            False,
            False,
        ),
        ("", False, False),
    ],
)
def test_what_slurm_checks_is_read_from_its_configuration(config: str, accounts: bool, qos: bool) -> None:
    by_account = {"vip": "AllowAccounts", "most": "DenyAccounts", "fast": "AllowAccounts"}
    by_qos = {"fast": "AllowQos", "slow": "DenyQos"}
    expected = {} if accounts else by_account
    if not qos:
        expected = expected | by_qos | ({} if accounts else {"fast": "AllowAccounts, AllowQos"})
    assert read_vouched(config, PARTITIONS) == Vouched(accounts, qos, expected)


def test_a_cluster_is_its_name_its_state_and_its_controllers() -> None:
    text = (
        "ClusterName             = prod\nSlurmctldHost[0]        = ctl1(10.0.0.1)\nSlurmctldHost[1]        = ctl2\n"
        "StateSaveLocation       = /var/spool/slurmctld\n"
    )
    found = read_identity(text)
    assert found is not None
    assert str(found) == "cluster prod (/var/spool/slurmctld on ctl1, ctl2)"
    backup_went = read_identity(text.replace("SlurmctldHost[1]        = ctl2\n", ""))
    others = [text.replace("prod", "test"), text.replace("/var", "/srv"), text.replace("ctl", "head")]
    assert backup_went is not None
    assert found.is_same(backup_went)
    assert not any(found.is_same(other) for each in others if (other := read_identity(each)))
    assert [read_identity(each) is None for each in ("", "ClusterName             = prod\n")] == [True, True]
