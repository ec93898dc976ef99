"""What the cli backend asks Slurm to do with jobs, against a stand-in for the commands that keeps one job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clearway.model.errors import AlreadyGoneError, JobNotRunningError, SlurmRefusedError
from clearway.slurm.cli import CliBackend
from clearway.slurm.job_changes import DELAY_S
from tests.unit.slurm.fake_slurm import (
    ENDED,
    LEAVING,
    NEXT_RUN,
    NOW,
    REQUEUED,
    WAITING,
    Clock,
    FakeSlurm,
    becomes,
    seen,
)
from tests.unit.slurm.test_hostile import GOOD


def test_requeue(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.requeue(seen(backend))
    assert slurm.changes == ["scontrol requeue Incomplete 101"]


@pytest.mark.fault(
    "The requeue of the last task of an array requeued the other tasks as well.", found_by="real cluster"
)
def test_requeue_of_one_array_task_leaves_the_others_alone(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, ArrayTaskID="4")
    slurm.rows.insert(0, GOOD | {"JobID": "100", "ArrayJobID": "101", "ArrayTaskID": "3"})
    backend.requeue(seen(backend))
    assert slurm.changes == ["scontrol requeue Incomplete 101_4"]


def test_a_run_that_was_over_is_run_again(backend: CliBackend, slurm: FakeSlurm) -> None:
    job = seen(backend)
    with pytest.raises(JobNotRunningError):
        backend.run_again(job)
    becomes(slurm, State="FAILED", ArrayTaskID="4")
    backend.run_again(job)
    assert slurm.changes == ["scontrol requeue 101_4"]
    becomes(slurm, State="TIMEOUT")
    with pytest.raises(JobNotRunningError):
        backend.run_again(job)
    assert len(slurm.changes) == 1


def test_requeue_of_a_suspended_job_resumes_it_first(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, State="SUSPENDED")
    backend.requeue(seen(backend))
    assert slurm.changes == ["scontrol resume 101", "scontrol requeue Incomplete 101"]


@pytest.mark.parametrize("change", [LEAVING, REQUEUED])
def test_a_run_that_leaves_or_waits_again_is_not_asked_to(
    backend: CliBackend, slurm: FakeSlurm, change: dict[str, str]
) -> None:
    job = seen(backend)
    becomes(slurm, **change)
    for leave in (backend.requeue, backend.cancel):
        with pytest.raises(AlreadyGoneError):
            leave(job)
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
    with pytest.raises(AlreadyGoneError):
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
@pytest.mark.fault("A signal to a suspended job hangs in Slurm, and the cycle hung with it.", found_by="real cluster")
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


@pytest.mark.fault(
    "A job that starts on its node within a second of its requeue is lost: its start was lifted too early.",
    found_by="real cluster",
)
def test_a_requeued_job_is_not_started_within_a_second(backend: CliBackend, slurm: FakeSlurm, clock: Clock) -> None:
    slurm.rows.append(GOOD | {"JobID": "102"})
    for row in slurm.rows:
        row.update(REQUEUED)
    backend.snapshot()
    clock.now += timedelta(seconds=0.4)
    backend.start_now("101")
    assert clock.now == NOW + timedelta(seconds=DELAY_S)
    backend.start_now("102")
    assert clock.now == NOW + timedelta(seconds=DELAY_S), "one rest serves all"
    becomes(slurm, RestartCnt="2")  # it ran and was requeued again, unseen
    backend.start_now("101")
    assert clock.now == NOW + timedelta(seconds=2 * DELAY_S)
    becomes(slurm, RestartCnt="0")
    backend.start_now("101")
    assert clock.now == NOW + timedelta(seconds=2 * DELAY_S)


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
    backend.detach("101", "clearway-1")
    backend.attach("101", "clearway-1")
    becomes(slurm, Reservation="clearway-1")
    backend.attach("101", "clearway-1")
    backend.detach("101", "clearway-1")
    assert slurm.changes == [
        "scontrol update JobId=101 ReservationName=clearway-1",
        "scontrol update JobId=101 ReservationName=",
    ]


def test_detach_of_a_job_that_has_ended_is_done(backend: CliBackend, slurm: FakeSlurm) -> None:
    becomes(slurm, Reservation="clearway-1")
    slurm.refusal = "Job has already finished for job 101"
    backend.detach("101", "clearway-1")
    becomes(slurm, **ENDED)
    backend.detach("101", "clearway-1")
    slurm.rows.clear()
    backend.detach("101", "clearway-1")
    assert len(slurm.changes) == 1
