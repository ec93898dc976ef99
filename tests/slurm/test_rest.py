"""slurmrestd on a real cluster: it tells what the commands tell, every change shows, and what ends costs one call."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from clearway.model.cluster import ClusterSnapshot, JobState, Reservation
from clearway.model.errors import SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.cli import CliBackend
from clearway.slurm.rest import LIMITS, RestBackend
from clearway.slurm.rest_records import ALL
from tests.one_job import OneJob
from tests.slurm.client import BEGUN
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import SLACK, missing_requirements, slurm_version, stop_process

PATIENT_S = 60.0
LOOP = f"trap 'echo USR1 >>heard.$SLURM_JOB_ID' USR1; {BEGUN}; while :; do sleep 0.2; done"
NEW = (26, 5)  # offers requeue and reservations
CHANGES = 60


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def rest_cluster() -> Iterator[SlurmCluster]:
    if reason := missing_requirements(rest=True):
        pytest.skip(f"cannot run here: {reason}")
    if slurm_version() < (24, 11):
        pytest.skip("slurmrestd is used from Slurm 24.11 on")
    with SlurmCluster(rest=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(rest_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    monkeypatch.setenv("SLURM_CONF", str(rest_cluster.conf))
    rest_cluster.reset()
    yield rest_cluster
    rest_cluster.reset()


def opened(cluster: SlurmCluster, **settings: object) -> RestBackend:
    given = {"now": now, "slurm_conf": str(cluster.conf), "timeout_s": PATIENT_S} | settings
    return OneJob(RestBackend(url=f"unix:{cluster.rest_socket}", **given))  # type: ignore[arg-type]


@pytest.fixture
def backend(cluster: SlurmCluster) -> RestBackend:
    return opened(cluster)


def fill(cluster: SlurmCluster) -> str:
    """Jobs of many sorts; the id of an array of which tasks run and wait."""
    array = cluster.sbatch(LOOP, "--array=0-3%2", "-n1", "--time=30", "-w", "node1", user="cwalice")
    for user, *asked in (
        ("cwbob", "-N2", "--exclusive", "--mem=0", "--comment=clearway:max_delay=10m", "-w", "node[2-3]"),
        ("cwbob", "-N9-12", "-x", "node[1-2]", "-d", f"afterok:{array}", "--hold"),
        ("cwbob", "-N1", "--hold", "--no-requeue", "-J", "held one"),
        ("cwalice", "-n6", "-N2-4", "--exclusive=user", "-t", "2-3:04:05"),
        ("cwalice", "-c2", "-n3", "--oversubscribe", "--contiguous", "--switches=1@10:00", "-H"),
        ("cwalice", "-n1", "-J", 'x|y\n"},{"job_id":9', "--comment=a\nb\\u0041", "--begin=now+99999999hours"),
        ("cwalice", "-n1", "-p", "urgent,batch", "-d", "singleton", "-J", os.fsdecode(b"caf\xe9\xff")),
    ):
        cluster.sbatch(LOOP, *asked, user=user)
    cluster.sbatch("#!/bin/sh\n#SBATCH -n1 -H\n#SBATCH hetjob\n#SBATCH -N2 -H\nsleep 60\n", user="cwbob")
    return array


def alike(seen: ClusterSnapshot) -> tuple[object, ...]:
    """Without what the scheduler writes anew at any time, and the order of a node's flags."""
    jobs = {job.job_id: replace(job, reason="") for job in seen.jobs}
    nodes = {node.name: replace(node, raw_state="".join(sorted(node.raw_state))) for node in seen.nodes}
    return jobs, nodes, seen.preempt_priorities


def test_it_sees_what_the_commands_see(cluster: SlurmCluster, backend: RestBackend) -> None:
    array = fill(cluster)
    suspended = cluster.sbatch(LOOP, "-n1", "--mem=100", "-w", "node8", user="cwalice")
    cluster.wait_state(suspended, "RUNNING")
    cluster.run("scontrol", "suspend", suspended)
    cluster.run("scontrol", "update", "NodeName=node7", "State=DRAIN", "Reason=a test: with colons")
    resv = ("Duration=10", "Users=cwalice,cwbob", "Nodes=node[5-6]", "Flags=IGNORE_JOBS,FLEX", "StartTime=now")
    cluster.run("scontrol", "create", "reservation", "ReservationName=clearway-1", *resv)
    cluster.wait_for(lambda: cluster.run("squeue", "-h", "-t", "R,S", "-o", "%A").stdout.count("\n") >= 5)

    cli = CliBackend(now=now, slurm_conf=str(cluster.conf), timeout_s=PATIENT_S)
    cluster.wait_for(lambda: alike(backend.snapshot()) == alike(cli.snapshot()) or None, 20, "both to see the same")

    ours = backend.snapshot()
    assert ours.skipped == ()
    assert ours.job_by_id[suspended].state is JobState.SUSPENDED
    assert len([job for job in ours.jobs if job.array_job_id == array]) == 3
    for job_id in ours.job_by_id:
        one, theirs = look_at(backend, job_id), look_at(cli, job_id)
        assert replace(one, reason="") == replace(theirs, reason="")
    flags = [[replace(each, flags=tuple(sorted(each.flags))) for each in b.reservations()] for b in (backend, cli)]
    assert flags[0] == flags[1]
    assert len(flags[0]) == 1


def look_at(backend: RestBackend | CliBackend, job_id: str) -> object:
    job = backend.job(job_id)
    assert job is not None
    return job


def test_every_change_shows_at_once(cluster: SlurmCluster, backend: RestBackend) -> None:
    """Of jobs and nodes, whatever is changed, and however soon after the last look."""
    fill(cluster)
    cluster.wait_for(lambda: cluster.run("squeue", "-h", "-t", "R", "-o", "%A").stdout.count("\n") >= 3)
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    backend.snapshot()
    for turn in range(CHANGES):
        change = dice.choice((comment, priority, limit, drain, submit, end, suspend, weight))
        change(cluster, dice)
        time.sleep(dice.choice((0, 0, 0.3, 1.1, 2.6)))  # as cycles fall, also past the margin of whole seconds
        kept, plain = backend.snapshot(), opened(cluster).snapshot()
        for _ in range(20):  # something else may have changed between the two
            if alike(kept) == alike(plain):
                break
            kept, plain = backend.snapshot(), opened(cluster).snapshot()
        assert alike(kept) == alike(plain), f"seed {seed}, turn {turn}: {change.__name__}"


def _a_job(cluster: SlurmCluster, dice: random.Random, *states: str) -> str | None:
    found = cluster.run("squeue", "-h", "-t", ",".join(states), "-o", "%A").stdout.split()
    return dice.choice(found) if found else None


def comment(cluster: SlurmCluster, dice: random.Random) -> None:
    if job := _a_job(cluster, dice, "R", "PD"):
        cluster.run("scontrol", "update", f"JobId={job}", f"Comment=clearway:saved={dice.random()}", check=False)


def priority(cluster: SlurmCluster, dice: random.Random) -> None:
    if job := _a_job(cluster, dice, "PD"):
        cluster.run("scontrol", "update", f"JobId={job}", f"Priority={dice.randrange(1, 99)}", check=False)


def limit(cluster: SlurmCluster, dice: random.Random) -> None:
    if job := _a_job(cluster, dice, "R"):
        cluster.run("scontrol", "update", f"JobId={job}", f"TimeLimit={dice.randrange(40, 99)}", check=False)


def drain(cluster: SlurmCluster, dice: random.Random) -> None:
    state = dice.choice(("State=DRAIN", "State=UNDRAIN"))
    cluster.run("scontrol", "update", "NodeName=node8", state, "Reason=a test", check=False)


def submit(cluster: SlurmCluster, dice: random.Random) -> None:
    cluster.sbatch(LOOP, "-n1", "--mem=100", f"-w node{dice.randrange(4, 8)}", user="cwalice")


def end(cluster: SlurmCluster, dice: random.Random) -> None:
    if job := _a_job(cluster, dice, "R"):
        cluster.run("scancel", job)


def suspend(cluster: SlurmCluster, dice: random.Random) -> None:
    act, state = dice.choice((("suspend", "R"), ("resume", "S")))
    if job := _a_job(cluster, dice, state):
        cluster.run("scontrol", act, job, check=False)


def weight(cluster: SlurmCluster, dice: random.Random) -> None:
    cluster.run("scontrol", "update", "NodeName=node7", f"Weight={dice.randrange(1, 9)}")


def test_little_is_asked_while_nothing_changes(cluster: SlurmCluster, backend: RestBackend) -> None:
    cluster.sbatch(LOOP, "-n1", "--hold", user="cwalice")
    asked: list[int] = []
    send = backend._client._send

    async def counted(request: object, limit_s: float) -> tuple[int, bytes]:
        status, body = await send(request, limit_s)  # type: ignore[arg-type]
        asked.append(len(body))
        return status, body

    whole = len(str(backend._client.read("/jobs/", **ALL)))
    backend._client._send = counted  # type: ignore[method-assign, assignment]

    def quiet() -> bool:
        asked.clear()
        return backend.snapshot().queries == 3 and sum(asked) < whole

    cluster.wait_for(quiet, 60, "a look at a cluster where nothing changes")


def test_a_signal_comes_where_it_should(cluster: SlurmCluster, backend: RestBackend) -> None:
    step = "trap 'echo USR2 >>step.'$SLURM_JOB_ID USR2; touch step-begun.$SLURM_JOB_ID; while :; do sleep 0.1; done"
    script = (
        f"trap 'echo USR1 >>heard.$SLURM_JOB_ID' USR1 USR2; srun sh -c \"{step}\" & {BEGUN}; while :; do wait; done"
    )
    job_id = cluster.sbatch(script, "-n1", "--mem=100", "-o", "/dev/null", user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    cluster.wait_begun(job_id)
    job = backend.job(job_id)
    assert job is not None
    heard, in_step = cluster.work / f"heard.{job_id}", cluster.work / f"step.{job_id}"
    cluster.wait_for((cluster.work / f"step-begun.{job_id}").exists, 30, "the step's trap")

    def heard_in_step() -> bool:
        backend.signal(job, "USR2", batch_only=False)
        return in_step.exists()

    cluster.wait_for(heard_in_step, 30, "a signal in the step")
    assert not heard.exists()
    backend.signal(job, "USR1", batch_only=True)
    cluster.wait_for(heard.exists, 30, "a signal in the batch shell")


def test_what_a_job_cannot_hear_does_not_hang(cluster: SlurmCluster, backend: RestBackend) -> None:
    """Scancel waits for a minute and more; slurmrestd says at once that it is not possible."""
    waits = cluster.sbatch(LOOP, "-n1", "--hold", user="cwalice")
    asleep = cluster.sbatch(LOOP, "-n1", "--mem=100", user="cwalice")
    cluster.wait_state(asleep, "RUNNING")
    cluster.run("scontrol", "suspend", asleep)
    for job_id in (waits, asleep):
        began = time.monotonic()
        with pytest.raises(SlurmRefusedError):
            backend._client.change("DELETE", "/jobs/", {"jobs": [job_id], "signal": "USR1", "flags": ["BATCH_JOB"]})
        assert time.monotonic() - began < 10 * SLACK


def test_slurmrestd_that_hangs_ends_and_comes_back(cluster: SlurmCluster) -> None:
    backend = opened(cluster)
    assert len(backend.snapshot().nodes) == 8
    backend._client._timeout_s = 3.0
    stop_process(cluster.rest_pid)
    try:
        with pytest.raises(SlurmTimeoutError, match="within 3 s"):
            backend.snapshot()
    finally:
        cluster.stop_rest()
    with pytest.raises(SlurmUnavailableError, match="cannot be asked"):
        backend.snapshot()
    cluster.start_rest()
    assert len(opened(cluster).snapshot().nodes) == 8


def test_over_tcp(cluster: SlurmCluster) -> None:
    url = f"http://127.0.0.1:{cluster.rest_port}"
    backend = OneJob(RestBackend(url=url, now=now, slurm_conf=str(cluster.conf), timeout_s=PATIENT_S))
    assert len(backend.snapshot().nodes) == 8
    backend.drain("node3", "a test")
    assert cluster.node_reasons() == {"node3": "a test"}
    backend.undrain("node3", "a test")


def test_a_user_without_rights_can_read_alone(cluster: SlurmCluster) -> None:
    """The rights are those of the token's user, not those of slurmrestd's.

    A kill is not tried: slurmctld 26.05 stands still after one that it refuses for want of rights.
    """
    job_id = cluster.sbatch(LOOP, "-n1", "--mem=100", user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    token = cluster.root / "token"
    token.write_text(cluster.run("scontrol", "token", "lifespan=600", "username=cwbob").stdout)
    token.chmod(0o600)
    backend = opened(cluster, token_file=token)
    job = backend.job(job_id)
    assert job is not None
    for act in (lambda: backend.drain("node3", "a test"), lambda: backend.give_nice(job_id, -7, 0)):
        with pytest.raises(SlurmRefusedError):
            act()
    assert backend.job(job_id) == job
    token.write_text("SLURM_JWT=e30.e30.e30\n")
    with pytest.raises(SlurmUnavailableError, match="authentication") as raised:
        backend.snapshot()
    assert "e30" not in str(raised.value)


def test_slurmctld_is_down(cluster: SlurmCluster) -> None:
    backend = opened(cluster)
    backend.snapshot()
    backend._client._timeout_s = 5.0
    cluster.stop_controller(saved=False)
    with pytest.raises(SlurmUnavailableError):
        backend.snapshot()
    cluster.start_controller()
    assert len(opened(cluster).snapshot().nodes) == 8


def test_without_commands_it_says_what_it_cannot_do(cluster: SlurmCluster) -> None:
    job_id = cluster.sbatch(LOOP, "-n1", "--mem=100", user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    token = cluster.root / "token"
    token.write_text(cluster.run("scontrol", "token", "lifespan=600").stdout)
    token.chmod(0o600)
    backend = opened(cluster, bin_dir="/nowhere", token_file=token)
    job = backend.job(job_id)
    assert job is not None
    made = Reservation(
        name="clearway-1",
        nodes=("node1",),
        start_time=now(),
        end_time=datetime(2199, 1, 1, tzinfo=UTC),
        users=("root",),
    )
    suspending = "suspend and resume jobs"
    with pytest.raises(SlurmRefusedError, match=f"cannot {suspending}"):
        backend.suspend(job)
    if slurm_version() >= NEW:
        assert backend.cannot() == (suspending, LIMITS)
        backend.requeue(job)
        cluster.wait_state(job_id, "PENDING")
        backend.create_reservation(made)
        backend.delete_reservation(made.name)
    else:
        assert backend.cannot() == ("requeue jobs", "make and change reservations", suspending, LIMITS)
        with pytest.raises(SlurmRefusedError, match="cannot requeue jobs"):
            backend.requeue(job)
        with pytest.raises(SlurmRefusedError, match="cannot make and change reservations"):
            backend.create_reservation(made)
    assert cluster.scontrol_reservations() == []


def test_a_flag_that_slurmrestd_does_not_know_is_no_protection(cluster: SlurmCluster, backend: RestBackend) -> None:
    """Why it is asked to requeue only where it says that it knows Incomplete: it refuses the flag, and requeues."""
    if slurm_version() < NEW:
        pytest.skip("this slurmrestd does not requeue")
    done = cluster.sbatch("true", "-n1", user="cwalice")
    cluster.wait_state(done, "COMPLETED")
    backend._client.change("POST", "/jobs/requeue", {"jobs": [done], "flags": ["Incomplete"]})
    assert cluster.state(done) == "COMPLETED"
    with pytest.raises(SlurmRefusedError, match="Unknown flag"):
        backend._client.change("POST", "/jobs/requeue", {"jobs": [done], "flags": ["Unheard"]})
    cluster.wait_state(done, "PENDING", "RUNNING")
