"""What real Slurm releases printed (tests/slurm/record.py) reads as what was there; the same for every release."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clearway.model.cluster import Job, JobState, Node
from clearway.slurm import parse
from tests.unit.slurm import recordings
from tests.unit.slurm.recordings import read

RELEASES = recordings.RELEASES
TOKEN = recordings.TOKEN
FORGED = 'x\nJobId=9 JobState=RUNNING UserId=root(0) NodeList=node8 |guess|0|"},{"job_id": 9'


@pytest.fixture(scope="module", params=RELEASES, ids=lambda folder: str(folder.name))
def release(request: pytest.FixtureRequest) -> Path:
    folder = request.param
    assert isinstance(folder, Path)
    return folder


@pytest.fixture(scope="module")
def jobs(release: Path) -> dict[str, Job]:
    """Jobs by id."""
    return recordings.jobs(release)


@pytest.fixture(scope="module")
def named(jobs: dict[str, Job]) -> dict[str, Job]:
    """Jobs by name, of those that share one the one with the least id."""
    return {job.name: job for job in sorted(jobs.values(), key=lambda job: int(job.job_id), reverse=True)}


@pytest.fixture(scope="module")
def nodes(release: Path) -> dict[str, Node]:
    return recordings.nodes(release)


@pytest.mark.parametrize(
    ("name", "state", "on_nodes"),
    [
        ("all-started", JobState.RUNNING, ("node1",)),
        ("multi", JobState.RUNNING, ("node5", "node6")),
        (FORGED, JobState.RUNNING, ("node2",)),
        ("suspended", JobState.SUSPENDED, ("node3",)),
        ("completing", JobState.COMPLETING, ("node1",)),
        ("requeue-completing", JobState.COMPLETING, ("node1",)),
        ("slow-start", JobState.CONFIGURING, ("node1",)),
        ("het", JobState.RUNNING, ("node1",)),
        ("pending", JobState.PENDING, ()),
        ("dependent", JobState.PENDING, ()),
        ("requeued", JobState.PENDING, ()),
        ("requeue-hold", JobState.PENDING, ()),
        ("special-exit", JobState.PENDING, ()),
        ("attached", JobState.PENDING, ()),
        ("cancelled", JobState.ENDED, ()),
    ],
)
def test_state_and_nodes(named: dict[str, Job], name: str, state: JobState, on_nodes: tuple[str, ...]) -> None:
    job = named[name]
    assert (job.state, job.nodes) == (state, on_nodes)
    assert job.num_nodes >= len(on_nodes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("multi", {"num_nodes": 2, "cpus": 16, "memory_mib": 4000, "contiguous": True, "time_limit_s": 183_900}),
        ("multi", {"required_nodes": ("node5", "node6"), "user": "cwalice", "restart_count": 0, "batch": True}),
        ("no-requeue", {"requeueable": False, "licenses": "matlab:2", "user": "cwbob", "time_limit_s": 3600}),
        ("suspended", {"priority": 0, "memory_mib": 100}),
        ("requeued", {"restart_count": 1, "reason": "BeginTime", "start_time": None}),
        ("requeue-hold", {"restart_count": 1, "priority": 0, "start_time": None}),
        ("requeue-completing", {"restart_count": 1}),
        ("completing", {"restart_count": 0}),
        ("special-exit", {"raw_state": "SPECIAL_EXIT", "priority": 0}),
        # -N2-4 -c2 --mem-per-cpu=500: the least that it needs
        ("pending", {"num_nodes": 2, "partitions": ("batch", "urgent"), "priority": 0, "cpus_per_node": 2}),
        ("pending", {"reason": "JobHeldUser", "eligible_time": None, "gres": ""}),
        ("dependent", {"comment": "clearway:max_delay=10m", "dependency": "afterok:5(unfulfilled)", "num_nodes": 8}),
        ("features", {"features": "big", "time_limit_s": None}),
        ("attached", {"reservation": "clearway-1"}),
        ("big-array", {"pending_tasks": 267, "array_task_id": None, "array_job_id": "15"}),
        ("slow-start", {"array_job_id": None, "het_job_id": None, "reservation": None, "pending_tasks": 1}),
    ],
)
def test_fields(named: dict[str, Job], name: str, expected: dict[str, Any]) -> None:
    assert {key: getattr(named[name], key) for key in expected} == expected


def test_array_tasks_are_jobs_of_their_own(jobs: dict[str, Job]) -> None:
    tasks = sorted((job for job in jobs.values() if job.name == "array"), key=lambda job: job.display_id)
    seen = [(job.job_id, job.array_task_id, job.pending_tasks, job.state) for job in tasks]
    assert seen == [("1", None, 2, JobState.PENDING), ("2", 1, 1, JobState.RUNNING), ("3", 2, 1, JobState.RUNNING)]
    assert {job.array_job_id for job in tasks} == {"1"}


def test_last_task_of_an_array_has_the_id_of_the_array(release: Path, jobs: dict[str, Job]) -> None:
    last = next(job for job in jobs.values() if job.name == "all-started" and job.array_task_id == 8)
    assert last.job_id == last.array_job_id
    rows, _ = parse.split_rows(read(release, "jobs.txt"), TOKEN, recordings.columns(release))
    targets = {row["JobID"]: parse.job_target(row) for row in rows}
    assert targets[last.job_id] == f"{last.job_id}_8"  # its number alone would mean every task
    assert targets["1"] == "1_[3-4]"
    assert targets["15"] == "15_[1-799:3]"
    assert targets["5"] == "5"


def test_components_of_a_heterogeneous_job(jobs: dict[str, Job]) -> None:
    parts = sorted((job.display_id, job.job_id, job.nodes) for job in jobs.values() if job.name == "het")
    assert parts == [("11+0", "11", ("node1",)), ("11+1", "12", ("node2", "node3"))]


def test_a_hostile_name_and_comment_change_nothing_else(jobs: dict[str, Job]) -> None:
    hostile = next(job for job in jobs.values() if job.name == FORGED)
    assert hostile.comment == FORGED
    assert (hostile.job_id, hostile.user, hostile.nodes) == ("7", "cwalice", ("node2",))
    assert jobs["9"].name == "no-requeue"


def test_a_name_that_is_not_utf8_is_read(jobs: dict[str, Job]) -> None:
    assert jobs["8"].name == "raw\ufffd\ufffd\x01"


def test_times_are_utc(named: dict[str, Job]) -> None:
    start, submit = named["multi"].start_time, named["multi"].submit_time
    assert start is not None
    assert submit <= start
    assert start.tzinfo is UTC
    assert submit > datetime(2026, 1, 1, tzinfo=UTC)


def test_excluded_nodes(release: Path, jobs: dict[str, Job]) -> None:
    excluded, skipped = parse.read_excluded_nodes(read(release, "excluded.txt"), TOKEN)
    assert skipped == []
    by_name = {jobs[job_id].name: hosts for job_id, hosts in excluded.items()}
    assert by_name["array"] == ("node2", "node4", "node5")
    assert by_name["pending"] == ("node1", "node2", "node3")
    assert by_name["dependent"] == ()


@pytest.mark.parametrize(
    ("name", "available"),
    [
        ("node1", True),  # MIXED, with jobs completing
        ("node2", False),  # drained
        ("node3", False),  # drained, with a reason that speaks of node1
        ("node4", False),  # maintenance
        ("node5", True),  # ALLOCATED
        ("node7", True),  # in a reservation
        ("node8", False),  # DOWN
    ],
)
def test_node_available(nodes: dict[str, Node], name: str, available: bool) -> None:
    assert nodes[name].available is available


def test_node_fields(nodes: dict[str, Node], release: Path) -> None:
    assert len(nodes) == 8
    assert (nodes["node1"].cpus, nodes["node1"].memory_mib) == (8, 4000)
    assert (nodes["node5"].alloc_cpus, nodes["node8"].alloc_cpus) == (8, 0)
    assert nodes["node1"].partitions == ("batch", "urgent")
    assert nodes["node1"].features == ("big",)
    assert nodes["node2"].reason == "clearway:compaction"
    assert nodes["node8"].reason == "no light"
    assert nodes["node1"].reservation is None
    assert nodes["node7"].reservation == ("" if release.name == "22.05" else "clearway-1")


def test_node_status(release: Path) -> None:
    lines = {line.split()[0]: parse.node_status(line) for line in read(release, "nodes.txt").splitlines()}
    assert lines["NodeName=node2"] == parse.NodeStatus(drained=True, reason="clearway:compaction")
    assert lines["NodeName=node3"].drained
    assert lines["NodeName=node3"].reason == "job x State=IDLE"
    assert lines["NodeName=node1"] == parse.NodeStatus(drained=False, reason="")
    assert not lines["NodeName=node8"].drained


def test_reservations(release: Path) -> None:
    found, skipped = parse.read_reservations(read(release, "reservations.txt"))
    assert skipped == []
    ours, maintenance = found
    assert (ours.name, ours.nodes, ours.users) == ("clearway-1", ("node7",), ("root", "cwbob"))
    assert {"IGNORE_JOBS", "FLEX"} <= set(ours.flags)
    assert (ours.end_time - ours.start_time).total_seconds() == 3600
    assert maintenance.nodes == ("node4",)
    assert parse.read_reservations("No reservations in the system\n") == ([], [])
