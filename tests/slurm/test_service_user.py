"""The daemon as an ordinary user: with slurmdbd and Slurm's operator rights everything works, without nothing does.

What it calls runs in a child process that has become ``cwdaemon`` for good. (A fork and not a new interpreter: a
developer's Python may lie where only its owner can read.)
"""

from __future__ import annotations

import os
import pickle
import pwd
import re
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clearway import bootstrap
from clearway.config.configuration import Config
from clearway.model.cluster import Job, JobState, Reservation
from clearway.model.errors import ClearwayError, SlurmRefusedError
from clearway.model.operations import EvictionState
from clearway.slurm.cli import CliBackend
from clearway.store.repository import Store
from tests.one_job import OneJob
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import SLACK

SERVICE_USER = "cwdaemon"
DENIED = r"Access/permission denied|Invalid user id"  # Slurm's two ways to say it
OURS = "clearway_7"


def as_service_user(act: Callable[[], Any]) -> Any:
    """What ``act`` returns or raises when it runs as the service user, with none of root's rights."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            user = pwd.getpwnam(SERVICE_USER)
            os.initgroups(SERVICE_USER, user.pw_gid)
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            os.environ |= {"USER": SERVICE_USER, "LOGNAME": SERVICE_USER, "HOME": "/nonexistent"}
            os.chdir("/")
            assert os.geteuid() != 0
            try:
                outcome: tuple[str, Any] = ("value", act())
            except ClearwayError as error:
                outcome = ("error", error)
            except BaseException:  # noqa: BLE001 - told to the parent, which fails with it
                outcome = ("bug", traceback.format_exc())
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(outcome, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    kind, value = pickle.loads(data) if data else ("bug", "the child ended without a word")
    if kind == "error":
        raise value
    assert kind == "value", value
    return value


class Site(NamedTuple):
    """A busy node, whose job another user's job waits for."""

    cluster: SlurmCluster
    backend: CliBackend
    preemptee: Job
    urgent_id: str

    def reservation(self) -> Reservation:
        now = datetime.now(UTC)
        return Reservation(
            name=OURS,
            nodes=("node1",),
            start_time=now,
            end_time=now + timedelta(minutes=5),
            users=("cwbob",),
            flags=("FLEX", "IGNORE_JOBS"),
        )

    def state(self) -> list[str]:
        """What must not change when Slurm refuses: all that the calls of the daemon could change."""
        show = self.cluster.run
        jobs = show(
            "squeue", "-h", "-O", "JobID:12,State:12,NodeList:20,Reservation:20,Comment:60,EligibleTime:24"
        ).stdout
        nodes = [
            # RESERVED comes when Slurm next looks at its reservations, which are compared themselves; PLANNED goes.
            f"{node['NodeName']} {re.sub('[+](RESERVED|PLANNED)', '', node['State'])} {node.get('Reason', '')}"
            for node in self.cluster.records("node")
        ]
        return [
            *sorted(jobs.splitlines()),
            *nodes,
            *(f"{r['ReservationName']} {r['Nodes']} {r['Users']}" for r in self.cluster.scontrol_reservations()),
        ]


@pytest.fixture
def site(accounting_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    cluster = accounting_cluster
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    cluster.reset()
    preemptee = cluster.sbatch("sleep 600", "-N1", "--exclusive", "-wnode1", user="cwalice")
    cluster.wait_state(preemptee, "RUNNING")
    urgent = cluster.sbatch("sleep 600", "-N1", "--exclusive", "-wnode1", "-purgent", user="cwbob")
    backend = OneJob(CliBackend(now=lambda: datetime.now(UTC), slurm_conf=str(cluster.conf), timeout_s=15))
    job = backend.job(preemptee)
    assert job is not None
    yield Site(cluster, backend, job, urgent)
    cluster.set_admin_level(SERVICE_USER, "Operator")
    cluster.reset()


def test_an_operator_can_do_all_that_the_daemon_does(site: Site) -> None:
    cluster, backend, preemptee, urgent = site

    seen = as_service_user(backend.snapshot)
    assert {preemptee.job_id, urgent} <= seen.job_by_id.keys()
    assert not seen.skipped

    as_service_user(lambda: backend.create_reservation(site.reservation()))
    as_service_user(lambda: backend.attach(urgent, OURS))
    as_service_user(lambda: backend.signal(preemptee, "USR2", batch_only=False))
    as_service_user(lambda: backend.requeue(preemptee))
    assert cluster.wait_state(urgent, "RUNNING") == "RUNNING"
    assert cluster.job(urgent)["NodeList"] == "node1"
    cluster.wait_state(preemptee.job_id, "PENDING")

    as_service_user(lambda: backend.start_now(preemptee.job_id))
    as_service_user(lambda: backend.detach(urgent, OURS))
    as_service_user(lambda: backend.delete_reservation(OURS))
    assert cluster.scontrol_reservations() == []
    assert cluster.state(urgent) == "RUNNING"

    running = backend.job(urgent)
    assert running is not None
    as_service_user(lambda: backend.suspend(running))
    cluster.wait_state(urgent, "SUSPENDED")
    as_service_user(lambda: backend.resume(running))
    cluster.wait_state(urgent, "RUNNING")
    as_service_user(lambda: backend.cancel(running))
    cluster.wait_state(urgent, "CANCELLED")
    # The requeued job has no 121 s to wait any more: it takes the node back at once.
    cluster.wait_state(preemptee.job_id, "RUNNING")


def test_an_operator_can_have_a_run_that_is_over_run_again(site: Site) -> None:
    cluster, backend = site.cluster, site.backend
    job_id = cluster.sbatch("true", "-n1", "--requeue", "--output=/dev/null", user="cwalice")
    cluster.wait_state(job_id, "COMPLETED")
    over = backend.job(job_id)
    assert over is not None
    as_service_user(lambda: backend.run_again(over))
    assert cluster.job(job_id)["Restarts"] == "1"


def test_draining_takes_an_administrator(site: Site) -> None:
    """Slurm lets operators change jobs and reservations, but not nodes. Making room needs no drain."""
    cluster, backend = site.cluster, site.backend
    with pytest.raises(SlurmRefusedError, match=DENIED):
        as_service_user(lambda: backend.drain("node8", "clearway: test"))
    assert "DRAIN" not in cluster.records("node", "node8")[0]["State"]

    cluster.set_admin_level(SERVICE_USER, "Administrator")
    as_service_user(lambda: backend.drain("node8", "clearway: test"))
    assert "DRAIN" in cluster.records("node", "node8")[0]["State"]
    as_service_user(lambda: backend.undrain("node8", "clearway: test"))
    assert "DRAIN" not in cluster.records("node", "node8")[0]["State"]


CHANGES: dict[str, Callable[[Site], None]] = {
    "create_reservation": lambda site: site.backend.create_reservation(site.reservation()),
    "attach": lambda site: site.backend.attach(site.urgent_id, "standing"),
    "detach": lambda site: site.backend.detach(site.urgent_id, "standing"),
    "update_reservation": lambda site: site.backend.update_reservation("standing", ("node6",)),
    "delete_reservation": lambda site: site.backend.delete_reservation("standing"),
    "signal": lambda site: site.backend.signal(site.preemptee, "USR1", batch_only=True),
    "requeue": lambda site: site.backend.requeue(site.preemptee),
    "cancel": lambda site: site.backend.cancel(site.preemptee),
    "suspend": lambda site: site.backend.suspend(site.preemptee),
    "start_now": lambda site: site.backend.start_now(site.urgent_id),
    "drain": lambda site: site.backend.drain("node8", "clearway: test"),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_without_operator_rights_slurm_refuses_and_nothing_changes(site: Site, change: str) -> None:
    cluster = site.cluster
    flags = ["Flags=IGNORE_JOBS,FLEX", "StartTime=now", "Duration=10", "Users=cwbob", "Nodes=node7"]
    cluster.run("scontrol", "create", "reservation", "ReservationName=standing", *flags)
    if change == "detach":
        cluster.run("scontrol", "update", f"JobId={site.urgent_id}", "ReservationName=standing")
    cluster.set_admin_level(SERVICE_USER, "None")
    before = site.state()

    with pytest.raises(SlurmRefusedError, match=DENIED) as caught:
        as_service_user(lambda: CHANGES[change](site))

    assert "\n" not in str(caught.value)
    assert not caught.value.retryable
    assert site.state() == before


def test_a_whole_daemon_without_root(site: Site, tmp_path: Path) -> None:
    """Observe, plan, place, preempt, start and clean up, all of it as the service user."""
    cluster = site.cluster
    for number in range(2, 9):  # node1 has its job; the others are busy too
        other = cluster.sbatch("sleep 600", "-N1", "--exclusive", f"-wnode{number}", user="cwalice")
        cluster.wait_state(other, "RUNNING")
    urgent = cluster.sbatch("sleep 600", "-N2", "--exclusive", "-purgent", user="cwbob")
    cluster.run("scancel", site.urgent_id)
    folder = cluster.folder_of(SERVICE_USER)
    config = Config.model_validate(
        {
            "daemon": {"mode": "automatic"},
            "slurm": {"backend": "cli", "conf": str(cluster.conf)},
            "store": {"url": f"sqlite:///{folder}/clearway.sqlite"},
            "preemptors": [{"partition": ["urgent"], "max_delay": "60s"}],
            "candidates": {"min_runtime": 0},
        }
    )
    Store(f"sqlite:///{tmp_path}/warm.sqlite").close()  # whatever is imported late is imported before the fork

    def serve() -> tuple[str, int, list[str]]:
        daemon = bootstrap.build(config, origin="test")
        deadline = datetime.now(UTC) + timedelta(seconds=120 * SLACK)
        while datetime.now(UTC) < deadline:
            daemon.loop.cycle()
            evictions = daemon.store.evictions()
            # A cycle has a time for its commands: what comes after the start may be left for the next one.
            if evictions and evictions[0].state in (EvictionState.RETURNING, EvictionState.COMPLETED):
                break
        (eviction,) = evictions
        results = [f"{step.kind} {step.result} {step.detail}" for step in daemon.store.steps(eviction.eviction_id)]
        daemon.loop.parts.backend.close()
        daemon.store.close()
        return eviction.state.value, os.geteuid(), results

    state, uid, steps = as_service_user(serve)

    assert uid == pwd.getpwnam(SERVICE_USER).pw_uid
    assert state in (EvictionState.RETURNING, EvictionState.COMPLETED), steps
    assert not [step for step in steps if " refused" in step or " error" in step]
    assert cluster.state(urgent) == "RUNNING"
    assert cluster.scontrol_reservations() == []
    database = folder / "clearway.sqlite"
    assert database.stat().st_uid == uid
    assert database.stat().st_mode & 0o077 == 0
    assert site.backend.job(urgent) is not None
    assert JobState.RUNNING is site.backend.job(urgent).state  # type: ignore[union-attr]
