"""One cluster, filled in the same way under each release and read through each backend, reads as the same records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clearway.model.cluster import Job, JobState, Node, Reservation
from clearway.slurm import parse, pyslurm_records
from clearway.slurm.parse import site
from clearway.slurm.releases import TRIED, release_of
from tests.builders import NOW
from tests.unit.slurm import recordings
from tests.unit.slurm.recordings import RELEASES, read

FIRST, *LATER = RELEASES
ROWS = {row.name: row for row in TRIED}
WITH_PYSLURM = [release for release in RELEASES if (release / "pyslurm.jsonl").exists()]


def timeless(job: Job) -> Job:
    """Without what depends on how fast the machine was, and on a counter in Slurm."""
    started = None if job.start_time is None else NOW
    eligible = None if job.eligible_time is None else NOW
    end = None if job.end_time is None or job.start_time is None else NOW + (job.end_time - job.start_time)
    if end is not None and job.state in (JobState.COMPLETING, JobState.ENDED):
        end = NOW
    priority = min(job.priority, 1)
    return replace(job, submit_time=NOW, start_time=started, end_time=end, eligible_time=eligible, priority=priority)


def lasting(reservation: Reservation) -> tuple[Reservation, float]:
    seconds = (reservation.end_time - reservation.start_time).total_seconds()
    return replace(reservation, start_time=NOW, end_time=NOW), seconds


def test_each_release_that_was_tried_is_recorded() -> None:
    assert [folder.name for folder in RELEASES] == [row.name for row in TRIED]
    assert [folder.name for folder in WITH_PYSLURM] == ["26.05"]


@pytest.mark.parametrize("release", LATER, ids=lambda folder: folder.name)
def test_jobs_and_reservations_read_the_same(release: Path) -> None:
    for job_id, job in recordings.jobs(FIRST).items():
        assert timeless(recordings.jobs(release)[job_id]) == timeless(job)
    assert recordings.jobs(release).keys() == recordings.jobs(FIRST).keys()
    both = [{name: lasting(each) for name, each in recordings.reservations(r).items()} for r in (FIRST, release)]
    assert both[0] == both[1]


@pytest.mark.parametrize("release", RELEASES, ids=lambda folder: folder.name)
def test_nodes_read_the_same_but_for_the_name_of_their_reservation(release: Path) -> None:
    nodes = recordings.nodes(release)
    told = {name: node.reservation for name, node in nodes.items() if node.reservation is not None}
    names = {"node4": "maintenance", "node7": "clearway-1"}
    assert told == (names if release.name in recordings.NAME_RESERVATIONS else dict.fromkeys(names, ""))
    plain = {name: replace(node, reservation=None) for name, node in nodes.items()}
    assert plain == {name: replace(node, reservation=None) for name, node in recordings.nodes(FIRST).items()}


@pytest.mark.parametrize("release", RELEASES, ids=lambda folder: folder.name)
def test_what_is_not_of_jobs_and_nodes_reads_the_same(release: Path) -> None:
    config = read(release, "config.txt")
    assert release_of(site.version(config)) == release.name
    assert not site.sorts_by_qos(config)
    assert site.read_tiers(read(release, "partitions.txt")) == {"batch": 1, "urgent": 1}
    switches = site.read_leaf_switches(read(release, "topology.txt"))
    assert switches == {f"node{n}": "leaf1" if n <= 4 else "leaf2" for n in range(1, 9)}
    excluded = [parse.read_excluded_nodes(read(r, "excluded.txt"), recordings.TOKEN) for r in (FIRST, release)]
    assert excluded[0] == excluded[1]


@pytest.mark.parametrize("release", RELEASES, ids=lambda folder: folder.name)
def test_the_columns_of_squeue_are_those_of_the_table(release: Path) -> None:
    row, known = ROWS[release.name], read(release, "columns.txt")
    assert bool(known.split()) is (release.name in recordings.TELL_COLUMNS)
    assert row.sharing_column in recordings.columns(release)
    if known:
        ours = {column.lower() for column in recordings.columns(release)}
        told = {column.lower() for column in known.split()}
        assert ours - told <= {"tres-per-node"}  # squeue takes it in each release, and does not tell it


@pytest.mark.parametrize("release", WITH_PYSLURM, ids=lambda folder: folder.name)
def test_pyslurm_reads_the_same_jobs_as_squeue(release: Path) -> None:
    """Of jobs that wait or hold nodes. Of a name that is not UTF-8 nothing is known."""
    found, skipped = pyslurm_records.read_jobs(recordings.pyslurm_records(release)["jobs"])
    assert skipped == []
    excluded, _ = parse.read_excluded_nodes(read(release, "excluded.txt"), recordings.TOKEN)
    listed = {job_id: job for job_id, job in recordings.jobs(release).items() if job.state is not JobState.ENDED}
    assert {job.job_id for job in found} == listed.keys()
    # Of tasks that wait. squeue tells it with most of them, and the cli backend knows it of the others by that.
    limits = {job.array_job_id: job.array_limit for job in listed.values() if job.array_limit}
    for job in found:
        same = listed[job.job_id]
        readable = "\ufffd" not in same.name
        nodes = excluded.get(job.job_id, job.excluded_nodes)  # those of waiting jobs were recorded
        limit = limits.get(same.array_job_id, 0) if same.state is JobState.PENDING else 0
        expected = replace(same, name=same.name if readable else "", excluded_nodes=nodes, array_limit=limit)
        assert timeless(job) == timeless(expected)


@pytest.mark.parametrize("release", WITH_PYSLURM, ids=lambda folder: folder.name)
def test_pyslurm_reads_the_same_nodes_and_reservations_as_scontrol(release: Path) -> None:
    """Of a Reason with several lines scontrol shows the first one."""
    records = recordings.pyslurm_records(release)
    nodes, skipped = pyslurm_records.read_nodes(records["nodes"], records["reservations"])
    assert skipped == []

    def one_line(node: Node) -> Node:
        return replace(node, reason=node.reason.partition("\n")[0])

    assert {node.name: one_line(node) for node in nodes} == recordings.nodes(release)
    found, skipped = pyslurm_records.read_reservations(records["reservations"])
    assert skipped == []
    same = {name: lasting(each) for name, each in recordings.reservations(release).items()}
    assert {each.name: lasting(each) for each in found} == same
