"""What the pyslurm backend asks its worker for, without pyslurm: the calls, and the refusals that mean success."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clearway.model.cluster import Job, JobState
from clearway.model.errors import AlreadyGoneError, JobNotRunningError, SlurmRefusedError
from clearway.slurm.process import RefusedError
from clearway.slurm.pyslurm import PyslurmBackend
from clearway.slurm.pyslurm_worker import Calls
from tests.one_job import OneJob
from tests.unit.slurm.fake_slurm import FakeSlurm

NOW = datetime(2026, 3, 2, tzinfo=UTC)
JOB = Job(
    job_id="5", user="ann", state=JobState.RUNNING, raw_state="RUNNING", partitions=("p",), num_nodes=1, submit_time=NOW
)
SIGNALS = ({"name": "SIGUSR1", "steps": "batch"}, {"name": "SIGTERM", "steps": "children"})
WAITS = replace(JOB, state=JobState.PENDING, raw_state="PENDING")


class Worker:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.refused: dict[str, int] = {}

    def call(self, name: str, /, **args: Any) -> None:
        assert name in ("snapshot", "job", "node", "reservations"), "it changes Slurm, and the fence was not asked"
        self.change(name, **args)

    def change(self, name: str, /, **args: Any) -> None:
        inspect.signature(getattr(Calls, name)).bind(None, **args)  # a call that the real worker would take
        self.calls.append((name, {key: value for key, value in args.items() if key != "job_id"}))
        if name in self.refused:
            raise RefusedError("no", self.refused[name])


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> PyslurmBackend:
    made = OneJob(PyslurmBackend(now=lambda: NOW))
    monkeypatch.setattr(made, "_worker", Worker())
    return made


def seen(backend: PyslurmBackend, monkeypatch: pytest.MonkeyPatch, job: Job | None) -> list[tuple[str, dict[str, Any]]]:
    monkeypatch.setattr(backend, "job", lambda _: job)
    return backend._worker.calls  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "job", "calls"),
    [
        (lambda b: b.cancel(JOB), JOB, [("cancel", {})]),
        (lambda b: b.signal(JOB, "USR1", batch_only=True), JOB, [("send_signal", SIGNALS[0])]),
        (lambda b: b.signal(JOB, "TERM", batch_only=False), JOB, [("send_signal", SIGNALS[1])]),
        (lambda b: b.suspend(JOB), JOB, [("suspend", {})]),
        (lambda b: b.resume(JOB), JOB, []),
        (lambda b: b.start_now("5"), WAITS, [("start_now", {})]),
        (lambda b: b.give_nice("5", -7, 0), replace(WAITS, priority=9), [("set_nice", {"nice": -7})]),
        (lambda b: b.give_nice("5", 0, -7), replace(WAITS, priority=9), []),
        (lambda b: b.attach("5", "r"), WAITS, [("set_reservation", {"reservation": "r"})]),
        (lambda b: b.attach("5", "r"), replace(WAITS, reservation="r"), []),
        (lambda b: b.detach("5", "r"), replace(WAITS, reservation="r"), [("set_reservation", {"reservation": ""})]),
        (lambda b: b.detach("5", "r"), None, []),
    ],
)  # fmt: skip
def test_a_change_is_one_call_or_none(
    backend: PyslurmBackend,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[PyslurmBackend], None],
    job: Job | None,
    calls: list[tuple[str, dict[str, Any]]],
) -> None:
    made = seen(backend, monkeypatch, job)
    change(backend)
    assert made == calls


@pytest.mark.parametrize(
    ("job", "named"),
    [
        (JOB, "5"),
        (replace(JOB, state=JobState.SUSPENDED), "5"),
        (replace(JOB, array_job_id="5", array_task_id=2), "5_2"),  # the number alone would mean the whole array
        (replace(JOB, array_job_id="4", array_task_id=0), "4_0"),
    ],
)
@pytest.mark.fault("A requeue through pyslurm ran a job again that had ended.", found_by="real cluster")
def test_a_requeue_is_scontrols_as_pyslurm_would_run_an_ended_job_again(
    backend: PyslurmBackend, monkeypatch: pytest.MonkeyPatch, job: Job, named: str
) -> None:
    slurm = FakeSlurm()
    monkeypatch.setattr(backend, "_commands", slurm)
    made = seen(backend, monkeypatch, job)
    backend.requeue(JOB)
    assert slurm.changes == [f"scontrol requeue Incomplete {named}"]
    assert made == ([("resume", {})] if job.state is JobState.SUSPENDED else [])
    slurm.refusal = "Job is pending execution for job 5"
    with pytest.raises(AlreadyGoneError):
        backend.requeue(JOB)
    slurm.refusal = "Requested operation is presently disabled for job 5"
    with pytest.raises(SlurmRefusedError, match="disabled"):
        backend.requeue(JOB)


def test_a_run_that_was_over_is_run_again(backend: PyslurmBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm()
    monkeypatch.setattr(backend, "_commands", slurm)
    seen(
        backend, monkeypatch, replace(JOB, state=JobState.ENDED, raw_state="FAILED", array_job_id="5", array_task_id=2)
    )
    backend.run_again(JOB)
    assert slurm.changes == ["scontrol requeue 5_2"], "the number alone would mean the whole array"


@pytest.mark.parametrize(("call", "errno", "good"), [("cancel", 2084, True), ("cancel", 2024, False)])
def test_a_refusal_may_mean_success(
    backend: PyslurmBackend, monkeypatch: pytest.MonkeyPatch, call: str, errno: int, *, good: bool
) -> None:
    seen(backend, monkeypatch, JOB)
    backend._worker.refused[call] = errno  # type: ignore[attr-defined]
    if good:
        getattr(backend, call)(JOB)
    else:
        with pytest.raises(SlurmRefusedError):
            getattr(backend, call)(JOB)


@pytest.mark.parametrize("job", [None, replace(JOB, state=JobState.ENDED), replace(JOB, restart_count=1)])
def test_another_run_is_left_alone(backend: PyslurmBackend, monkeypatch: pytest.MonkeyPatch, job: Job | None) -> None:
    made = seen(backend, monkeypatch, job)
    for change in (backend.requeue, backend.cancel, backend.suspend):
        with pytest.raises(JobNotRunningError):
            change(JOB)
    assert not made


def test_a_job_that_waits_again_was_not_made_to_by_this_call(
    backend: PyslurmBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = seen(backend, monkeypatch, WAITS)
    for change in (backend.requeue, backend.cancel):
        with pytest.raises(AlreadyGoneError):
            change(JOB)
    assert not made
