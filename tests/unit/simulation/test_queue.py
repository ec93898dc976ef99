"""What the simulated Slurm does by rules that a real one would take minutes to show."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clearway.model.cluster import JobState, Node
from clearway.model.errors import SlurmRefusedError
from clearway.model.limits import Cap, LimitKind, Limits, Qos
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program
from clearway.simulation.scheduler import Rules
from clearway.simulation.updates import update_job, update_node
from tests.builders import NOW

LONG = Program(work_s=1e6, exit_s=0.1)


def cluster(nodes: int = 2, **rules: Any) -> SimulatedCluster:
    made = SimulatedCluster(now=NOW, rules=Rules(strict=True, **rules))
    node = Node(name="", available=True, raw_state="IDLE", cpus=4, memory_mib=4_000, partitions=("batch",))
    made.add_nodes(replace(node, name=f"n{number}") for number in range(1, nodes + 1))
    return made


def after(made: SimulatedCluster, seconds: float) -> None:
    made.advance(made.now + timedelta(seconds=seconds))


def state(made: SimulatedCluster, job_id: str) -> JobState:
    return made.jobs[job_id].job.state


@pytest.mark.parametrize(("over_s", "ends_at_s"), [(0, 60), (90, 150)])
def test_a_time_limit_ends_a_run(over_s: int, ends_at_s: int) -> None:
    made = cluster(over_time_limit_s=over_s)
    job_id = made.submit(LONG, on=("n1",), time_limit_s=60)
    after(made, ends_at_s - 1)
    assert state(made, job_id) is JobState.RUNNING
    after(made, 2)
    assert made.jobs[job_id].job.raw_state == "TIMEOUT"


def test_time_limits_are_looked_at_now_and_then() -> None:
    made = cluster(limits_every_s=3_600.0)
    job_id = made.submit(LONG, on=("n1",), time_limit_s=60)
    to_the_hour_s = -NOW.timestamp() % 3_600 or 3_600
    after(made, to_the_hour_s - 1)
    assert state(made, job_id) is JobState.RUNNING
    after(made, 2)
    assert made.jobs[job_id].job.raw_state == "TIMEOUT"


def test_a_limit_that_is_extended_or_cut_counts_at_once() -> None:
    made = cluster()
    one, other = (made.submit(LONG, on=(name,), time_limit_s=60) for name in ("n1", "n2"))
    update_job(made, one, time_limit_s=600)
    update_job(made, other, time_limit_s=30)
    after(made, 31)
    assert made.jobs[other].job.raw_state == "TIMEOUT"
    after(made, 300)
    assert state(made, one) is JobState.RUNNING


def test_a_scheduler_that_looks_now_and_then() -> None:
    made = cluster(every_s=30.0)
    made.advance(NOW)
    job_id = made.submit(LONG)
    after(made, 29)
    assert state(made, job_id) is JobState.PENDING
    after(made, 2)
    assert state(made, job_id) is JobState.RUNNING
    assert made.jobs[job_id].job.start_time == NOW + timedelta(seconds=30)


def test_ids_come_again_where_they_are_free() -> None:
    made = cluster(first_job_id=10, last_job_id=12)
    made.next_id = 10
    first = [made.submit(LONG, priority=0) for _ in range(3)]
    made.withdraw(made.jobs[first[1]])
    after(made, 301)
    assert [*first, made.submit(LONG)] == ["10", "11", "12", "11"]


def test_a_node_that_dies_has_its_jobs_requeued_or_failed() -> None:
    made = cluster()
    kept = made.submit(LONG, on=("n1",))
    lost = made.submit(LONG, on=("n2",), requeueable=False)
    for name in ("n1", "n2"):
        update_node(made, name, "DOWN", "Not responding")
    assert (state(made, kept), made.jobs[kept].job.restart_count) == (JobState.PENDING, 1)
    assert made.jobs[lost].job.raw_state == "NODE_FAIL"
    assert [run.how for run in made.history] == ["NODE_FAIL_REQUEUED", "NODE_FAIL"]
    update_node(made, "n1", "RESUME")
    assert state(made, kept) is JobState.RUNNING


def test_a_prolog_that_fails_holds_the_job_and_drains_the_node() -> None:
    made = cluster()
    made.ills.prologs = {"n1"}
    job_id = made.submit(LONG)
    made.advance(NOW)
    job = made.jobs[job_id].job
    assert (job.state, job.priority, job.restart_count) == (JobState.PENDING, 0, 1)
    assert made.nodes["n1"].reason == "Prolog error"
    update_job(made, job_id, held="")
    assert made.jobs[job_id].job.nodes == ("n2",)


def test_nodes_that_hang_keep_a_job_that_leaves_and_are_drained() -> None:
    made = cluster()
    made.ills.hangs, made.ills.epilogs = {"n1": 60.0}, {"n1": "Kill task failed"}
    job_id = made.submit(LONG, on=("n1",))
    made.end_run(made.jobs[job_id], requeue=True)
    after(made, 59)
    assert state(made, job_id) is JobState.COMPLETING
    after(made, 2)
    assert state(made, job_id) is JobState.PENDING
    assert made.nodes["n1"].reason == "Kill task failed"


def test_licenses_that_are_taken() -> None:
    made = cluster()
    made.licenses = {"matlab": 2}
    one = made.submit(LONG, on=("n1",), licenses="matlab:2")
    other = made.submit(LONG, licenses="matlab:1")
    made.advance(NOW)
    assert (state(made, other), made.jobs[other].job.reason) == (JobState.PENDING, "Licenses")
    made.end_run(made.jobs[one], requeue=False)
    after(made, 1)
    assert state(made, other) is JobState.RUNNING


def test_a_limit_on_a_users_jobs() -> None:
    made = cluster()
    caps = {(LimitKind.USER, "jobs"): Cap(1)}
    made.limits = Limits(enforced=True, qos={"low": Qos(name="low", caps=caps)})
    made.submit(LONG, on=("n1",), qos="low", user="ann")
    job_id = made.submit(LONG, qos="low", user="ann")
    other = made.submit(LONG, qos="low", user="bea")
    made.advance(NOW)
    assert made.jobs[job_id].job.reason == "QOSMaxJobsPerUserLimit"
    assert state(made, other) is JobState.RUNNING


def test_an_update_of_a_job_that_has_ended_is_refused() -> None:
    made = cluster()
    job_id = made.submit(LONG)
    made.withdraw(made.jobs[job_id])
    with pytest.raises(SlurmRefusedError):
        update_job(made, job_id, nice=5)
