"""How jobs and nodes are read through slurmrestd: what has changed alone, and nothing that is stale or forged."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError, SlurmUnavailableError
from clearway.slurm import rest_records as records
from tests.unit.slurm.fake_slurmrestd import NOW, FakeSlurmrestd, job, node, number, refusal


class Cluster(FakeSlurmrestd):
    def __init__(self, *jobs: dict[str, Any]) -> None:
        super().__init__(*jobs)
        self.now = NOW
        self.read = self.backend(now=lambda: self.now).snapshot

    def full_reads(self) -> int:
        return sum("update_time" not in query for query in self.reads("/jobs/"))


def test_jobs_that_stay_the_same_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Cluster(job(5), job(6))
    first = slurm.read()
    slurm.updated -= 20  # long before what was read
    monkeypatch.setattr(records, "read_job", None)  # nothing may be read
    again = slurm.read()
    assert (again.jobs, again.nodes) == (first.jobs, first.nodes)
    assert [query.get("update_time") for query in slurm.reads("/jobs/")] == [None, "1008"]
    assert [query.get("update_time") for query in slurm.reads("/nodes/")] == [None, "1008"]
    assert again.queries == 3


def test_only_the_record_that_has_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Cluster(job(5), job(6))
    slurm.read()
    slurm.updated += 30
    slurm.jobs[1] = job(6, comment="clearway:interval=60", last_sched_evaluation=number(9))
    slurm.jobs[0]["last_sched_evaluation"] = number(10)  # not looked at
    read_again: list[int] = []
    read_job = records.read_job
    monkeypatch.setattr(records, "read_job", lambda record: read_again.append(record["job_id"]) or read_job(record))
    assert slurm.read().job_by_id["6"].comment == "clearway:interval=60"
    assert read_again == [6]


@pytest.mark.parametrize("change", ["another state", "another job", "a job less"])
@pytest.mark.fault("slurmrestd says that nothing has changed although the state of a job has.", found_by="real cluster")
def test_a_change_that_slurmctld_does_not_tell_is_seen_in_the_states(change: str) -> None:
    slurm = Cluster(job(5), job(6))
    slurm.read()
    slurm.updated -= 20
    if change == "another state":
        slurm.jobs[0] = job(5, "SUSPENDED", nodes="node1")
    elif change == "another job":
        slurm.jobs.append(job(7))
    else:
        del slurm.jobs[1]
    seen = slurm.read()
    assert {each.job_id: each.raw_state for each in seen.jobs} == {
        str(each["job_id"]): each["job_state"][0] for each in slurm.jobs
    }
    assert slurm.full_reads() == 2


def test_everything_is_read_again_from_time_to_time() -> None:
    slurm = Cluster(job(5))
    slurm.read()
    slurm.updated -= 20
    slurm.jobs[0] = job(5, comment="silent")
    slurm.now += timedelta(seconds=29)
    assert slurm.read().job_by_id["5"].comment == ""
    slurm.now += timedelta(seconds=2)
    assert slurm.read().job_by_id["5"].comment == "silent"
    slurm.jobs[0] = job(5, comment="the clock was set back")
    slurm.now -= timedelta(hours=1)
    assert slurm.read().job_by_id["5"].comment == "the clock was set back"


def test_what_could_not_be_read_as_a_whole_is_not_kept() -> None:
    slurm = Cluster(job(5))
    slurm.read()
    slurm.updated += 30
    slurm.jobs[0] = job(5, comment="new")
    slurm.answers = {("GET", "/jobs/"): httpx.Response(200, json={"jobs": 5, "last_update": number(2_000)})}
    with pytest.raises(SlurmUnavailableError):
        slurm.read()
    slurm.answers, slurm.updated = {}, 0
    assert slurm.read().job_by_id["5"].comment == "new"


def test_no_jobs_are_no_news_only_where_slurmctld_says_so() -> None:
    slurm = Cluster(job(5))
    slurm.read()
    slurm.updated += 30
    slurm.jobs.clear()
    assert slurm.read().jobs == ()


def test_nodes_of_26_05_have_a_status_for_no_news_and_those_of_24_11_an_error() -> None:
    slurm = Cluster(job(5))
    slurm.read()
    slurm.answers = {("GET", "/nodes/"): httpx.Response(304)}
    assert [each.name for each in slurm.read().nodes] == ["node1"]
    slurm.answers = {}
    slurm.nodes = [node("node1"), node("node2")]

    def partly() -> httpx.Response:
        if "update_time" in slurm.reads("/nodes/")[-1]:
            return refusal(-1, "Unspecified error")
        return httpx.Response(200, json={"nodes": slurm.nodes, "last_update": number(1_010)})

    slurm.answers = {("GET", "/nodes/"): partly}
    for _ in range(3):
        assert [each.name for each in slurm.read().nodes] == ["node1", "node2"]
    assert ["update_time" in query for query in slurm.reads("/nodes/")] == [False, True, True, False, False, False]
    slurm.answers = {("GET", "/nodes/"): refusal(-1, "Unspecified error")}
    with pytest.raises(SlurmRefusedError):
        slurm.read()


WRONG = (None, 7, "a text", [], {}, {"set": True, "number": -1}, {"set": True, "number": 1e300}, True, [[]], "node[1-")


@pytest.mark.parametrize("key", records.JOB_KEYS)
def test_a_value_of_another_type_costs_that_record_alone(key: str) -> None:
    for value in WRONG:
        slurm = Cluster(job(5) | {key: value}, job(6))
        seen = slurm.read()
        assert "6" in seen.job_by_id or key == "job_id"
        for skipped in seen.skipped:
            assert skipped.holds_nodes
            assert "\n" not in skipped.why
        mine = [each for each in seen.jobs if each.job_id != "6"]
        assert len(seen.skipped) == 1 or mine[0].state is not JobState.UNKNOWN
        # Its node is never taken for free.
        assert seen.skipped or mine[0].nodes == ("node1",)
    slurm = Cluster({name: told for name, told in job(5).items() if name != key}, job(6))
    assert len(slurm.read().skipped) == (key != "nice")  # a Nice that is not told is none


@pytest.mark.parametrize("key", records.NODE_KEYS)
def test_a_node_with_a_value_of_another_type_is_skipped(key: str) -> None:
    for value in (*WRONG, ["DOWN"]):
        slurm = Cluster()
        slurm.nodes = [node("node1") | {key: value}, node("node2")]
        seen = slurm.read()
        assert "node2" in seen.node_by_name or key == "name"
        assert len(seen.nodes) + len(seen.skipped) == 2


def test_records_that_are_none_or_twice_there() -> None:
    slurm = Cluster(job(5), job(5), "job", None, 7, job(6))  # type: ignore[arg-type]
    seen = slurm.read()
    assert [each.job_id for each in seen.jobs] == ["6"]
    assert {each.ident for each in seen.skipped} == {"5", ""}


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["RUNNING"], JobState.RUNNING),
        (["RUNNING", "COMPLETING"], JobState.COMPLETING),
        (["PENDING", "COMPLETING"], JobState.COMPLETING),
        (["CANCELLED", "COMPLETING"], JobState.COMPLETING),
        (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], JobState.CONFIGURING),
        (["RUNNING", "RESIZING"], JobState.UNKNOWN),
        (["RUNNING", "STOPPED"], JobState.UNKNOWN),
        (["SUSPENDED"], JobState.SUSPENDED),
        (["NEW_WORD"], JobState.UNKNOWN),
    ],
)
def test_states(states: list[str], state: JobState) -> None:
    assert records.read_job(job(5, nodes="node1", job_state=states)).state is state


@pytest.mark.parametrize(
    ("shared", "exclusive"),
    [([], False), (["oversubscribe"], False), (["none"], True), (["user"], True), (["x"], True)],
)
def test_whole_nodes(shared: list[str], *, exclusive: bool) -> None:
    assert records.read_job(job(shared=shared)).exclusive is exclusive
