"""Promised nodes on a real cluster: what Slurm starts there before, and who has them then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clearway.model.operations import Eviction, EvictionState, PreemptionState
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, check_result, config_text, install_programs
from tests.slurm.test_drain import STEPS, WHOLE, ask, clearway, newest, nodes_of, saver

AHEAD = timedelta(seconds=110)  # a time limit of Slurm's has at least a minute
UNPROTECTED = 'min_runtime = 1\nprotected_users = []\nspare_before_end = "1s"'


@pytest.fixture
def daemon(cluster: SlurmCluster, tmp_path: Path) -> RunningDaemon:
    """Not started yet; the token ``tester`` may promise nodes. Where a machine is slow there is time to spare."""
    folder = tmp_path / "daemon"
    folder.mkdir()
    changes = {"candidates": UNPROTECTED, "drain": 'operators = ["tester"]', "promises": "spare = 25"}
    return RunningDaemon(cluster, folder, config=config_text(folder, cluster.conf, **changes))


def reservations(cluster: SlurmCluster) -> dict[str, dict[str, str]]:
    found = cluster.run("scontrol", "-o", "show", "res").stdout.splitlines()
    records = [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in found if "=" in line]
    return {record["ReservationName"]: record for record in records}


def wait_held(daemon: RunningDaemon) -> Eviction:
    daemon.wait_for(lambda: newest(daemon).state is EvictionState.PREEMPTING, 30, "the reservation")
    return newest(daemon)


def test_a_promise_is_kept_and_nothing_stays_behind(cluster: SlurmCluster, daemon: RunningDaemon) -> None:
    install_programs(cluster)
    with daemon:
        saved = saver(cluster, "-N1", *WHOLE)
        ending = cluster.sbatch("sleep 40", "-N1", *WHOLE, "--time=1", "--output=/dev/null", user="cwalice")
        cluster.wait_state(ending, "RUNNING")
        where = nodes_of(cluster, saved) | nodes_of(cluster, ending)
        lasting = [
            cluster.sbatch("sleep 900", "-N1", *WHOLE, "--time=30", "--output=/dev/null", user="cwalice")
            for _ in range(6)
        ]
        for job_id in lasting:
            cluster.wait_state(job_id, "RUNNING")
        at = (datetime.now(tz=UTC) + AHEAD).replace(microsecond=0)
        told = ask(daemon, "promises", nodes=2, partition="batch", at=at.isoformat(), duration_s=600, users=["cwbob"])
        assert told.startswith("promise 1: ")
        held = wait_held(daemon)
        assert set(held.plan.placement_nodes) == where
        (reservation,) = reservations(cluster).values()
        assert reservation["ReservationName"] == held.placement
        assert reservation["Users"] == "cwbob"
        assert datetime.fromisoformat(reservation["StartTime"]).astimezone(UTC) == at

        # Slurm starts nothing there that would not have ended by then.
        cluster.wait_state(ending, "COMPLETED", timeout=60)
        late = cluster.sbatch("sleep 900", "-N1", *WHOLE, "--time=30", "--output=/dev/null", user="cwalice")
        mine = cluster.sbatch(
            "sleep 600",
            "-N2",
            *WHOLE,
            "--time=5",
            f"--reservation={held.placement}",
            "--output=/dev/null",
            user="cwbob",
        )
        daemon.wait_for(lambda: newest(daemon).started_at, 150, "the promised time")
        assert datetime.now(tz=UTC) >= at
        kept = newest(daemon)
        assert kept.outcome_code is OutcomeCode.KEPT
        (p,) = kept.preemptions
        assert (p.job_id, p.action) == (saved, Action.APP_CHECKPOINT)
        assert not held.preemptions  # no job is asked before it has to be
        assert p.asked_at is not None
        assert p.asked_at >= held.plan.asks_at
        cluster.wait_state(mine, "RUNNING")
        assert nodes_of(cluster, mine) == where
        assert cluster.state(late) == "PENDING"
        assert all(cluster.job(job_id)["Restarts"] == "0" for job_id in lasting)

        # Cancelled while a job runs in it: the job runs on, and the reservation is gone.
        done = clearway(daemon, "promise", "--cancel", str(kept.eviction_id))
        assert done.returncode == 0, done.stderr
        daemon.wait_for(lambda: not reservations(cluster), 30, "the end of the reservation")
        assert cluster.state(mine) == "RUNNING"
        cluster.run("scancel", mine, late)
        daemon.wait_for(lambda: newest(daemon).state.terminal, 120, "the end of the promise")
        assert newest(daemon).state is EvictionState.CANCELLED
        assert newest(daemon).preemptions[0].state is PreemptionState.RETURNED
        check_result(cluster, saved, STEPS)
