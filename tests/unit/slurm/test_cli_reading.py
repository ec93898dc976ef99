"""What the cli backend asks Slurm, and how often, against a stand-in for the commands that keeps one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from clearway.model.cluster import AdminLevel, JobState, PreemptPriorities
from clearway.model.errors import SlurmRefusedError, SlurmUnavailableError
from clearway.slurm import parse
from clearway.slurm.cli import EXCLUDED_NODES_FOR_S, CliBackend
from clearway.slurm.site_settings import CONFIG_EVERY_S
from tests.unit.slurm.fake_slurm import NODE, NOW, WAITING, Clock, FakeSlurm, becomes, seen
from tests.unit.slurm.test_hostile import GOOD

QOS_RECORDS = """Current Association Manager state

QOS Records

QOS=normal(1)
    UsageRaw=0.000000
    MinPrioThresh=
    PreemptMode=OFF
    Priority=30
    Account Limits
        No Accounts
QOS=big(2)
    MaxWallPJ=
    Priority=70000
    User Limits
        mallory(1001)
          Priority=1
QOS=none(3)
    MaxWallPJ=
"""


def test_a_snapshot_takes_two_queries(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.snapshot()
    slurm.reads.clear()
    snapshot = backend.snapshot()
    assert (snapshot.queries, len(slurm.reads)) == (2, 2)
    assert [job.job_id for job in snapshot.jobs] == ["101"]
    assert [node.name for node in snapshot.nodes] == ["n1"]
    assert snapshot.taken_at == NOW


def test_excluded_nodes_are_asked_for_when_a_waiting_job_is_new(
    backend: CliBackend, slurm: FakeSlurm, clock: Clock
) -> None:
    backend.snapshot()
    becomes(slurm, **WAITING, JobID="110")
    first = backend.snapshot()
    assert (first.queries, first.jobs[0].excluded_nodes) == (3, ("n3", "n4"))
    again = backend.snapshot()
    assert (again.queries, again.jobs[0].excluded_nodes) == (2, ("n3", "n4"))
    slurm.rows.append(GOOD | WAITING | {"JobID": "102"})
    assert backend.snapshot().queries == 3
    assert backend.snapshot().queries == 2
    clock.now += timedelta(seconds=EXCLUDED_NODES_FOR_S)
    slurm.excluded = ""
    late = backend.snapshot()
    assert (late.queries, late.jobs[0].excluded_nodes) == (3, ())


def test_excluded_nodes_of_running_jobs_are_known_and_asked_for_once(backend: CliBackend, slurm: FakeSlurm) -> None:
    """A job may be moved, and must not be sent where it asked not to be."""
    assert backend.snapshot().jobs[0].excluded_nodes == ("n3", "n4")  # never seen waiting
    again = backend.snapshot()
    assert (again.queries, again.jobs[0].excluded_nodes) == (2, ("n3", "n4"))
    assert seen(backend).excluded_nodes == ("n3", "n4")
    slurm.rows.append(GOOD | {"JobID": "102"})
    late = backend.snapshot()
    assert (late.queries, [job.excluded_nodes for job in late.jobs]) == (3, [("n3", "n4")] * 2)


def test_what_slurm_preempts_by_is_read_every_ten_minutes(backend: CliBackend, slurm: FakeSlurm, clock: Clock) -> None:
    first = backend.snapshot()
    assert (first.queries, first.preempt_priorities.of(first.jobs[0])) == (5, 7)  # excluded nodes as well
    clock.now += timedelta(seconds=CONFIG_EVERY_S - 1)
    slurm.shown["config"] = "PreemptType             = preempt/qos\n"
    slurm.shown["assoc_mgr"] = QOS_RECORDS
    again = backend.snapshot()
    assert (again.queries, again.preempt_priorities) == (3, first.preempt_priorities)
    clock.now += timedelta(seconds=1)
    assert (late := backend.snapshot()).queries == 5  # partitions as well: what they choose by may not be checked
    assert late.preempt_priorities == PreemptPriorities({"normal": 30, "big": 0xFFFF}, of_qos=True)


def test_a_snapshot_does_not_need_what_slurm_preempts_by(
    backend: CliBackend, slurm: FakeSlurm, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = backend.snapshot().preempt_priorities
    assert known.by_name
    run = slurm.run

    def refuses(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        if "config" in argv or "partition" in argv:
            raise SlurmUnavailableError("scontrol: error: no")
        return run(argv, env=env)

    monkeypatch.setattr(slurm, "run", refuses)
    clock.now += timedelta(seconds=CONFIG_EVERY_S)
    snapshot = backend.snapshot()
    assert [job.job_id for job in snapshot.jobs] == ["101"]
    assert snapshot.preempt_priorities == known


def test_a_fresh_look_reads_excluded_nodes_again(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, **WAITING)
    backend.snapshot()
    slurm.excluded = "n9"
    assert seen(backend).excluded_nodes == ("n9",)


def test_an_unknown_job_is_none(backend: CliBackend) -> None:
    assert backend.job("999") is None
    with pytest.raises(SlurmRefusedError, match="not a job id"):
        backend.job("1; rm")


def test_a_job_that_cannot_be_read_is_never_acted_upon(backend: CliBackend, slurm: FakeSlurm) -> None:
    job = seen(backend)
    becomes(slurm, RestartCnt="many")
    with pytest.raises(SlurmUnavailableError, match="RestartCnt"):
        backend.requeue(job)
    assert slurm.changes == []


def test_a_nodes_weight_is_read(backend: CliBackend, slurm: FakeSlurm) -> None:
    assert [node.weight for node in backend.snapshot().nodes] == [1] * len(backend.snapshot().nodes)
    slurm.shown["node"] = f"{NODE} Weight=50"
    assert [node.weight for node in backend.snapshot().nodes] == [50]


def test_states(backend: CliBackend) -> None:
    assert seen(backend).state is JobState.RUNNING
    backend.close()


@pytest.mark.parametrize(
    ("known", "row", "exclusive"),
    [
        (parse.JOB_COLUMNS, {"OverSubscribe": "OK"}, False),
        (parse.JOB_COLUMNS, {"OverSubscribe": "NO"}, True),
        ((), {"OverSubscribe": "NO"}, True),
        ((*parse.JOB_COLUMNS, "Exclusive"), {"Exclusive": "NO"}, False),
        ((*parse.JOB_COLUMNS, "Exclusive"), {"Exclusive": "NODE"}, True),
        ((*parse.JOB_COLUMNS, "Exclusive"), {"Exclusive": "USER"}, True),
        ((*parse.JOB_COLUMNS, "Exclusive"), {"Exclusive": ""}, True),
    ],
)
def test_who_shares_nodes_is_asked_in_the_words_of_the_release(
    backend: CliBackend, slurm: FakeSlurm, known: Sequence[str], row: dict[str, str], exclusive: bool
) -> None:
    slurm.columns = known
    slurm.rows[0] |= row
    assert seen(backend).exclusive is exclusive
    assert [job.exclusive for job in backend.snapshot().jobs] == [exclusive]


def test_a_name_that_slurm_does_not_take_has_no_rights_and_is_not_asked_for(
    backend: CliBackend, slurm: FakeSlurm
) -> None:
    assert backend.admin_level("alice,root") is AdminLevel.NONE
    assert not slurm.changes


def test_how_long_jobs_may_run_beyond_their_limits(backend: CliBackend, slurm: FakeSlurm, clock: Clock) -> None:
    config, more = slurm.shown["config"], "PartitionName={} Nodes=n[1-4] OverTimeLimit={} PriorityTier=1 State=UP\n"
    slurm.shown["config"] = f"{config}OverTimeLimit           = 2 min\n"
    slurm.shown["partition"] = more.format("batch", "NONE") + more.format("other", "UNLIMITED")
    slurm.rows = [GOOD, GOOD | {"JobID": "102", "Partition": "other"}, GOOD | {"JobID": "103"} | WAITING]
    first = backend.snapshot()
    assert [job.over_time_s for job in first.jobs] == [120, None, 0]
    assert [job.ends_by for job in first.jobs] == [datetime(2026, 11, 21, 10, 49, 28, tzinfo=UTC), None, None]
    assert backend.snapshot().jobs is first.jobs
    # A waiting urgent job has its partitions read in each cycle.
    slurm.shown["partition"] = more.format("batch", "5") + more.format("other", "NONE")
    backend.limits([first.jobs[2]])
    assert [job.over_time_s for job in backend.snapshot().jobs] == [300, 120, 0]
    slurm.shown["partition"] = more.format("batch", "0") + more.format("other", "NONE")
    clock.now += timedelta(seconds=CONFIG_EVERY_S)
    assert [job.over_time_s for job in backend.snapshot().jobs] == [0, 120, 0]
