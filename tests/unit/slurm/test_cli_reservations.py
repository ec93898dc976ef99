"""What the cli backend asks Slurm to do with reservations and nodes, against a stand-in for the commands."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clearway.model.cluster import Reservation
from clearway.model.errors import SlurmRefusedError
from clearway.slurm.cli import CliBackend
from tests.unit.slurm.fake_slurm import NODE, NOW, FakeSlurm

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


def test_a_reservation_to_come_begins_at_its_time_wherever_the_daemon_is(
    backend: CliBackend, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # the commands have UTC, whatever the daemon has
    time.tzset()
    try:
        start = NOW + timedelta(hours=1)
        backend.create_reservation(reservation(start_time=start, end_time=start + timedelta(minutes=5)))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert f" StartTime={start:%Y-%m-%dT%H:%M:%S} Duration=5 " in slurm.changes[0]


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


@pytest.mark.fault(
    "Slurm 24.11 keeps the Reason of a drain that is over, and it was taken for a drain again.", found_by="real cluster"
)
def test_a_reason_that_slurm_keeps_reads_as_over(backend: CliBackend, slurm: FakeSlurm) -> None:
    """24.11 without slurmdbd clears no Reason of a node that takes jobs again."""
    ours = "clearway drain 7 3fa2: maintenance"
    show_node(slurm, "IDLE", ours)
    backend.undrain("n1", "clearway drain 8")
    assert slurm.changes == [], "it is another one's"
    backend.undrain("n1", ours)
    assert slurm.changes == ["scontrol update NodeName=n1 Reason=clearway drain 7 3fa2 is over"]
    show_node(slurm, "IDLE", "clearway drain 7 3fa2 is over")
    assert backend.snapshot().nodes[0].reason == ""
    backend.undrain("n1", ours)
    backend.drain("n1", "clearway drain 9")
    assert slurm.changes[1:] == ["scontrol update NodeName=n1 State=DRAIN Reason=clearway drain 9"]


def test_a_drain_whose_own_words_end_so_is_not_over(backend: CliBackend, slurm: FakeSlurm) -> None:
    ours = "clearway drain 7 3fa2: until the storm is over"
    show_node(slurm, "IDLE+DRAIN", ours)
    assert backend.snapshot().nodes[0].reason == ours
    backend.drain("n1", ours)
    assert slurm.changes == []
    backend.undrain("n1", ours)
    assert slurm.changes == ["scontrol update NodeName=n1 State=UNDRAIN"]


def test_a_node_is_powered_down(backend: CliBackend, slurm: FakeSlurm) -> None:
    backend.power_down("n1")
    assert slurm.changes == ["scontrol update NodeName=n1 State=POWER_DOWN"]


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
