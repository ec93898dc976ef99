"""What the cli backend asks Slurm to do, against a stand-in for the commands that keeps one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clearway.errors import JobNotRunningError, SlurmRefusedError, SlurmUnavailableError
from clearway.model import Job, JobState, PreemptPriorities, Reservation
from clearway.slurm import parse
from clearway.slurm.cli import EXCLUDED_NODES_FOR_S, CliBackend
from clearway.slurm.preempt import READ_EVERY_S
from clearway.slurm.rest import REST_S
from tests.unit.slurm.test_hostile import GOOD

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
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
NODE = "NodeName=n1 CPUAlloc=0 CPUTot=4 RealMemory=4000 State=IDLE Partitions=batch"


@dataclass
class FakeSlurm:
    """Answers squeue from ``rows`` and scontrol from ``shown``; keeps every other command, or refuses it."""

    rows: list[dict[str, str]] = field(default_factory=list)
    shown: dict[str, str] = field(
        default_factory=lambda: {
            "node": NODE,
            "reservation": "No reservations in the system",
            "config": "PreemptType             = preempt/none\n",
            "partition": "PartitionName=batch Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=7 State=UP\n",
        }
    )
    refusal: str | None = None
    reads: list[Sequence[str]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    excluded: str = "n[3-4]"
    columns: Sequence[str] = parse.JOB_COLUMNS

    def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        if "--helpFormat" in argv:
            return " ".join(self.columns)
        if argv[0] == "squeue":
            self.reads.append(argv)
            return self._squeue(argv, env or {})
        if argv[0] == "scontrol" and "show" in argv[1:4]:
            self.reads.append(argv)
            return self.shown[argv[argv.index("show") + 1]]
        self.changes.append(" ".join(word for word in argv if word != "--oneliner"))
        if self.refusal:
            raise SlurmRefusedError(f"{argv[0]}: {self.refusal}")
        return ""

    def _squeue(self, argv: Sequence[str], env: Mapping[str, str]) -> str:
        rows = self.rows if "--states=all" in argv else [row for row in self.rows if row["State"] != "CANCELLED"]
        if "SQUEUE_FORMAT" in env:
            token = env["SQUEUE_FORMAT"].split("|")[1]
            return "".join(f"{row['JobID']}|{token}|{self.excluded}|{token}$\n" for row in rows)
        token = env["SQUEUE_FORMAT2"].split("|")[1]
        return "".join(
            f"|{token}|".join(row[column] for column in parse.job_columns(" ".join(self.columns))) + f"|{token}$\n"
            for row in rows
        )


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm(rows=[dict(GOOD)])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def backend(slurm: FakeSlurm, clock: Clock) -> CliBackend:
    backend = CliBackend(now=clock, sleep=clock.sleep)
    backend._commands = slurm  # type: ignore[assignment]
    return backend


def seen(backend: CliBackend, job_id: str = "101") -> Job:
    job = backend.job(job_id)
    assert job is not None
    return job


def becomes(slurm: FakeSlurm, **changes: str) -> None:
    slurm.rows[0].update(changes)


WAITING = {"State": "PENDING", "NodeList": "", "Reason": "Priority", "StartTime": "N/A"}
REQUEUED = WAITING | {"RestartCnt": "1", "Reason": "BeginTime", "StartTime": "2026-11-21T12:00:00"}
LEAVING = {"State": "COMPLETING", "RestartCnt": "1", "StartTime": "2026-11-21T10:00:00"}
ENDED = {"State": "CANCELLED", "NodeList": "(null)"}
NEXT_RUN = {"RestartCnt": "1", "StartTime": "2026-11-21T10:00:00"}


# ---- reading ---------------------------------------------------------------------------------------------------


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
    becomes(slurm, **WAITING)
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


def test_what_slurm_preempts_by_is_read_every_ten_minutes(backend: CliBackend, slurm: FakeSlurm, clock: Clock) -> None:
    first = backend.snapshot()
    assert (first.queries, first.preempt_priorities.of(first.jobs[0])) == (4, 7)
    clock.now += timedelta(seconds=READ_EVERY_S - 1)
    slurm.shown["config"] = "PreemptType             = preempt/qos\n"
    slurm.shown["assoc_mgr"] = QOS_RECORDS
    again = backend.snapshot()
    assert (again.queries, again.preempt_priorities) == (2, first.preempt_priorities)
    clock.now += timedelta(seconds=1)
    assert (late := backend.snapshot()).queries == 4
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
    clock.now += timedelta(seconds=READ_EVERY_S)
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


# ---- jobs ------------------------------------------------------------------------------------------------------


def test_requeue(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.requeue(seen(backend))
    assert slurm.changes == ["scontrol requeue 101"]


def test_requeue_of_one_array_task_leaves_the_others_alone(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, ArrayTaskID="4")
    slurm.rows.insert(0, GOOD | {"JobID": "100", "ArrayJobID": "101", "ArrayTaskID": "3"})
    backend.requeue(seen(backend))
    assert slurm.changes == ["scontrol requeue 101_4"]


def test_requeue_of_a_suspended_job_resumes_it_first(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, State="SUSPENDED")
    backend.requeue(seen(backend))
    assert slurm.changes == ["scontrol resume 101", "scontrol requeue 101"]


@pytest.mark.parametrize("change", [LEAVING, REQUEUED])
def test_a_run_that_leaves_or_waits_again_needs_nothing(
    backend: CliBackend, slurm: FakeSlurm, change: dict[str, str]
) -> None:
    job = seen(backend)
    becomes(slurm, **change)
    backend.requeue(job)
    backend.cancel(job)
    assert slurm.changes == []


@pytest.mark.parametrize("change", [ENDED, NEXT_RUN, {"State": "STAGE_OUT"}, {"State": "RESIZING"}])
@pytest.mark.parametrize("act", ["requeue", "cancel", "signal", "suspend", "resume"])
def test_another_run_an_ended_job_and_an_unknown_state_are_left_alone(
    backend: CliBackend, slurm: FakeSlurm, act: str, change: dict[str, str]
) -> None:
    job = seen(backend)
    becomes(slurm, **change)
    with pytest.raises(JobNotRunningError):
        backend.signal(job, "USR1", batch_only=True) if act == "signal" else getattr(backend, act)(job)
    assert slurm.changes == []


@pytest.mark.parametrize("act", ["requeue", "cancel", "suspend", "resume"])
def test_a_forgotten_job_is_left_alone(backend: CliBackend, slurm: FakeSlurm, act: str) -> None:
    job = seen(backend)
    slurm.rows.clear()
    with pytest.raises(JobNotRunningError):
        getattr(backend, act)(job)
    with pytest.raises(JobNotRunningError):
        backend.start_now("101")
    assert slurm.changes == []


def test_slurm_says_that_it_is_done_already(backend: CliBackend, slurm: FakeSlurm) -> None:
    slurm.refusal = "Job is pending execution for job 101"
    backend.requeue(seen(backend))
    slurm.refusal = "Requested operation is presently disabled for job 101"
    with pytest.raises(SlurmRefusedError, match="presently disabled"):
        backend.requeue(seen(backend))


def test_cancel_of_a_waiting_job(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, **WAITING)
    backend.cancel(seen(backend))
    assert slurm.changes == ["scancel 101"]


@pytest.mark.parametrize(("batch_only", "flags"), [(True, " --batch"), (False, "")])
def test_signal(backend: CliBackend, slurm: FakeSlurm, batch_only: bool, flags: str) -> None:
    backend.signal(seen(backend), "USR1", batch_only=batch_only)
    assert slurm.changes == [f"scancel --signal=USR1{flags} 101"]


@pytest.mark.parametrize("state", [{"State": "SUSPENDED"}, WAITING, LEAVING])
def test_a_signal_that_would_hang_is_not_sent(backend: CliBackend, slurm: FakeSlurm, state: dict[str, str]) -> None:
    becomes(slurm, **state)
    with pytest.raises(JobNotRunningError):
        backend.signal(seen(backend), "USR1", batch_only=True)
    assert slurm.changes == []


@pytest.mark.parametrize("signal", ["", "usr1", "USR1 --full", "--full", "USR1\n"])
def test_what_is_no_signal(backend: CliBackend, slurm: FakeSlurm, signal: str) -> None:
    with pytest.raises(SlurmRefusedError, match="not a signal"):
        backend.signal(seen(backend), signal, batch_only=True)
    assert slurm.changes == []


def test_suspend_and_resume_can_be_repeated(backend: CliBackend, slurm: FakeSlurm) -> None:
    job = seen(backend)
    backend.resume(job)
    backend.suspend(job)
    becomes(slurm, State="SUSPENDED")
    backend.suspend(job)
    backend.resume(job)
    assert slurm.changes == ["scontrol suspend 101", "scontrol resume 101"]


def test_start_now_only_when_waiting(backend: CliBackend, slurm: FakeSlurm) -> None:
    for state in (LEAVING, NEXT_RUN):
        becomes(slurm, **(state | {"State": state.get("State", "RUNNING")}))
        with pytest.raises(SlurmRefusedError, match="waiting"):
            backend.start_now("101")
    becomes(slurm, **REQUEUED)
    backend.start_now("101")
    assert slurm.changes == ["scontrol update JobId=101 StartTime=now"]


def test_a_requeued_job_is_not_started_within_a_second(backend: CliBackend, slurm: FakeSlurm, clock: Clock) -> None:
    slurm.rows.append(GOOD | {"JobID": "102"})
    for row in slurm.rows:
        row.update(REQUEUED)
    backend.snapshot()
    clock.now += timedelta(seconds=0.4)
    backend.start_now("101")
    assert clock.now == NOW + timedelta(seconds=REST_S)
    backend.start_now("102")
    assert clock.now == NOW + timedelta(seconds=REST_S), "one rest serves all"
    becomes(slurm, RestartCnt="2")  # it ran and was requeued again, unseen
    backend.start_now("101")
    assert clock.now == NOW + timedelta(seconds=2 * REST_S)
    becomes(slurm, RestartCnt="0")
    backend.start_now("101")
    assert clock.now == NOW + timedelta(seconds=2 * REST_S)


def test_waiting_tasks_of_an_array_are_named_without_the_running_ones(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, **WAITING, ArrayTaskID="7-199:2%3")
    backend.attach("101", "clearway-1")
    backend.start_now("101")
    assert slurm.changes == [
        "scontrol update JobId=101_[7-199:2] ReservationName=clearway-1",
        "scontrol update JobId=101_[7-199:2] StartTime=now",
    ]


def test_attach_and_detach_can_be_repeated(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, **WAITING)
    backend.detach("101")
    backend.attach("101", "clearway-1")
    becomes(slurm, Reservation="clearway-1")
    backend.attach("101", "clearway-1")
    backend.detach("101")
    assert slurm.changes == [
        "scontrol update JobId=101 ReservationName=clearway-1",
        "scontrol update JobId=101 ReservationName=",
    ]


def test_detach_of_a_job_that_has_ended_is_done(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, Reservation="clearway-1")
    slurm.refusal = "Job has already finished for job 101"
    backend.detach("101")
    becomes(slurm, **ENDED)
    backend.detach("101")
    slurm.rows.clear()
    backend.detach("101")
    assert len(slurm.changes) == 1


def test_a_comment_is_one_argument(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.set_comment("101", "a b; $(c) 'd'")
    assert slurm.changes == ["scontrol update JobId=101 Comment=a b; $(c) 'd'"]


# ---- reservations ----------------------------------------------------------------------------------------------


def reservation(**changes: Any) -> Reservation:
    fields: dict[str, Any] = {
        "name": "clearway-1",
        "nodes": ("n1", "n2"),
        "start_time": NOW,
        "end_time": NOW + timedelta(seconds=601),
        "users": ("alice",),
        "flags": ("IGNORE_JOBS", "FLEX"),
    }
    return Reservation(**(fields | changes))


def test_create_reservation(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.create_reservation(reservation())
    what = "ReservationName=clearway-1 StartTime=now Duration=11 Users=alice Nodes=n[1-2] Flags=IGNORE_JOBS,FLEX"
    assert slurm.changes == [f"scontrol create reservation {what}"]


def show_reservation(slurm: FakeSlurm, nodes: str) -> None:
    times = "StartTime=2026-11-21T10:00:00 EndTime=2026-11-21T10:11:00"
    slurm.shown["reservation"] = f"ReservationName=clearway-1 {times} Nodes={nodes} Users=alice Flags=FLEX"


def test_create_repeated(backend: CliBackend, slurm: FakeSlurm) -> None:
    slurm.refusal = "Error creating the reservation: Requested reservation overlaps with another reservation"
    show_reservation(slurm, "n[1-2]")
    backend.create_reservation(reservation())
    show_reservation(slurm, "n[1-3]")
    with pytest.raises(SlurmRefusedError, match="overlaps"):
        backend.create_reservation(reservation())


@pytest.mark.parametrize(
    "changes",
    [
        {"end_time": NOW},
        {"users": ()},
        {"nodes": ()},
        {"name": "x Users=root"},
        {"name": ""},
        {"users": ("alice,bob",)},
        {"nodes": ("n[1-3]",)},
        {"flags": ("-IGNORE_JOBS",)},
    ],
)
def test_a_reservation_that_is_not_what_it_seems(
    backend: CliBackend, slurm: FakeSlurm, changes: dict[str, Any]
) -> None:
    with pytest.raises(SlurmRefusedError):
        backend.create_reservation(reservation(**changes))
    assert slurm.changes == []


def test_update_reservation(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.update_reservation("clearway-1", ("n5", "n3", "n4"))
    assert slurm.changes == ["scontrol update ReservationName=clearway-1 Nodes=n[3-5]"]
    with pytest.raises(SlurmRefusedError, match="needs nodes"):
        backend.update_reservation("clearway-1", ())


def test_extend_reservation(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.extend_reservation("clearway-1", datetime(2026, 3, 2, 12, 30, tzinfo=UTC))
    local = datetime(2026, 3, 2, 12, 30, tzinfo=UTC).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    assert slurm.changes == [f"scontrol update ReservationName=clearway-1 EndTime={local}"]


def test_delete_of_an_unknown_reservation_is_done(backend: CliBackend, slurm: FakeSlurm) -> None:
    slurm.refusal = "Requested reservation is invalid"
    backend.delete_reservation("clearway-1")
    slurm.refusal = "Requested reservation is in use"
    show_reservation(slurm, "n1")
    with pytest.raises(SlurmRefusedError, match="in use"):
        backend.delete_reservation("clearway-1")


def test_a_reservation_that_cannot_be_read_is_told_with_the_next_snapshot(
    backend: CliBackend, slurm: FakeSlurm
) -> None:
    slurm.shown["reservation"] = "ReservationName=odd StartTime=x"
    assert backend.reservations() == ()
    assert [item.ident for item in backend.snapshot().skipped] == ["odd"]


# ---- nodes -----------------------------------------------------------------------------------------------------


def show_node(slurm: FakeSlurm, state: str, reason: str = "") -> None:
    told = f" Reason={reason} [root@2026-11-21T09:57:47]" if reason else ""
    slurm.shown["node"] = f"{NODE.replace('IDLE', state)}{told}"


def test_drain_and_undrain_can_be_repeated(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.undrain("n1", "clearway:x")
    backend.drain("n1", "clearway:x")
    show_node(slurm, "MIXED+DRAIN", "clearway:x")
    backend.drain("n1", "clearway:x")
    backend.undrain("n1", "clearway:x")
    assert slurm.changes == [
        "scontrol update NodeName=n1 State=DRAIN Reason=clearway:x",
        "scontrol update NodeName=n1 State=UNDRAIN",
    ]


def test_a_node_is_powered_down(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.power_down("n1")
    assert slurm.changes == ["scontrol update NodeName=n1 State=POWER_DOWN"]


def test_a_nodes_weight_is_read(backend: CliBackend, slurm: FakeSlurm) -> None:
    assert [node.weight for node in backend.snapshot().nodes] == [1] * len(backend.snapshot().nodes)
    slurm.shown["node"] = f"{NODE} Weight=50"
    assert [node.weight for node in backend.snapshot().nodes] == [50]


def test_a_node_of_somebody_else_is_left_alone(backend: CliBackend, slurm: FakeSlurm) -> None:
    show_node(slurm, "IDLE+DRAIN", "bad disk")
    with pytest.raises(SlurmRefusedError, match="bad disk"):
        backend.drain("n1", "clearway:x")
    with pytest.raises(SlurmRefusedError, match="bad disk"):
        backend.undrain("n1", "clearway:x")
    show_node(slurm, "DOWN", "not responding")
    with pytest.raises(SlurmRefusedError, match="not responding"):
        backend.drain("n1", "clearway:x")
    assert slurm.changes == []


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
