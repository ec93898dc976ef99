"""Users write anything into what they control: it must not change another field, and garbage is only skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.cluster import ClusterSnapshot, Job, JobState, Skipped
from clearway.slurm import parse
from tests.builders import NOW

TOKEN = "0123456789abcdef"
GOOD = {
    "JobID": "101",
    "ArrayJobID": "101",
    "ArrayTaskID": "N/A",
    "HetJobID": "N/A",
    "HetJobOffset": "N/A",
    "UserName": "alice",
    "Account": "physics",
    "Partition": "batch",
    "QOS": "normal",
    "State": "RUNNING",
    "Reason": "None",
    "NumNodes": "2",
    "NodeList": "node[1-2]",
    "NumCPUs": "8",
    "MinCpus": "4",
    "NumTasks": "1",
    "cpus-per-task": "1",
    "OverSubscribe": "OK",
    "TimeLimit": "1:00:00",
    "StartTime": "2026-11-21T09:47:28",
    "EndTime": "2026-11-21T10:47:28",
    "Deadline": "N/A",
    "SubmitTime": "2026-11-21T09:47:00",
    "EligibleTime": "2026-11-21T09:47:00",
    "Name": "good",
    "Comment": "(null)",
    "Reservation": "(null)",
    "Dependency": "(null)",
    "Feature": "(null)",
    "Licenses": "(null)",
    "tres-per-node": "N/A",
    "tres-per-job": "N/A",
    "tres-per-socket": "N/A",
    "tres-per-task": "N/A",
    "cpus-per-tres": "N/A",
    "mem-per-tres": "N/A",
    "tres-alloc": "cpu=8,mem=2G,node=2,billing=8",
    "ReqNodes": "",
    "Contiguous": "0",
    "ReqSwitch": "0",
    "PriorityLong": "100",
    "Nice": "0",
    "Requeue": "1",
    "RestartCnt": "0",
    "BatchFlag": "1",
}
USERS_WRITE = ("Name", "Comment", "Account", "Feature", "Dependency", "Licenses", "tres-per-task")
LURES = st.sampled_from(
    [
        "x JobState=RUNNING UserId=root(0)",
        "\n102|",
        "|0123456789abcde|",
        "|guess|9|guess|",
        "$\n",
        "(null)",
        '"},{"job_id": 9',
        "\x00\x1b[2J\r\n\x85\u2028",
        "%n%s",
    ]
)
# Neither can a job hold the token (it is made after the job was seen), nor can text hold a lone surrogate.
HOSTILE = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), LURES, st.tuples(LURES, LURES).map("".join))
HOSTILE = HOSTILE.filter(lambda value: TOKEN not in value)


def record(**changes: str) -> str:
    row = GOOD | changes
    return f"|{TOKEN}|".join(row[column] for column in parse.JOB_COLUMNS) + f"|{TOKEN}$\n"


def plain() -> Job:
    (job,), _ = parse.read_jobs(record(), TOKEN)
    return job


def test_the_good_record_is_whole() -> None:
    job = plain()
    assert (job.job_id, job.state, job.nodes, job.memory_mib) == ("101", JobState.RUNNING, ("node1", "node2"), 1024)
    assert tuple(GOOD) == parse.JOB_COLUMNS


@given(HOSTILE, HOSTILE)
def test_name_and_comment_change_nothing_else(name: str, comment: str) -> None:
    text = record(JobID="100") + record(Name=name, Comment=comment) + record(JobID="102")
    jobs, skipped = parse.read_jobs(text, TOKEN)
    assert skipped == []
    assert [job.job_id for job in jobs] == ["100", "101", "102"]
    hostile = jobs[1]
    assert hostile.name == name
    assert hostile.comment == ("" if comment == "(null)" else comment)
    assert replace(hostile, name="good", comment="") == plain()


@given(st.sampled_from(USERS_WRITE), HOSTILE)
def test_no_field_that_users_write_touches_another_job(column: str, value: str) -> None:
    jobs, skipped = parse.read_jobs(record(JobID="100") + record(**{column: value}) + record(JobID="102"), TOKEN)
    assert {"100", "102"} <= {job.job_id for job in jobs}
    assert len(jobs) + len(skipped) == 3
    for job in jobs:
        assert (job.state, job.nodes, job.user) == (JobState.RUNNING, ("node1", "node2"), "alice")


@given(st.sampled_from(sorted(GOOD)), HOSTILE)
def test_garbage_in_any_column_is_read_or_skipped(column: str, value: str) -> None:
    jobs, skipped = parse.read_jobs(record(**{column: value}) + record(JobID="102"), TOKEN)
    assert len(jobs) + len(skipped) >= 2 or column == "JobID"
    assert all(item.kind == "job" for item in skipped)


@given(st.text())
def test_garbage_as_output_is_skipped(text: str) -> None:
    jobs, skipped = parse.read_jobs(text, TOKEN)
    assert jobs == []
    assert bool(skipped) == bool(text.strip())
    parse.read_excluded_nodes(text, TOKEN)
    parse.read_nodes(text)
    parse.read_reservations(text)
    parse.node_status(text)


@given(st.integers(0, len(record())))
def test_output_that_was_cut_off_is_skipped(length: int) -> None:
    whole = record(JobID="100")
    jobs, skipped = parse.read_jobs((whole + record())[: len(whole) + length], TOKEN)
    assert jobs[0].job_id == "100"
    assert len(jobs) + len(skipped) <= 2
    assert all(replace(job, job_id="101") == plain() for job in jobs)


@given(st.sampled_from(sorted(set(GOOD) - {"JobID", "State", "NodeList"})), HOSTILE)
def test_whatever_cannot_be_read_of_a_running_job_its_nodes_are_known(column: str, value: str) -> None:
    """One such record kept every node of the cluster from being called free."""
    seen = snapshot_of(*parse.read_jobs(record(JobID="100") + record(**{column: value}), TOKEN))
    assert not seen.unreadable
    held = {job.job_id for job in seen.jobs_on["node1"]}
    assert held == {"100", "101"}
    assert seen.unread_jobs == {item.ident for item in seen.skipped} <= {"101"}
    for job_id in seen.unread_jobs:
        kept = seen.job_by_id[job_id]
        assert (kept.state, kept.nodes) == (JobState.UNKNOWN, ("node1", "node2"))
        assert not kept.can_be_requeued


@given(st.sampled_from(("JobID", "State", "NodeList")), HOSTILE)
def test_where_not_even_the_nodes_can_be_read_no_node_is_free(column: str, value: str) -> None:
    (job, *_), skipped = parse.read_jobs(record(JobID="100") + record(**{column: value}), TOKEN)
    assert job.job_id == "100"
    jobs, _ = parse.read_jobs(record(**{column: value}), TOKEN)
    if not jobs:  # else it could be read, as another word, number or list would be
        assert snapshot_of(jobs, skipped).unreadable


def snapshot_of(jobs: Sequence[Job], skipped: Sequence[Skipped]) -> ClusterSnapshot:
    return ClusterSnapshot(NOW, tuple(jobs), (), tuple(skipped))


def test_one_id_twice_is_skipped() -> None:
    jobs, (skipped,) = parse.read_jobs(record() + record(State="PENDING", NodeList="") + record(JobID="102"), TOKEN)
    assert [job.job_id for job in jobs] == ["102"]
    assert skipped.ident == "101"


def test_running_without_nodes_is_skipped() -> None:
    jobs, (skipped,) = parse.read_jobs(record(NodeList=""), TOKEN)
    assert jobs == []
    assert "no nodes" in skipped.why


def test_an_unknown_state_keeps_its_nodes_and_its_word() -> None:
    (job,), _ = parse.read_jobs(record(State="TELEPORTING"), TOKEN)
    assert (job.state, job.raw_state, job.nodes) == (JobState.UNKNOWN, "TELEPORTING", ("node1", "node2"))


def test_gres_without_processors_and_memory() -> None:
    values = {"tres-per-node": "gres:gpu:2", "tres-per-task": "cpu=2,gres/gpu=1", "tres-per-job": "gres/license:1"}
    (job,), _ = parse.read_jobs(record(**values), TOKEN)
    assert job.gres == "gres:gpu:2,gres/license:1,gres/gpu=1"


@pytest.mark.parametrize(
    ("state", "nodes", "holds"),
    [
        ("PENDING", "", False),
        ("CANCELLED", "", False),
        ("PENDING", "node1", True),
        ("RUNNING", "", True),
        ("?", "", True),
    ],
)
def test_an_unreadable_record_matters_only_where_the_job_may_hold_nodes(state: str, nodes: str, holds: bool) -> None:
    _, (skipped,) = parse.read_jobs(record(State=state, NodeList=nodes, SubmitTime="never"), TOKEN)
    assert skipped.holds_nodes is holds
