"""What the rest backend asks slurmrestd for, on a fake one: the calls, and the answers that mean success."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from clearway.model.cluster import Job, JobState, Reservation
from clearway.model.errors import (
    AlreadyGoneError,
    JobNotRunningError,
    LeaseLostError,
    SlurmRefusedError,
    SlurmUnavailableError,
)
from clearway.slurm.rest import LIMITS, RestBackend
from tests.unit.slurm.fake_slurm import FakeSlurm
from tests.unit.slurm.fake_slurmrestd import ALL_24_11, NOW, FakeSlurmrestd, job, node, number, offering, refusal
from tests.unit.slurm.fences import TestFence
from tests.unit.slurm.test_hostile import GOOD

SECONDS = int(NOW.timestamp())
RUNNING, WAITING = job(), job(5, "PENDING", start_time=number(0))
TASK = job(array_job_id=number(5), array_task_id=number(2))  # the array's last: its id is the array's
PLACEMENT = Reservation(
    name="clearway-1",
    nodes=("node1", "node2"),
    start_time=NOW,
    end_time=NOW + timedelta(minutes=10),
    users=("ann",),
    flags=("FLEX",),
)
NAMED = {"name": "clearway-1", "node_list": "node[1-2]", "users": "ann", "flags": ["FLEX"]}
TIMES = {"start_time": number(SECONDS), "end_time": number(SECONDS + 600)}


def decided(backend: RestBackend) -> Job:
    found = backend.job("5")
    assert found is not None
    return found


CHANGES: list[tuple[dict[str, Any], Callable[[RestBackend, Job], None], list[tuple[str, str, Any]]]] = [
    (RUNNING, lambda b, j: b.requeue(j), [("POST", "/jobs/requeue", {"jobs": ["5"], "flags": ["Incomplete"]})]),
    (TASK, lambda b, j: b.requeue(j), [("POST", "/jobs/requeue", {"jobs": ["5_2"], "flags": ["Incomplete"]})]),
    (RUNNING, lambda b, j: b.cancel(j), [("DELETE", "/jobs/", {"jobs": ["5"], "flags": ["VERBOSE"]})]),
    (TASK, lambda b, j: b.cancel(j), [("DELETE", "/jobs/", {"jobs": ["5_2"], "flags": ["VERBOSE"]})]),
    (
        job(5, "PENDING", array_job_id=number(5), array_task_string="3-4%1"),
        lambda b, j: b.cancel(j),
        [("DELETE", "/jobs/", {"jobs": ["5_[3-4]"], "flags": ["VERBOSE"]})],
    ),
    (
        TASK,
        lambda b, j: b.signal(j, "USR1", batch_only=True),
        [("DELETE", "/jobs/", {"jobs": ["5_2"], "signal": "USR1", "flags": ["BATCH_JOB", "VERBOSE"]})],
    ),
    (
        RUNNING,
        lambda b, j: b.signal(j, "TERM", batch_only=False),
        [("DELETE", "/jobs/", {"jobs": ["5"], "signal": "TERM", "flags": ["FULL_STEPS_ONLY", "VERBOSE"]})],
    ),
    (WAITING, lambda b, _: b.start_now("5"), [("POST", "/job/5", {"begin_time": number(SECONDS)})]),
    (WAITING, lambda b, _: b.give_nice("5", -7, 0), [("POST", "/job/5", {"nice": -7})]),
    (WAITING, lambda b, _: b.give_nice("5", 0, -7), []),
    (WAITING, lambda b, _: b.attach("5", "r"), [("POST", "/job/5", {"reservation": "r"})]),
    (job(5, "PENDING", resv_name="r"), lambda b, _: b.attach("5", "r"), []),
    (job(5, "RUNNING", resv_name="r"), lambda b, _: b.detach("5", "r"), [("POST", "/job/5", {"reservation": ""})]),
    (
        RUNNING,
        lambda b, _: b.create_reservation(PLACEMENT),
        [
            (
                "POST",
                "/reservation",
                {"name": "clearway-1", "node_list": ["node1", "node2"], "users": ["ann"], "flags": ["FLEX"]} | TIMES,
            )
        ],
    ),
    (RUNNING, lambda b, _: b.delete_reservation("r"), [("DELETE", "/reservation/r", {})]),
    (RUNNING, lambda b, _: b.drain("node1", "w"), [("POST", "/node/node1", {"state": ["DRAIN"], "reason": "w"})]),
    (RUNNING, lambda b, _: b.power_down("node1"), [("POST", "/node/node1", {"state": ["POWER_DOWN"]})]),
]  # fmt: skip


@pytest.mark.parametrize(("record", "change", "calls"), CHANGES)
def test_a_change_is_one_call_or_none(
    record: dict[str, Any], change: Callable[[RestBackend, Job], None], calls: list[tuple[str, str, Any]]
) -> None:
    slurm = FakeSlurmrestd(record)
    backend = slurm.backend()
    change(backend, decided(backend))
    assert slurm.changes == calls
    assert not calls or slurm.version == "v0.0.45"


@pytest.mark.parametrize(("record", "change", "calls"), CHANGES)
def test_a_daemon_that_may_not_act_asks_for_nothing(
    record: dict[str, Any], change: Callable[[RestBackend, Job], None], calls: list[tuple[str, str, Any]]
) -> None:
    slurm = FakeSlurmrestd(record)
    backend = slurm.backend()
    run = decided(backend)
    backend.fenced_by(TestFence(None))
    if calls:
        with pytest.raises(LeaseLostError):
            change(backend, run)
    assert not slurm.changes


def test_an_existing_reservation_is_changed_and_no_other_one_is_made() -> None:
    slurm = FakeSlurmrestd(RUNNING)
    slurm.reservations = [NAMED | TIMES]
    backend = slurm.backend()
    backend.create_reservation(PLACEMENT)  # it is there already
    with pytest.raises(SlurmRefusedError, match="exists"):
        backend.create_reservation(replace(PLACEMENT, nodes=("node3",)))
    assert not slurm.changes
    backend.update_reservation("clearway-1", ("node3",))
    backend.extend_reservation("clearway-1", NOW)
    assert [told for _, _, told in slurm.changes] == [
        {"name": "clearway-1", "node_list": ["node3"]},
        {"name": "clearway-1", "end_time": number(SECONDS)},
    ]
    for change in (
        lambda: backend.update_reservation("clearway-2", ("node3",)),
        lambda: backend.extend_reservation("clearway-2", NOW),
    ):
        with pytest.raises(SlurmRefusedError, match="clearway-2 does not exist"):
            change()
    assert len(slurm.changes) == 2


@pytest.mark.parametrize(
    "offer", [ALL_24_11, offering("v0.0.44"), offering("v0.0.45", "v0.0.44", requeue="v0.0.45", flags=("Hold",))]
)
def test_a_slurmrestd_that_would_run_an_ended_job_again_is_not_asked_to_requeue(
    monkeypatch: pytest.MonkeyPatch, offer: Any
) -> None:
    slurm, commands = FakeSlurmrestd(RUNNING, offer=offer), FakeSlurm()
    backend = slurm.backend()
    with pytest.raises(SlurmRefusedError, match=r"cannot requeue jobs, and Slurm's commands are not installed"):
        backend.requeue(decided(backend))
    assert backend.cannot()[0] == "requeue jobs"
    assert not slurm.changes
    monkeypatch.setattr(backend, "_commands", commands)
    monkeypatch.setattr(backend, "_has_commands", True)
    backend.requeue(decided(backend))
    assert commands.changes == ["scontrol requeue Incomplete 5"]
    assert not slurm.changes
    assert backend.cannot() == ()


@pytest.mark.parametrize("offer", [offering("v0.0.45", "v0.0.44", requeue="v0.0.45"), ALL_24_11])
def test_a_run_that_was_over_is_run_again(monkeypatch: pytest.MonkeyPatch, offer: Any) -> None:
    slurm, commands = FakeSlurmrestd(job(5, "COMPLETED"), offer=offer), FakeSlurm()
    backend = slurm.backend()
    monkeypatch.setattr(backend, "_commands", commands)
    monkeypatch.setattr(backend, "_has_commands", True)
    backend.run_again(decided(backend))
    by_rest = [("POST", "/jobs/requeue", {"jobs": ["5"]})]
    assert (slurm.changes, commands.changes) in ((by_rest, []), ([], ["scontrol requeue 5"]))
    assert bool(slurm.changes) == (offer is not ALL_24_11)


@pytest.mark.parametrize("act", ["suspend", "resume"])
def test_suspending_takes_a_command(monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    states = ("RUNNING",) if act == "suspend" else ("SUSPENDED",)
    slurm, commands = FakeSlurmrestd(job(5, *states, nodes="node1")), FakeSlurm()
    backend = slurm.backend()
    with pytest.raises(SlurmRefusedError, match="cannot suspend and resume jobs"):
        getattr(backend, act)(decided(backend))
    assert backend.cannot() == ("suspend and resume jobs", LIMITS)
    monkeypatch.setattr(backend, "_commands", commands)
    monkeypatch.setattr(backend, "_has_commands", True)
    getattr(backend, act)(decided(backend))
    assert commands.changes == [f"scontrol {act} 5"]
    assert not slurm.changes


@pytest.mark.parametrize("change", ["create", "move", "extend"])
def test_reservations_of_24_11_take_commands(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    slurm, commands = FakeSlurmrestd(RUNNING, offer=ALL_24_11), FakeSlurm()
    backend = slurm.backend()

    def carry_out() -> None:
        if change == "create":
            backend.create_reservation(PLACEMENT)
        elif change == "move":
            backend.update_reservation("clearway-1", ("node3",))
        else:
            backend.extend_reservation("clearway-1", NOW)

    with pytest.raises(SlurmRefusedError, match="cannot make and change reservations"):
        carry_out()
    monkeypatch.setattr(backend, "_commands", commands)
    monkeypatch.setattr(backend, "_has_commands", True)
    carry_out()
    assert len(commands.changes) == 1
    assert not slurm.changes


def test_refusals_that_mean_success() -> None:
    slurm = FakeSlurmrestd(RUNNING)
    backend = slurm.backend()
    run = decided(backend)
    slurm.answers = {("POST", "/jobs/requeue"): refusal(2024, "Job is pending execution")}
    with pytest.raises(AlreadyGoneError):
        backend.requeue(run)
    done = {"error": {"string": "Job/step already completing or completed", "code": 2021}, "step_id": "5"}
    slurm.answers = {("DELETE", "/jobs/"): httpx.Response(200, json={"status": [done], "errors": []})}
    backend.cancel(run)
    with pytest.raises(SlurmRefusedError, match="already completing"):
        backend.signal(run, "USR1", batch_only=True)
    slurm.answers = {("POST", "/jobs/requeue"): refusal(2037, "Requested operation is presently disabled")}
    with pytest.raises(SlurmRefusedError, match="disabled"):
        backend.requeue(run)
    update = {"results": [{"job_id": 5, "error_code": 2073, "error": "Job is no longer pending"}], "errors": []}
    slurm.jobs = [WAITING]
    slurm.answers = {("POST", "/job/5"): httpx.Response(200, json=update)}
    with pytest.raises(SlurmRefusedError, match="no longer pending"):
        backend.start_now("5")


@pytest.mark.parametrize("record", [None, job(5, "COMPLETED", nodes="node1"), job(restart_cnt=1), job(6)])
def test_another_run_is_left_alone(record: dict[str, Any] | None) -> None:
    slurm = FakeSlurmrestd(RUNNING)
    backend = slurm.backend()
    run = decided(backend)
    slurm.jobs = [record] if record else []
    if record is None:
        slurm.answers = {("GET", "/job/5"): refusal(2017, "Invalid job id specified", 404)}
    for change in (
        backend.requeue,
        backend.cancel,
        backend.suspend,
        lambda j: backend.signal(j, "USR1", batch_only=True),
    ):
        with pytest.raises(JobNotRunningError):
            change(run)
    assert not slurm.changes


def test_a_drain_of_another_stays() -> None:
    slurm = FakeSlurmrestd(RUNNING)
    slurm.nodes = [node(state=["IDLE", "DRAIN"], reason="bad disk")]
    backend = slurm.backend()
    for act in (backend.drain, backend.undrain):
        with pytest.raises(SlurmRefusedError, match="bad disk"):
            act("node1", "ours")
    slurm.nodes = [node(state=["IDLE", "DRAIN"], reason="ours")]
    backend.drain("node1", "ours")
    assert not slurm.changes
    slurm.answers = {("POST", "/node/node1"): lambda: _undrained(slurm)}
    backend.undrain("node1", "ours")
    # 24.11 without slurmdbd keeps the Reason, and is told that it is over.
    assert [told for _, _, told in slurm.changes] == [{"state": ["UNDRAIN"]}, {"reason": "ours is over"}]
    with pytest.raises(SlurmRefusedError, match="not known"):
        backend.drain("node2", "ours")


def _undrained(slurm: FakeSlurmrestd) -> httpx.Response:
    slurm.nodes = [node(state=["IDLE"], reason="ours")]
    return httpx.Response(200, json={"errors": []})


def test_a_suspended_job_is_not_requeued_where_it_cannot_be_resumed() -> None:
    slurm = FakeSlurmrestd(job(5, "SUSPENDED", nodes="node1"))
    backend = slurm.backend()
    run = decided(backend)
    assert run.state is JobState.SUSPENDED
    with pytest.raises(SlurmRefusedError):
        backend.requeue(run)
    assert not slurm.changes


def test_a_slurmrestd_that_knows_nothing_known_here() -> None:
    assert "known here are v0.0.44" in (
        FakeSlurmrestd(offer=offering("v0.0.39", "v0.0.52")).backend().available() or ""
    )
    assert "offers no jobs" in (FakeSlurmrestd(offer={"paths": 7}).backend().available() or "")
    with pytest.raises(SlurmUnavailableError, match="no object"):
        FakeSlurmrestd(offer=["?"]).backend().snapshot()


@pytest.mark.fault(
    "slurmrestd refuses job ids of a federation: an urgent job of one was planned in each cycle, and never served.",
    found_by="real cluster",
)
def test_a_job_of_a_federation_takes_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed by slurmrestd, which knows no such number; nor would it be asked for a change."""
    ours = 67108865
    slurm, commands = FakeSlurmrestd(job(ours)), FakeSlurm(rows=[GOOD | {"JobID": str(ours)}])
    slurm.answers = {("GET", f"/job/{ours}"): refusal(2017, "Invalid job id specified", 404)}
    backend = slurm.backend()
    with pytest.raises(SlurmRefusedError, match="cannot look at one job of a federation"):
        backend.job(str(ours))
    monkeypatch.setattr(backend, "_commands", commands)
    monkeypatch.setattr(backend, "_has_commands", True)
    run = backend.job(str(ours))
    assert run is not None
    backend.attach(str(ours), "r")
    backend.signal(run, "USR1", batch_only=True)
    backend.requeue(run)
    assert [change.split()[:2] for change in commands.changes] == [
        ["scontrol", "update"],
        ["scancel", "--signal=USR1"],
        ["scontrol", "requeue"],
    ]
    assert all(str(ours) in change for change in commands.changes)
    assert not slurm.changes
