"""Whether a job would run again once it was requeued."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Purpose, exemption
from clearway.eligibility.options import options_for
from clearway.eligibility.returning import why_no_return
from clearway.estimates.costs import lost_work_node_s
from clearway.model.claims import read_claims
from clearway.model.cluster import Job, Reservation
from clearway.model.limits import Limits, Partition
from clearway.model.plan import Preemptor
from clearway.model.problem import Action
from tests.builders import NOW, after, job, node, snapshot, urgent_job

RUNNING = job("101", nodes=("n1",), partitions=("batch",), user="alice", time_limit_s=3_600, start_time=after(-600))
URGENT = Preemptor(urgent_job(time_limit_s=1_800), "rule", 600.0, after(600))
NODES = [node(f"n{number}", partitions=("batch",)) for number in (1, 2)]


def context(nodes: list[Any] = NODES, *, config: dict[str, Any] | None = None, **fields: Any) -> PlanningContext:
    known = {"snapshot": snapshot([RUNNING], nodes), "config": Config.model_validate(config or {}), "now": NOW}
    return PlanningContext(**(known | fields))


def partition(**fields: Any) -> Limits:
    return Limits(partitions={"batch": Partition(name="batch", **fields)})


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (partition(), ""),
        (partition(state="DRAIN"), ""),  # starts those that wait
        (partition(state="DOWN"), "partition batch is DOWN"),
        (partition(max_time_s=60), "partition batch has the limit MaxTime of 1 minutes"),
        (partition(max_nodes=0), "partition batch has the limit MaxNodes=0"),
        (partition(deny_qos=frozenset({"normal"})), "partition batch does not allow QoS"),
        (partition(allow_groups=frozenset({"vips"})), ""),  # the user's groups were not read
        (
            replace(partition(allow_groups=frozenset({"vips"})), groups={"alice": frozenset()}),
            "is in none of the groups",
        ),
        (partition(allow_accounts=frozenset({"vip"})), ""),  # an account above may be meant
        (replace(partition(allow_accounts=frozenset({"vip"})), sub_accounts=False), "does not allow account"),
        (Limits(unknown="squeue did not answer"), ""),
        (None, ""),
    ],
)
def test_its_partition(limits: Limits | None, why: str) -> None:
    found = why_no_return(RUNNING, context(limits=limits), URGENT)
    assert why in found
    assert bool(found) is bool(why)


def test_a_partition_for_reservations_takes_a_job_of_one() -> None:
    limits = partition(reservations_only=True)
    assert "takes only jobs that ask for a reservation" in why_no_return(RUNNING, context(limits=limits))
    assert not why_no_return(replace(RUNNING, reservation="course"), context(limits=limits))


def test_nodes_that_are_gone() -> None:
    other = [replace(NODES[0], partitions=("urgent",)), NODES[1]]
    assert not why_no_return(RUNNING, context(other))
    assert "has only 1 nodes" in why_no_return(replace(RUNNING, num_nodes=2, nodes=("n1", "n2")), context(other))
    assert "has only 0 nodes" in why_no_return(replace(RUNNING, excluded_nodes=("n2",)), context(other))
    assert "has only 0 nodes with ib" in why_no_return(replace(RUNNING, features="ib"), context())
    assert not why_no_return(replace(RUNNING, features="ib"), context([replace(NODES[0], features=("ib",))]))
    drained = [replace(NODES[0], available=False), NODES[1]]
    assert "it asks for node n1, which takes no jobs" in why_no_return(
        replace(RUNNING, required_nodes=("n1",)), context(drained)
    )
    assert not why_no_return(RUNNING, context(drained))


@pytest.mark.parametrize(("left_s", "stays"), [(600 + 1_800 + 3_600, False), (600 + 1_800 + 3_599, True)])
def test_its_deadline_leaves_time_for_the_urgent_job_and_its_own_limit(left_s: int, stays: bool) -> None:
    bound = replace(RUNNING, deadline=after(left_s))
    assert bool(why_no_return(bound, context(), URGENT)) is stays
    later = context(now=after(300))  # while the plan is carried out it is as it was
    assert bool(why_no_return(bound, later, URGENT)) is stays


def test_an_urgent_job_without_a_limit_may_keep_its_nodes_for_ever() -> None:
    forever = replace(URGENT, job=replace(URGENT.job, time_limit_s=None))
    assert why_no_return(replace(RUNNING, deadline=after(10**7)), context(), forever)
    assert not why_no_return(RUNNING, context(), forever)


@pytest.mark.parametrize(
    ("ends_s", "stays"), [(-1, False), (600 + 1_799, True), (600 + 1_801, False)], ids=["over", "meanwhile", "later"]
)
def test_its_reservation(ends_s: int, stays: bool) -> None:
    course = Reservation(name="course", nodes=("n1",), start_time=after(-900), end_time=after(ends_s))
    inside = replace(RUNNING, reservation="course")
    assert bool(why_no_return(inside, context(reservations=(course,)), URGENT)) is stays


def test_it_may_be_cancelled_where_jobs_may_be_but_is_not_saved_in_vain() -> None:
    bound = replace(RUNNING, deadline=after(60), comment="clearway:checkpoint=signal,took=10")
    may = context(config={"candidates": {"allow_cancel": True, "min_runtime": 0}})
    assert exemption(bound, Purpose.PREEMPTION, may, preemptor=URGENT) is None
    assert [each.action for each in options_for(bound, may, kill=True)] == [Action.KILL]
    saved = options_for(replace(bound, deadline=None), may, kill=True)
    assert [each.action for each in saved] == [Action.KILL, Action.APP_CHECKPOINT]


def stood(seconds: float, saved_s: float | None = None) -> tuple[Job, float]:
    """A job that began ten minutes ago and stood suspended for so long; what it would lose."""
    end = RUNNING.start_time + timedelta(seconds=3_600 + seconds) if RUNNING.start_time else None
    comment = "" if saved_s is None else f"clearway:checkpoint=signal,last={int(after(-saved_s).timestamp())}"
    found = replace(RUNNING, end_time=end, comment=comment)
    return found, lost_work_node_s(found, read_claims(found)[0], NOW)


def test_time_suspended_is_no_run_time() -> None:
    found, lost_node_s = stood(400)
    assert (found.stood_s, found.ran_s(NOW), lost_node_s) == (400, 200, 200)
    assert found.ends_by == after(3_400)
    assert stood(0)[1] == 600
    assert stood(-30)[0].stood_s == 0  # after scontrol update EndTime= the limit is rounded up
    # When it stood is not told. Saved 500 s ago, it can have stood 100 s before that, and has so since for 300.
    assert stood(400, saved_s=500)[1] == 200
    assert stood(400, saved_s=100)[1] == 100


def test_over_time_counts_and_may_have_no_end() -> None:
    assert replace(RUNNING, over_time_s=300).ends_by == after(3_300)
    assert replace(RUNNING, over_time_s=None).ends_by is None
    assert replace(RUNNING, over_time_s=300, end_time=after(100)).ends_by == after(400)
    assert replace(RUNNING, over_time_s=300).stood_s == 0
    assert replace(RUNNING, time_limit_s=None, end_time=after(100)).ends_by is None
