"""What may change between a plan and the moment at which a job leaves for it: every field that `scontrol update` sets
on the urgent job, and every reason that Slurm gives for a job that waits (squeue and scontrol of 22.05, 24.11, 26.05).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.limits import may_be_lifted
from clearway.model.cluster import Job, Spread
from clearway.model.outcome import OutcomeCode
from clearway.preemption.validation import ask_misfit, cannot_start, plan_misfit
from tests.builders import NOW, job, plan, snapshot, urgent_job

URGENT = urgent_job("900", 2, partitions=("urgent",), qos="urgent", account="physics", user="bob", reason="Priority")
CONFIG = Config.model_validate({"preemptors": [{"qos": ["urgent"], "max_delay": "60s"}]})
PLAN = plan(URGENT, [job("1")])

STARTS = "it starts as before"
ANOTHER = "another plan is made"
OFF = "it would not start: no job leaves any more"
UNSEEN = "squeue does not tell: what Slurm then says is the reason"


class Field(NamedTuple):
    """What a key of `scontrol update` JobId= does; ``changes`` are what squeue shows of it."""

    effect: str
    changes: Mapping[str, Any] = {}


SPREAD = Spread(tasks=4, cpus_per_task=2)
FIELDS = {
    "Account": Field(ANOTHER, {"account": "other"}),
    "AdminComment": Field(STARTS),
    "ArrayTaskThrottle": Field(STARTS, {"array_limit": 1}),  # of an array: how many tasks may start is looked at
    "BurstBuffer": Field(UNSEEN, {"reason": "BurstBufferResources"}),
    "CPUsPerTask": Field(ANOTHER, {"spread": SPREAD}),
    "ClusterFeatures": Field(STARTS),  # of a federation: where another cluster starts it, it is revoked here, and gone
    "Clusters": Field(STARTS),
    "Comment": Field(STARTS, {"comment": "for the record"}),
    "Contiguous": Field(ANOTHER, {"contiguous": True}),
    "CoreSpec": Field(UNSEEN, {"reason": "BadConstraints"}),
    "Deadline": Field(UNSEEN, {"reason": "DeadLine"}),
    "DelayBoot": Field(STARTS),
    "Dependency": Field(OFF, {"dependency": "afterok:5(unfulfilled)"}),
    "EligibleTime": Field(OFF, {"eligible_time": NOW + timedelta(seconds=120)}),
    "EndTime": Field(STARTS),  # of a job that runs
    "ExcNodeList": Field(ANOTHER, {"excluded_nodes": ("n1",)}),
    "Extra": Field(STARTS),
    "Features": Field(ANOTHER, {"features": "big"}),
    "Gres": Field(ANOTHER, {"gres": "gres:gpu:1", "gpus": (("", 1),)}),
    "JobName": Field(STARTS, {"name": "other"}),
    "Licenses": Field(ANOTHER, {"licenses": "matlab:1"}),
    "MCSLabel": Field(UNSEEN, {"reason": "BadConstraints"}),
    "MailType": Field(STARTS),
    "MailUser": Field(STARTS),
    "MinCPUsNode": Field(ANOTHER, {"cpus_per_node": 4}),
    "MinMemoryCPU": Field(ANOTHER, {"memory_mib": 100}),
    "MinMemoryNode": Field(ANOTHER, {"memory_mib": 100}),
    "MinTmpDiskNode": Field(UNSEEN, {"reason": "BadConstraints"}),
    "Name": Field(STARTS, {"name": "other"}),
    "Nice": Field(STARTS, {"priority": 7}),
    "NodeList": Field(ANOTHER, {"required_nodes": ("n1",)}),
    "NumCPUs": Field(ANOTHER, {"cpus": 3}),
    "NumNodes": Field(ANOTHER, {"num_nodes": 1}),
    "NumTasks": Field(ANOTHER, {"spread": SPREAD}),
    "OverSubscribe": Field(ANOTHER, {"exclusive": False}),
    "Partition": Field(ANOTHER, {"partitions": ("batch",)}),
    "Prefer": Field(STARTS),
    "Priority": Field(OFF, {"priority": 0}),
    "QOS": Field(ANOTHER, {"qos": "normal"}),
    "Reboot": Field(STARTS),
    "ReqCores": Field(UNSEEN, {"reason": "BadConstraints"}),
    "ReqNodeList": Field(ANOTHER, {"required_nodes": ("n1",)}),
    "ReqNodes": Field(ANOTHER, {"num_nodes": 3}),
    "ReqProcs": Field(ANOTHER, {"cpus": 3}),
    "ReqSockets": Field(UNSEEN, {"reason": "BadConstraints"}),
    "ReqThreads": Field(UNSEEN, {"reason": "BadConstraints"}),
    "Requeue": Field(STARTS, {"requeueable": False}),
    "ReservationName": Field(OFF, {"reservation": "course"}),
    "ResetAccrueTime": Field(STARTS, {"priority": 3}),
    "Shared": Field(ANOTHER, {"exclusive": False}),
    "SiteFactor": Field(STARTS, {"priority": 3}),
    "StartTime": Field(OFF, {"eligible_time": NOW + timedelta(seconds=120)}),
    "StdErr": Field(STARTS),
    "StdIn": Field(STARTS),
    "StdOut": Field(STARTS),
    "Switches": Field(ANOTHER, {"switches": 2}),
    "TasksPerNode": Field(ANOTHER, {"even_cpus": 3}),
    "ThreadSpec": Field(UNSEEN, {"reason": "BadConstraints"}),
    "TimeLimit": Field(ANOTHER, {"time_limit_s": 7}),
    "TimeMin": Field(STARTS),
    "UserID": Field(ANOTHER, {"user": "alice"}),
    "WCKey": Field(STARTS),
    "WorkDir": Field(STARTS),
}

# By what a reason begins with: it waits for what jobs that leave give back. A license is counted by itself, and whose
# reservation it asks for is seen: Clearway makes its own again.
WAITS = (
    *("ReservationDeleted", "ReservationInvalid"),
    *("None", "Priority", "Resources", "Licenses", "Reservation", "FedJobLock", "ReqNodeNotAvail, UnavailableNodes:n1"),
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
)
# Limits that other jobs may be the cause of: they are worked out from what leaves (``eligibility.limits``).
TRES = ("BB", "Billing", "Energy", "GRES", "License", "Unknown")
LIMITS = (
    *(f"{of}{what}Limit" for of in ("AssocGrp", "QOSGrp") for what in ("Cpu", "Jobs", "Mem", "Node", "SubmitJobs")),
    *(f"{of}{what}" for of in ("AssocGrp", "QOSGrp") for what in TRES),
    *("AssocMaxJobsLimit", "QOSMaxJobsPerUserLimit", "QOSMaxCpuPerUserLimit", "QOSMaxNodePerUserLimit"),
    *("QOSMaxGRESPerUser", "QOSMaxMemoryPerUser", "QOSMaxBillingPerUser", "QOSMaxSubmitJobPerUserLimit"),
)
# It will not start, or not in time, whatever leaves; or it is not known what the reason means.
NEVER = (
    *("AccountNotAllowed", "AccountingPolicy", "AssociationJobLimit", "AssociationResourceLimit"),
    *("AssociationTimeLimit", "BadConstraints", "BeginTime", "BurstBufferOperation", "BurstBufferResources"),
    *("BurstBufferStageIn", "Cleaning", "DeadLine", "Dependency", "DependencyNeverSatisfied"),
    *("FrontEndDown", "InactiveLimit", "InvalidAccount", "InvalidQOS", "JobArrayTaskLimit", "JobHeldAdmin"),
    *("JobHeldUser", "JobHoldMaxRequeue", "JobLaunchFailure", "launch failed requeued held", "MaxMemPerLimit"),
    *("MaxPoweredUpNodes", "MpiPortsBusy", "NodeDown", "NonZeroExitCode", "OutOfMemory", "PartitionConfig"),
    *("PartitionDown", "PartitionInactive", "PartitionNodeLimit", "PartitionTimeLimit", "PowerNotAvail"),
    *("PowerReserved", "Prolog", "QOSJobLimit", "QOSNotAllowed", "QOSResourceLimit", "QOSTimeLimit"),
    *("QOSUsageThreshold", "RaisedSignal", "SchedDefer", "SystemFailure"),
    *("TimeLimit", "a word of a release to come", "AssocGrpWallLimit", "QOSGrpWallLimit"),
    *(f"{of}Grp{what}Minutes" for of in ("Assoc", "QOS") for what in (*TRES, "CPU", "Node")),
    *(f"{of}Grp{what}RunMinutes" for of in ("Assoc", "QOS") for what in (*TRES, "CPU", "Node")),
    *(f"AssocMax{what}" for what in ("CpuPerJobLimit", "NodePerJobLimit", "WallDurationPerJobLimit", "GRESPerJob")),
    *(f"QOSMax{what}" for what in ("CpuPerJobLimit", "NodePerJobLimit", "WallDurationPerJobLimit", "GRESPerNode")),
    *("QOSMinCpuNotSatisfied", "QOSMinGRES", "QOSMinMemory", "QOSMinNode", "MaxCpuPerAccount", "MaxJobsPerAccount"),
)


def seen(changed: Job) -> Any:
    return snapshot([job("1"), changed])


@pytest.mark.parametrize("key", FIELDS)
def test_each_field_of_the_urgent_job(key: str) -> None:
    effect, changes = FIELDS[key]
    now = seen(replace(URGENT, **changes))
    off, misfit = cannot_start(PLAN, now, CONFIG), ask_misfit(PLAN, now, CONFIG)
    found = OFF if off is not None else ANOTHER if misfit else STARTS
    assert found == (OFF if effect is UNSEEN else effect), (off, misfit)
    assert bool(plan_misfit(PLAN, now, config=CONFIG)) is (found != STARTS)


def test_a_claim_of_another_delay_needs_another_plan() -> None:
    assert ask_misfit(PLAN, seen(replace(URGENT, comment="clearway:max_delay=20")), CONFIG)


@pytest.mark.parametrize("reason", [*WAITS, *LIMITS])
def test_a_reason_that_leaving_jobs_may_end(reason: str) -> None:
    assert cannot_start(PLAN, seen(replace(URGENT, reason=reason)), CONFIG) is None
    assert may_be_lifted(reason) is (reason in LIMITS)


@pytest.mark.parametrize("reason", NEVER)
def test_a_reason_that_no_leaving_job_ends(reason: str) -> None:
    found = cannot_start(PLAN, seen(replace(URGENT, reason=reason)), CONFIG)
    assert found is not None
    assert f"(reason {reason})" in found.why
    assert found.code is OutcomeCode.CALLED_OFF


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "AccountNotAllowed", "QOSMaxWallDurationPerJobLimit"])
def test_a_reason_may_be_about_another_partition_of_the_job(reason: str) -> None:
    """It may start in one of them alone, whose limits are looked at by themselves."""
    several = replace(URGENT, partitions=("batch", "urgent"))
    pinned = replace(plan(several, [job("1")]), partition="urgent")
    assert pinned.pin == "urgent"
    assert cannot_start(pinned, seen(replace(several, partitions=("urgent",), reason=reason)), CONFIG) is None
    held = replace(several, partitions=("urgent",), reason="BadConstraints")
    assert cannot_start(pinned, seen(held), CONFIG) is not None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"priority": 0, "reason": "JobHeldUser"}, OutcomeCode.POINTLESS),
        ({"priority": 0, "reason": "JobHeldAdmin"}, OutcomeCode.CALLED_OFF),
        ({"priority": 0, "reason": "BadConstraints"}, OutcomeCode.CALLED_OFF),
        ({"dependency": "singleton(unfulfilled)"}, OutcomeCode.POINTLESS),
        ({"eligible_time": NOW + timedelta(days=1)}, OutcomeCode.POINTLESS),
        ({"reservation": "course"}, OutcomeCode.POINTLESS),
    ],
    ids=str,
)
def test_whose_doing_it_is(changes: Mapping[str, Any], code: OutcomeCode) -> None:
    """What its owner gave up costs the user automatic plans for a while, once others had left for it."""
    found = cannot_start(PLAN, seen(replace(URGENT, **changes)), CONFIG)
    assert found is not None
    assert found.code is code


def test_a_placement_of_clearways_is_none_of_others() -> None:
    attached = seen(replace(URGENT, reservation="clearway_1_ab"))
    assert cannot_start(PLAN, attached, CONFIG, frozenset({"clearway_1_ab"})) is None
    assert cannot_start(PLAN, attached, CONFIG) is not None
