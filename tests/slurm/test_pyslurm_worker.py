"""The pyslurm worker on a real cluster: a hang or a crash of it costs one call, never the daemon."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clearway.model.errors import SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.cli import CliBackend
from clearway.slurm.pyslurm import PyslurmBackend
from tests.one_job import OneJob
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import stop_process

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pyslurm") is None, reason="pyslurm is built for Slurm 26.05: tests/run slurm26"
)
PATIENT_S = 60.0  # also for the start of a worker on a busy machine
SHORT_S = 5.0  # libslurm itself would try for 10 s and more


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def backend(cluster: SlurmCluster) -> Iterator[PyslurmBackend]:
    backend = OneJob(PyslurmBackend(now=now, slurm_conf=str(cluster.conf), timeout_s=PATIENT_S))
    yield backend
    backend.close()


@contextmanager
def impatient(backend: PyslurmBackend) -> Iterator[None]:
    """What fails within this block does so after ``SHORT_S``, give or take a pause of the machine."""
    backend._worker._timeout_s = SHORT_S
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < SHORT_S + 30
    backend._worker._timeout_s = PATIENT_S


def pid_of(backend: PyslurmBackend) -> int:
    backend.snapshot()
    assert backend._worker.pid is not None
    return backend._worker.pid


def test_a_killed_worker_costs_one_call(backend: PyslurmBackend) -> None:
    os.kill(pid_of(backend), signal.SIGKILL)

    with pytest.raises(SlurmUnavailableError, match="signal 9"):
        backend.snapshot()

    assert len(backend.snapshot().nodes) == 8
    assert backend.worker_restarts() == 1


def test_a_hanging_worker_is_ended_in_time(backend: PyslurmBackend) -> None:
    hung = pid_of(backend)
    stop_process(hung)

    with impatient(backend), pytest.raises(SlurmTimeoutError, match="within 5 s"):
        backend.snapshot()

    assert not Path(f"/proc/{hung}").exists()
    assert len(backend.snapshot().nodes) == 8
    assert backend.worker_restarts() == 1


@pytest.mark.fault(
    "A call of pyslurm to a hanging slurmctld stood all threads of the daemon still, up to 28 s.",
    found_by="real cluster",
)
def test_a_hanging_controller_is_waited_for_no_longer_than_the_limit(
    cluster: SlurmCluster, backend: PyslurmBackend
) -> None:
    pid_of(backend)
    stop_process(cluster.pid_of("slurmctld"))
    try:
        with impatient(backend), pytest.raises(SlurmTimeoutError, match="within 5 s"):
            backend.snapshot()
    finally:
        os.kill(cluster.pid_of("slurmctld"), signal.SIGCONT)

    assert len(backend.snapshot().nodes) == 8


def test_a_controller_that_is_down_and_comes_back(cluster: SlurmCluster, backend: PyslurmBackend) -> None:
    job_id = cluster.sbatch("sleep 100", user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    cluster.stop_controller()

    with impatient(backend), pytest.raises(SlurmUnavailableError):  # libslurm tries for 10 s: the limit ends it
        backend.snapshot()
    cluster.start_controller()
    cluster.wait_state(job_id, "RUNNING")

    assert [job.job_id for job in backend.snapshot().jobs] == [job_id]


def test_a_missing_configuration_is_an_error_of_one_line(tmp_path: Path, cluster: SlurmCluster) -> None:
    backend = PyslurmBackend(now=now, slurm_conf=str(tmp_path / "slurm.conf"), timeout_s=SHORT_S)
    try:
        reason = backend.available()
    finally:
        backend.close()

    assert reason is not None
    assert "\n" not in reason
    assert cluster.controller_is_up()


def test_it_sees_what_the_command_line_sees(cluster: SlurmCluster, backend: PyslurmBackend) -> None:
    array = cluster.sbatch("sleep 100", "--array=0-3%2", "-n1", "--time=30", user="cwalice")
    cluster.sbatch("sleep 100", "-N2", "--exclusive", "--comment=clearway:max_delay=10m", user="cwbob")
    cluster.sbatch("sleep 100", "-N9-12", "-x", "node[1-2]", "-d", f"afterok:{array}", "--hold", user="cwbob")
    held = cluster.sbatch("sleep 100", "-N1", "--hold", "--no-requeue", "-J", "held one", user="cwbob")
    cluster.wait_for(lambda: cluster.run("squeue", "-h", "-t", "R", "-o", "%A").stdout.count("\n") == 3)
    cluster.run("scontrol", "update", "NodeName=node8", "State=DRAIN", "Reason=a test: with colons")

    cli = CliBackend(now=now, slurm_conf=str(cluster.conf))
    theirs, ours = cli.snapshot(), backend.snapshot()
    for _ in range(20):  # between the two the scheduler may have said something new of a job or a node
        if (ours.job_by_id, ours.node_by_name) == (theirs.job_by_id, theirs.node_by_name):
            break
        theirs, ours = cli.snapshot(), backend.snapshot()
    again = backend.snapshot()

    assert held in ours.job_by_id
    assert ours.job_by_id.keys() == theirs.job_by_id.keys()
    for job_id, job in ours.job_by_id.items():
        assert job == theirs.job_by_id[job_id]
    assert ours.node_by_name == theirs.node_by_name
    assert ours.skipped == theirs.skipped == ()
    assert ours.preempt_priorities == theirs.preempt_priorities
    assert set(ours.preempt_priorities.by_name) == {"batch", "urgent"}
    assert again.queries == 2


def test_text_that_is_no_utf8_hides_no_job(cluster: SlurmCluster, backend: PyslurmBackend) -> None:
    name = os.fsdecode(b"caf\xe9")
    job_id = cluster.sbatch("sleep 100", "-J", name, f"--comment={name}", user="cwalice")

    job = backend.job(job_id)

    assert job is not None
    assert (job.name, job.comment) == ("", "")


def test_requeue_of_the_last_task_leaves_the_others_alone(cluster: SlurmCluster, backend: PyslurmBackend) -> None:
    array = cluster.sbatch("sleep 100", "--array=0-3", "-n1", user="cwalice")
    cluster.wait_for(lambda: cluster.run("squeue", "-h", "-t", "R", "-o", "%A").stdout.count("\n") == 4)
    last = backend.job(array)  # Slurm gives the array's own id to its last task
    assert last is not None
    assert last.array_task_id == 3

    backend.requeue(last)
    cluster.wait_for(lambda: "BeginTime" in cluster.run("squeue", "-h", "-o", "%r").stdout)
    wanted = ["0 RUNNING", "1 RUNNING", "2 RUNNING", "3 PENDING"]
    listed = ("squeue", "-h", "--array", "-o", "%K %T")
    cluster.wait_for(lambda: sorted(cluster.run(*listed).stdout.splitlines()) == wanted)

    first = next(job for job in backend.snapshot().jobs if job.array_task_id == 0)
    backend.cancel(first)
    cluster.wait_for(lambda: cluster.run("squeue", "-h", "-t", "R", "-o", "%A").stdout.count("\n") == 2)


def test_a_controller_that_is_down_from_the_start(cluster: SlurmCluster) -> None:
    backend = OneJob(PyslurmBackend(now=now, slurm_conf=str(cluster.conf), timeout_s=30))
    cluster.stop_controller(saved=False)
    try:
        with pytest.raises(SlurmUnavailableError):
            backend.snapshot()
        cluster.start_controller()
        assert len(backend.snapshot().nodes) == 8
    finally:
        backend.close()


def test_generic_resources_that_it_cannot_see_are_a_reason_to_use_another_backend(cluster: SlurmCluster) -> None:
    """For ``--gpus=1`` pyslurm shows nothing: the job would look like one that any node suits."""
    backend = PyslurmBackend(now=now, slurm_conf=str(cluster.conf))
    assert backend.available() is None
    backend.close()
    with SlurmCluster(nodes=1, extra_conf=["GresTypes=gpu"]) as other:
        backend = PyslurmBackend(now=now, slurm_conf=str(other.conf))
        assert "AccountingStorageTRES" in (backend.available() or "")
        backend.close()
