"""What the pyslurm worker sends becomes jobs, nodes and reservations; nothing is guessed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.slurm.parse.fields import LATEST, LONGEST_S
from clearway.slurm.pyslurm_records import read_jobs, read_nodes, read_reservations
from tests.builders import NOW

START = 1_795_255_854


def job(**fields: Any) -> dict[str, Any]:
    """A running job of one node, as pyslurm 25.11 showed it on Slurm 26.05."""
    return {
        "id": 6,
        "state": "RUNNING",
        "state_reason": "None",
        "partition": "batch",
        "num_nodes": 1,
        "allocated_nodes": "node1",
        "cpus": 2,
        "min_cpus_per_node": 1,
        "memory_mib": 2000,
        "tres_nodes": 1,
        "time_limit": 30,
        "start_time": START,
        "submit_time": START - 3,
        "eligible_time": START - 3,
        "constraints": [],
        "licenses": [],
        "gres": [],
        "requires_contiguous_nodes": False,
        "priority": 1,
        "is_requeueable": True,
        "requeue_count": 0,
        "is_batch_job": True,
        "user_name": "alice",
        "name": "job",
    } | fields


def node(**fields: Any) -> dict[str, Any]:
    return {
        "name": "node1",
        "state": "ALLOCATED",
        "total_cpus": 4,
        "effective_cpus": 4,
        "allocated_cpus": 4,
        "real_memory": 4000,
        "memory_reserved_for_system": None,
        "partitions": ["batch", "urgent"],
        "active_features": ["fast"],
        "weight": 50,
        "reason": None,
    } | fields


def test_a_running_job() -> None:
    jobs, skipped = read_jobs([job(requeue_count=2, comment="clearway:max_delay=10m", allocated_nodes="node[1-2]")])

    assert skipped == []
    assert jobs[0].state is JobState.RUNNING
    assert jobs[0].nodes == ("node1", "node2")
    assert jobs[0].memory_mib == 1000
    assert jobs[0].time_limit_s == 1800
    assert jobs[0].run == ("6", 2, datetime.fromtimestamp(START, UTC))
    assert jobs[0].comment == "clearway:max_delay=10m"


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.lists(st.text(), max_size=3),
    st.dictionaries(st.text(), st.text()),
)


@given(st.sampled_from(sorted(set(job()) - {"id", "state", "allocated_nodes"})), ANYTHING)
def test_whatever_cannot_be_read_of_a_running_job_its_nodes_are_known(key: str, value: Any) -> None:
    jobs, skipped = read_jobs([job(id=5), job(**{key: value})])
    seen = ClusterSnapshot(NOW, tuple(jobs), (), tuple(skipped))
    assert not seen.unreadable
    assert {each.job_id for each in seen.jobs_on["node1"]} == {"5", "6"}
    assert seen.unread_jobs == {item.ident for item in skipped} <= {"6"}
    assert all(seen.job_by_id[each].state is JobState.UNKNOWN for each in seen.unread_jobs)


@given(st.sampled_from(sorted(job())), ANYTHING)
def test_garbage_in_any_field_is_read_or_skipped(key: str, value: Any) -> None:
    jobs, skipped = read_jobs([job(id=5), job(**{key: value})])
    assert "5" in {each.job_id for each in jobs} or value == 5
    assert all(item.kind == "job" for item in skipped)


def test_a_waiting_job_has_no_start_and_asks_for_the_least() -> None:
    waiting = job(state="PENDING", allocated_nodes=None, num_nodes=4, tres_nodes=2, time_limit=None)
    jobs, _ = read_jobs([waiting | {"excluded_nodes": "node[3-4]", "dependencies": "afterok:5"}])

    assert (jobs[0].start_time, jobs[0].time_limit_s, jobs[0].num_nodes) == (None, None, 2)
    assert jobs[0].excluded_nodes == ("node3", "node4")
    assert jobs[0].dependency == "afterok:5"


@pytest.mark.parametrize(
    ("task_id", "waiting", "expected"),
    [
        (None, None, (0, 1)),  # pyslurm says None for task 0
        (3, None, (3, 1)),
        (None, "0-9", (None, 10)),
        (None, "1,4-8:2,20", (None, 5)),
        (None, "7", (7, 1)),
    ],
)
def test_array_tasks(task_id: int | None, waiting: str | None, expected: tuple[int | None, int]) -> None:
    jobs, _ = read_jobs([job(array_id=1, array_task_id=task_id, array_tasks_waiting=waiting)])

    assert jobs[0].array_job_id == "1"
    assert (jobs[0].array_task_id, jobs[0].pending_tasks) == expected


def test_the_first_component_of_a_heterogeneous_job() -> None:
    jobs, _ = read_jobs([job(heterogeneous_id=6, heterogeneous_offset=None), job(id=7)])

    assert (jobs[0].het_job_id, jobs[0].het_job_offset) == ("6", 0)
    assert (jobs[1].het_job_id, jobs[1].het_job_offset) == (None, None)


def test_ended_jobs_are_left_out_and_waiting_ones_with_nodes_are_leaving() -> None:
    jobs, skipped = read_jobs([job(id=1, state="COMPLETED", allocated_nodes=None), job(id=2, state="PENDING")])

    assert [(each.job_id, each.state) for each in jobs] == [("2", JobState.COMPLETING)]
    assert skipped == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"allocated_nodes": None}, "has no nodes"),
        ({"allocated_nodes": "node[1-"}, "brackets"),
        ({"submit_time": None}, "SubmitTime is missing"),
        ({"requeue_count": "two"}, "requeue_count is 'two'"),
        ({"requeue_count": -1}, "requeue_count is -1"),
        ({"is_requeueable": None}, "is_requeueable is None"),
        ({"start_time": 1e300}, "start_time"),
        ({"array_id": 6, "array_tasks_waiting": "a-b"}, "ArrayTaskID is 'a-b'"),
        ({"unreadable": "gres: ValueError: x"}, "gres: ValueError: x"),
        ({"id": None}, "id is missing"),
    ],
)
def test_what_cannot_be_read_is_skipped_alone(fields: dict[str, Any], why: str) -> None:
    jobs, skipped = read_jobs([job(id=5), job(**fields)])

    assert [each.job_id for each in jobs if each.state is not JobState.UNKNOWN] == ["5"]
    assert len(skipped) == 1
    assert why in skipped[0].why
    assert skipped[0].holds_nodes


def test_times_and_limits_of_another_age_stay_dates() -> None:
    (made,), skipped = read_jobs([job(state="PENDING", allocated_nodes=None, eligible_time=2**62, time_limit=2**31)])
    assert not skipped
    assert (made.eligible_time, made.time_limit_s) == (LATEST, LONGEST_S)


def test_a_skipped_job_that_waits_holds_no_nodes() -> None:
    _, skipped = read_jobs([job(state="PENDING", allocated_nodes=None, submit_time=None)])
    assert not skipped[0].holds_nodes


# As pyslurm 25.11 showed jobs with ``--cpus-per-gpu=2`` on Slurm 26.05: no processors of a task, but all of the job.
@pytest.mark.parametrize(
    ("asked", "cpus_per_gpu", "even_cpus"),
    [
        ({"num_nodes": 2, "cpus": 8, "ntasks": 2, "gres_of_job": ["gpu:4"]}, 2, 4),
        ({"num_nodes": 2, "cpus": 8, "ntasks": 2, "gres_per_node": ["gres/gpu:a100:2"]}, 2, 4),
        ({"num_nodes": 1, "cpus": 1, "ntasks": 1, "gres_of_job": ["gpu:4"], "cpus_per_task": 1}, 0, 1),
        ({"num_nodes": 1, "cpus": 2, "ntasks": 2, "cpus_per_task": 1}, 0, 2),
    ],
)
def test_processors_of_gpus_are_those_of_the_job(asked: dict[str, Any], cpus_per_gpu: int, even_cpus: int) -> None:
    waits = {"state": "PENDING", "allocated_nodes": None, "tres_nodes": asked["num_nodes"], "start_time": None}
    (read,), skipped = read_jobs([job(**waits | {"cpus_per_task": None} | asked)])
    assert skipped == []
    assert read.spread is not None
    assert (read.spread.cpus_per_gpu, read.spread.cpus_on_each(read.num_nodes)) == (cpus_per_gpu, even_cpus)


def test_two_records_with_one_id_are_both_skipped() -> None:
    jobs, skipped = read_jobs([job(), job(), job(id=7)])
    assert [each.job_id for each in jobs] == ["7"]
    assert [item.ident for item in skipped] == ["6"]


@pytest.mark.parametrize(
    ("state", "available"),
    [
        ("IDLE", True),
        ("MIXED", True),
        ("ALLOCATED+COMPLETING", True),
        ("IDLE+PLANNED", True),
        ("IDLE+DRAIN", False),
        ("DOWN", False),
        ("IDLE+NOT_RESPONDING", False),
        ("IDLE+SOMETHING_NEW", False),
    ],
)
def test_whether_a_node_can_be_used(state: str, available: bool) -> None:
    nodes, skipped = read_nodes([node(state=state)], [])
    assert skipped == []
    assert nodes[0].available is available


def test_a_node_knows_its_reservation() -> None:
    covering = {"name": "cw-1", "nodes": "node[1-2]", "start_time": START, "end_time": START + 600, "users": ["bob"]}
    nodes, _ = read_nodes([node(state="IDLE+RESERVED"), node(name="node9", state="IDLE+RESERVED")], [covering])
    assert [each.reservation for each in nodes] == ["cw-1", ""]


def test_a_node_has_a_weight() -> None:
    assert [each.weight for each in read_nodes([node()], [])[0]] == [50]


def test_a_node_whose_state_is_no_word_is_skipped() -> None:
    nodes, skipped = read_nodes([node(state="NodeName=x State=IDLE"), node(name="node2", state=None)], [])
    assert nodes == []
    assert [item.ident for item in skipped] == ["node1", "node2"]


def test_reservations_use_slurms_words() -> None:
    flags = ["FLEX", "IGNORE_RUNNING_JOBS", "SPECIFIC_NODES"]
    record = {"name": "cw", "nodes": "node[1,3]", "start_time": START, "end_time": START + 600, "users": ["bob"]}
    found, skipped = read_reservations([record | {"flags": flags}, {"name": "broken", "start_time": None}])

    assert found[0].flags == ("FLEX", "IGNORE_JOBS", "SPEC_NODES")
    assert found[0].nodes == ("node1", "node3")
    assert [item.ident for item in skipped] == ["broken"]
