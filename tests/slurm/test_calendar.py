"""Promises from a calendar file on a real cluster: kept when the event begins, withdrawn when it is deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, Promise
from clearway.model.outcome import OutcomeCode
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.test_drain import WHOLE, clearway, nodes_of
from tests.slurm.test_promised_nodes import UNPROTECTED, reservations

AHEAD = timedelta(seconds=90)


@pytest.fixture
def daemon(cluster: SlurmCluster, tmp_path: Path) -> RunningDaemon:
    """Not started yet; its calendar is ``beam.ics`` in its folder."""
    folder = tmp_path / "daemon"
    folder.mkdir()
    # Nodes are held from half an hour before.
    promises = f'hold = 1800\nspare = 5\ncalendar = "{folder}/beam.ics"'
    changes = {"candidates": UNPROTECTED, "promises": promises}
    return RunningDaemon(cluster, folder, config=config_text(folder, cluster.conf, **changes))


def event(uid: str, at: datetime, nodes: int) -> str:
    """In Tokyo's time, as a program there writes it."""
    begin = at.astimezone(UTC) + timedelta(hours=9)
    return (
        f"BEGIN:VEVENT\r\nUID:{uid}\r\nDTSTART;TZID=Asia/Tokyo:{begin:%Y%m%dT%H%M%S}\r\nDURATION:PT10M\r\n"
        f"SUMMARY:Beam time\r\nDESCRIPTION:nodes: {nodes}\\npartition: batch\\nusers: cwbob\r\nEND:VEVENT\r\n"
    )


def write(daemon: RunningDaemon, *events: str) -> None:
    """As one rename."""
    file = daemon.folder / "beam.ics"
    new = file.with_suffix(".new")
    new.write_bytes(f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{''.join(events)}END:VCALENDAR\r\n".encode())
    new.chmod(0o644)
    new.replace(file)


def promises(daemon: RunningDaemon) -> dict[str, Promise]:
    return {e.order.event: e for e in daemon.evictions() if isinstance(e, Promise)}


@pytest.mark.full
def test_an_event_is_kept_and_deleted_ones_are_withdrawn(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    job = cluster.sbatch("sleep 900", "-N8", *WHOLE, "--time=30", "--output=/dev/null", user="cwalice")
    cluster.wait_state(job, "RUNNING")
    at = (datetime.now(tz=UTC) + AHEAD).replace(microsecond=0)
    kept = event("kept@site", at, 2)
    held = event("held@site", at + timedelta(minutes=20), 3)
    later = event("later@site", at + timedelta(hours=5), 4)
    write(daemon, kept, held, later)
    with daemon:
        daemon.wait_for(lambda: len(reservations(cluster)) == 2, 40, "the reservations")
        found = promises(daemon)
        assert set(found) == {"kept@site", "held@site", "later@site"}
        reservation = reservations(cluster)[found["kept@site"].placement]
        assert datetime.fromisoformat(reservation["StartTime"]).astimezone(UTC) == at
        assert reservation["Users"] == "cwbob"
        told = clearway(daemon, "promises", "-o", "wide")
        assert "calendar: kept@site" in told.stdout

        # Room is there when the event begins, for its user.
        daemon.wait_for(lambda: promises(daemon)["kept@site"].started_at, 120, "the time of the event")
        assert datetime.now(tz=UTC) >= at
        begun = promises(daemon)["kept@site"]
        assert begun.outcome_code is OutcomeCode.KEPT
        options = ("-N2", *WHOLE, "--time=5", f"--reservation={begun.placement}", "--output=/dev/null")
        mine = cluster.sbatch("sleep 600", *options, user="cwbob")
        cluster.wait_state(mine, "RUNNING")
        assert nodes_of(cluster, mine) == set(begun.plan.placement_nodes)

        # Deleted: what is held and what is only scheduled is withdrawn, and the reservation is gone.
        write(daemon, kept)
        daemon.wait_for(lambda: list(reservations(cluster)) == [begun.placement], 30, "the end of the reservation")
        daemon.wait_for(lambda: promises(daemon)["held@site"].state.terminal, 60, "the end of what was held")
        withdrawn = promises(daemon)
        for uid in ("held@site", "later@site"):
            assert (withdrawn[uid].state, withdrawn[uid].outcome_code) == (
                EvictionState.CANCELLED,
                OutcomeCode.WITHDRAWN,
            )

        # A file that is gone, or is no calendar, changes nothing.
        (daemon.folder / "beam.ics").write_text("not a calendar")
        daemon.wait_for(lambda: "is not END:VCALENDAR" in daemon.log.read_text(), 30, "the complaint")
        assert promises(daemon)["kept@site"].state is EvictionState.STARTED
        assert list(reservations(cluster)) == [begun.placement]
        cluster.run("scancel", mine)
