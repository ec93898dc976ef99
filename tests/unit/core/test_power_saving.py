"""Nodes that power saving has switched off: what their states mean, and when a plan counts on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.execution.progress import lost_nodes
from clearway.model.cluster import Node
from clearway.model.operations import EvictionState
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.site import PowerSaving
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.plan import decide
from clearway.preemption.validation import plan_misfit
from clearway.slurm.parse.site import boot_s, read_power_saving
from tests.builders import NOW, after, eviction, job, node, snapshot, urgent_job

SAVING = PowerSaving(resume_s=60.0, suspend_s=5.0)


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        ("IDLE", None),
        ("IDLE+CLOUD", None),
        ("IDLE+POWERED_DOWN", 60.0),
        ("IDLE+CLOUD+POWERED_DOWN", 60.0),
        ("IDLE+POWERED_DOWN+RESERVED", 60.0),
        ("IDLE+CLOUD+NOT_RESPONDING+POWERING_UP", 60.0),
        ("IDLE+POWERING_DOWN", 65.0),
        ("IDLE+POWER_DOWN", 65.0),
        ("IDLE+NOT_RESPONDING+POWERED_DOWN", None),
        ("IDLE+DRAIN+POWERED_DOWN", None),
        ("DOWN+POWERED_DOWN", None),
        ("DOWN+CLOUD+NOT_RESPONDING+POWERING_UP", None),
        ("IDLE+REBOOT_REQUESTED+POWERED_DOWN", None),
        ("ALLOCATED+POWERED_DOWN", None),
        ("ALLOCATED+NOT_RESPONDING+POWERING_UP", None),
    ],
)
def test_what_states_mean(state: str, seconds: float | None) -> None:
    assert boot_s(state, SAVING) == seconds


CONFIG = """\
PrivateData             = none
ResumeProgram           = /etc/slurm/resume.sh
ResumeTimeout           = 60 sec
SuspendProgram          = /etc/slurm/suspend.sh
SuspendTimeout          = 5 sec
"""


def test_what_slurm_says_of_power_saving() -> None:
    assert read_power_saving(CONFIG) == replace(SAVING, hides_nodes=True)
    assert read_power_saving(CONFIG.replace("none", "cloud,jobs")) == SAVING
    assert read_power_saving(CONFIG.replace("/etc/slurm/resume.sh", "(null)")) == PowerSaving()
    assert read_power_saving("") == PowerSaving()


def off(name: str, boots_s: float) -> Node:
    return node(name, available=False, raw_state="IDLE+POWERED_DOWN", boot_s=boots_s)


def planned(wanted: int, boots_s: float, delay_s: float = 120.0, node_boot: str = "0s") -> Plan | NoPlan:
    """Two jobs on a node each, one node that is off: the plan for an urgent job of ``wanted`` nodes."""
    nodes = [node(name, raw_state="ALLOCATED", alloc_cpus=64) for name in ("n1", "n2")]
    jobs = [job("1", ("n1",)), job("2", ("n2",), start_time=after(-1_000))]
    urgent = urgent_job("9", wanted, partitions=("batch",))
    seen = snapshot([*jobs, urgent], [*nodes, off("n3", boots_s)])
    config = Config.model_validate({"execution": {"node_boot": node_boot}, "candidates": {"min_runtime": 0}})
    context = PlanningContext(snapshot=seen, config=config, now=NOW, preempted={}, under_way=UnderWay())
    plan = decide(Preemptor(urgent, "urgent", delay_s, after(delay_s)), context, EvictionDP())
    if isinstance(plan, Plan):
        assert plan_misfit(plan, seen) == ""
    return plan


def left(plan: Plan | NoPlan) -> set[str]:
    assert isinstance(plan, Plan), plan
    return {each.job_id for each in plan.leaving}


def test_no_job_leaves_where_a_node_boots_in_time() -> None:
    plan = planned(1, boots_s=100)
    assert left(plan) == set()
    assert isinstance(plan, Plan)
    assert plan.placement_nodes == ("n3",)


def test_one_leaves_beside_a_node_that_boots_in_time() -> None:
    plan = planned(2, boots_s=100)
    assert left(plan) == {"2"}
    assert isinstance(plan, Plan)
    assert plan.placement_nodes == ("n2", "n3")
    assert plan.problem.max_delay_s <= 10  # the boot begins when job 2 has left


def test_a_node_that_would_be_too_late_is_not_counted_on() -> None:
    assert left(planned(1, boots_s=115)) == {"2"}  # with the allowance of 10 s it is


def test_a_site_may_know_that_its_nodes_boot_sooner_than_slurm_allows() -> None:
    assert left(planned(1, boots_s=600, node_boot="90s")) == set()
    assert left(planned(1, boots_s=100, node_boot="10m")) == set()


@pytest.mark.parametrize(("boots_s", "lost"), [(60, False), (1_000, True)])
def test_a_freed_node_that_is_switched_off_is_lost_only_where_it_is_too_late(boots_s: float, lost: bool) -> None:
    e = eviction(state=EvictionState.PREEMPTING)
    name = e.plan.placement_nodes[0]
    nodes = [node(each) for each in e.plan.placement_nodes[1:]]
    assert (name in lost_nodes(e, snapshot([], [*nodes, off(name, boots_s)]), ())) is lost
    as_planned = replace(e, plan=replace(e.plan, free_nodes=(name,)))
    assert lost_nodes(as_planned, snapshot([], [*nodes, off(name, boots_s)]), ()) == {}
