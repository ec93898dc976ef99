"""The replay of a site: its simulated Slurm against another implementation of EASY, and what it may never do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearway.config.configuration import Config, PreemptorRule
from clearway.model.cluster import Job, JobState, Node, Reservation
from clearway_lab.schedulers.easy import Easy
from clearway_lab.simulator.engine import replay as replay_trace
from clearway_lab.site import cluster as site_cluster
from clearway_lab.site import plans as site_plans
from clearway_lab.site.plans import Mask, NodeTable, Places, Times
from clearway_lab.site.record import Outage, RecordedJob, Run, SiteRecord
from clearway_lab.site.replay import SiteReplay
from clearway_lab.traces.trace import TraceJob, in_order

T0 = datetime(2026, 1, 5, tzinfo=UTC)
NODES = 8
CONFIG = Config(preemptors=(PreemptorRule(name="storm", partition=("urgent",)),))


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def recorded(job_id: int, submit_s: int, runs_s: int, nodes: int, **fields: object) -> RecordedJob:
    known: dict[str, object] = {
        "job_id": job_id, "user": "ann", "account": "phys", "partition": "batch", "qos": "normal", "name": "run",
        "comment": "", "submit": after(submit_s), "eligible": after(submit_s), "time_limit_s": runs_s,
        "num_nodes": nodes, "cpus": 4, "memory_mib": 0, "gpus": (), "features": "", "reservation": "", "priority": 100,
        "runs": (Run(start=after(submit_s), end=after(submit_s + runs_s), elapsed_s=runs_s, nodes=()),),
    }  # fmt: skip
    return RecordedJob(**(known | fields))  # type: ignore[arg-type]


# One that has ended when all others come: with its end the replay begins.
FIRST = recorded(1, -10, 5, 1)


def machine(*partitions: str) -> list[Node]:
    named = partitions or ("batch,urgent",) * NODES
    return [
        Node(name=f"n{at}", available=True, raw_state="IDLE", cpus=4, memory_mib=4_000, partitions=tuple(p.split(",")))
        for at, p in enumerate(named)
    ]


def first_second(free_from: Times, count: int, now: float) -> float:
    return max(now, float(np.partition(free_from, count - 1)[count - 1]))


def last_to_be_free(_: NodeTable, able: Places, free_from: Times, count: int, at: float) -> Places:
    order = np.argsort(free_from, kind="stable")
    by_then = int(np.searchsorted(free_from[order], at, side="right"))
    return able[order[by_then - count : by_then]]


class LastPlans(site_plans.Plans):
    """It tells which nodes are planned on."""

    planned = np.zeros(NODES, dtype=bool)

    def __init__(self, now: float, nodes: NodeTable) -> None:
        super().__init__(now, nodes)
        LastPlans.planned[:] = False

    def add(self, begins: float, ends: float, where: Mask) -> None:
        super().add(begins, ends, where)
        LastPlans.planned |= where


def planned_first(_: NodeTable, found: Places, count: int) -> Places:
    """The others are for jobs that would not leave in time."""
    return found[np.argsort(~LastPlans.planned[found], kind="stable")[:count]]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(0, 20), st.integers(1, NODES)), max_size=14)
)
# Behind the first waiting job: one that ends in time, one that does not, and one that could take its nodes.
@example([(0, 1, 0, 5), (0, 2, 0, 3), (0, 1, 0, 1), (0, 1, 0, 5), (1, 1, 0, 1), (0, 1, 0, 2), (0, 1, 1, 2)])
def test_with_one_plan_it_is_easy(drawn: list[tuple[int, int, int, int]]) -> None:
    trace = in_order(
        TraceJob(number, submit_s, runs_s, nodes, requested_s=runs_s + slack_s)
        for number, (submit_s, runs_s, slack_s, nodes) in enumerate(drawn, start=2)
    )
    jobs = [
        recorded(number, submit_s, runs_s, nodes, time_limit_s=runs_s + slack_s)
        for number, (submit_s, runs_s, slack_s, nodes) in enumerate(drawn, start=2)
    ]
    site = SiteReplay(SiteRecord("site", (FIRST, *jobs)), machine(), CONFIG)
    # EASY leaves as many nodes as it can to jobs behind the first: that one gets, of those that are free by then, the
    # last to be free, and jobs that end before are put on them.
    easy = {"opening": first_second, "chosen": last_to_be_free, "RESOLUTION_S": 1.0}
    choice = patch.object(NodeTable, "choose", planned_first)
    with patch.multiple(site_cluster, PLANS=1, Plans=LastPlans), patch.multiple(site_plans, **easy), choice:
        site.run()
    starts = {job_id: (at - T0).total_seconds() for job_id, at in site.cluster.first_starts.items()}
    expected = {str(o.job.job_id): o.start_s for o in replay_trace(trace, NODES, Easy()).outcomes} if trace else {}
    assert starts == expected


@st.composite
def mixed(draw: st.DrawFn, number: int) -> RecordedJob:
    runs_s = draw(st.integers(1, 100))
    cpus = draw(st.sampled_from([1, 2, 4]))
    return recorded(
        number,
        draw(st.integers(0, 100)),
        runs_s,
        draw(st.integers(1, 3)),
        time_limit_s=draw(st.sampled_from([None, runs_s, runs_s + 50])),
        cpus=cpus,
        memory_mib=cpus * draw(st.sampled_from([0, 500, 1_000])),
        partition=draw(st.sampled_from(["batch", "urgent"])),
        priority=draw(st.integers(1, 3)),
        reservation=draw(st.sampled_from(["", "", "beam"])),
    )


@given(st.data())
def test_no_node_is_given_twice_nor_where_it_must_not_be(data: st.DataObject) -> None:
    jobs = [data.draw(mixed(number)) for number in range(2, 14)]
    partitions = data.draw(st.lists(st.sampled_from(["batch", "urgent", "batch,urgent"]), min_size=4, max_size=4))
    nodes = machine(*partitions, "batch,urgent", "batch,urgent", "batch,urgent")
    beam = Reservation(name="beam", nodes=("n4", "n5", "n6"), start_time=after(30), end_time=after(400))
    outage = Outage("n0", after(20), after(60))
    record = SiteRecord("site", (FIRST, *jobs), reservations=(beam,), outages=(outage,))
    site = SiteReplay(record, nodes, CONFIG)
    cluster = site.cluster
    of_node = {node.name: node for node in nodes}

    def look(_: int) -> None:
        held: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        for entry in cluster.jobs.values():
            job: Job = entry.job
            if not job.state.holds_nodes:
                continue
            held.update(dict.fromkeys(job.nodes, entry.cpus_per_node))
            memory.update(dict.fromkeys(job.nodes, job.memory_mib if not job.exclusive else 0))
            assert len(job.nodes) == job.num_nodes
            for name in job.nodes:
                assert set(job.partitions) & set(of_node[name].partitions)
                assert not job.reservation or name in beam.nodes
                began = job.start_time or T0
                assert not (name == "n0" and outage.start <= began < (outage.end or T0))
                if not job.reservation and name in beam.nodes and began < beam.end_time:
                    limit = timedelta.max if job.time_limit_s is None else timedelta(seconds=job.time_limit_s)
                    assert began < beam.start_time
                    assert limit <= beam.start_time - began
        assert all(count <= 4 for count in held.values())
        assert all(count <= 4_000 for count in memory.values())

    site.run(tick=look)
    unable = {e.job.job_id for e in cluster.jobs.values() if e.job.state is JobState.PENDING}
    assert len(cluster.outcomes) + len(unable) + site.left_out == len(jobs)
    # Only what asks for more than its partition has, or for a reservation that is over, waits for ever.
    for job in jobs:
        if str(job.job_id) in unable and not job.reservation:
            assert sum(job.partition in node.partitions for node in nodes) < job.num_nodes


def test_a_job_with_a_flexible_reservation_comes_first_and_may_have_other_nodes() -> None:
    blocker = recorded(2, 0, 1_000, 1)
    others = [recorded(3, 0, 100, 1), recorded(4, 5, 500, 1, priority=900), recorded(5, 10, 10, 1, partition="urgent")]
    site = SiteReplay(SiteRecord("site", (FIRST, blocker, *others)), machine("batch,urgent", "batch,urgent"), CONFIG)
    cluster = site.cluster

    def attach(_: int) -> None:
        if "5" in cluster.jobs and not cluster.reservations and "5" not in cluster.first_starts:
            (busy,) = cluster.jobs["2"].job.nodes
            times = {"start_time": after(0), "end_time": after(900)}
            cluster.reservations["ours"] = Reservation(name="ours", nodes=(busy,), flags=("FLEX",), **times)
            cluster.jobs["5"].job = replace(cluster.jobs["5"].job, reservation="ours")

    site.run(tick=attach)
    assert cluster.first_starts["5"] == after(100)
    assert cluster.first_starts["4"] == after(110)


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        ([0, 1, 2, 4, 5, 7], 2, [4, 5]),  # the smallest run of neighbours that is large enough
        ([0, 1, 2, 4, 5, 7], 1, [7]),
        ([0, 1, 2, 4, 5, 7], 4, [0, 1, 2, 7]),  # else the largest, and what suits the rest
        ([1, 2, 4, 5], 2, [1, 2]),
        ([3, 4, 6, 7], 3, [3, 4, 6]),
    ],
)
def test_nodes_are_chosen_as_slurm_does(free: list[int], count: int, chosen: list[int]) -> None:
    table = NodeTable({node.name: node for node in machine()})
    assert sorted(table.choose(np.array(free), count).tolist()) == chosen


def test_the_lightest_nodes_come_first() -> None:
    nodes = {node.name: replace(node, weight=1 if node.name == "n5" else 9) for node in machine()}
    table = NodeTable(nodes)
    assert [table.names[at] for at in table.choose(np.arange(NODES), 3)] == ["n5", "n0", "n1"]


def test_a_job_that_waits_holds_the_nodes_that_slurm_would_plan_for_it() -> None:
    """n0 is free, n1 will be when the large job can start: neighbours, so that nothing long may start on n0."""
    limits = {2: 100, 3: 900, 4: 100}
    ran = [
        recorded(
            number, -20, limit_s, 1, runs=(Run(start=after(-20), end=after(limit_s), elapsed_s=limit_s, nodes=(n,)),)
        )
        for (number, limit_s), n in zip(limits.items(), ("n1", "n2", "n3"), strict=True)
    ]
    large, long = recorded(5, 0, 60, 2), recorded(6, 1, 500, 1)
    site = SiteReplay(SiteRecord("site", (FIRST, *ran, large, long)), machine(*["batch"] * 4), CONFIG)
    site.run()
    assert site.cluster.first_starts["5"] == after(80)
    assert site.cluster.first_starts["6"] == after(80)
