"""The backend contract on a real cluster, through CLEARWAY_BACKEND: ``cli`` (the default), ``pyslurm`` or ``rest``."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.slurm.base import SlurmBackend
from clearway.slurm.cli import CliBackend
from clearway.slurm.parse.fields import LATEST
from tests.contract.backend_conformance import BackendConformance
from tests.contract.site import look
from tests.one_job import OneJob
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import SLACK

# Runs until its file appears, and notes every USR1. The trap also keeps `sleep` from ending the shell.
PROGRAM = """#!/bin/sh
{deaf}
trap 'echo USR1 >>heard.'"$SLURM_JOB_ID" USR1
echo >started.$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}
while [ ! -e finish.$SLURM_JOB_ID ]; do sleep 0.2; done
"""
SLOW_START = "slow-start"


def _now() -> datetime:
    return datetime.now(UTC)


def make_backend(cluster: SlurmCluster) -> SlurmBackend:
    kind = os.environ.get("CLEARWAY_BACKEND", "cli")
    if kind == "pyslurm":
        from clearway.slurm.pyslurm import PyslurmBackend

        return OneJob(PyslurmBackend(now=_now, slurm_conf=str(cluster.conf), timeout_s=20))
    if kind == "rest":
        from clearway.slurm.rest import RestBackend

        url = f"unix:{cluster.rest_socket}"
        return OneJob(RestBackend(now=_now, url=url, slurm_conf=str(cluster.conf), timeout_s=20))
    assert kind == "cli", f"CLEARWAY_BACKEND is {kind}"
    return OneJob(CliBackend(now=_now, slurm_conf=str(cluster.conf), timeout_s=20))


class RealSite:
    user = "cwalice"
    # slurmrestd is asked for the states of all jobs beside them.
    most_queries = 3 if os.environ.get("CLEARWAY_BACKEND") == "rest" else 2

    def __init__(self, cluster: SlurmCluster, backend: SlurmBackend, prolog: Path | None = None) -> None:
        self.cluster = cluster
        self.prolog = prolog
        self.backend = backend
        for left in cluster.work.glob("*.*"):  # job ids do not repeat within a cluster, but folders fill
            if left.is_file():
                left.unlink(missing_ok=True)

    def now(self) -> datetime:
        return _now()

    def _submit(self, *args: str, deaf: bool = False) -> str:
        script = PROGRAM.format(deaf="trap '' TERM" if deaf else "")
        return self.cluster.sbatch(script, "--output=/dev/null", "--time=60", *args, user=self.user)

    def _begun(self, job_id: str) -> bool:
        return (self.cluster.work / f"started.{job_id}.0").exists()

    def _started(self, job_id: str) -> str:
        self.wait(f"job {job_id} has started", lambda: self._begun(job_id))
        # The batch shell may be up a moment before slurmctld calls the job RUNNING.
        self.wait(f"job {job_id} is RUNNING", lambda: self._running(job_id) == [job_id])
        return job_id

    def run_job(
        self,
        *nodes: str,
        cpus: int | None = None,
        name: str = "job",
        comment: str = "",
        deaf: bool = False,
        requeueable: bool = True,
    ) -> str:
        size = ["--exclusive"] if cpus is None else ["--ntasks=1", f"--cpus-per-task={cpus}", "--mem=500"]
        flags = ["--requeue"] if requeueable else ["--no-requeue"]
        where = [f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}"]
        told = [f"--job-name={name}", *([f"--comment={comment}"] if comment else [])]
        return self._started(self._submit(*size, *flags, *where, *told, deaf=deaf))

    def wait_job(self, num_nodes: int = 1, *, held: bool = False, switches: int = 0) -> str:
        asked = (["--hold"] if held else []) + ([f"--switches={switches}"] if switches else [])
        return self._submit(f"--nodes={num_nodes}", "--exclusive", *asked)

    def array(self) -> str:
        return self._array("1-4%2", 2)

    def full_array(self) -> str:
        return self._array("1-2", 2)

    def _array(self, tasks: str, running: int) -> str:
        array_id = self._submit(f"--array={tasks}", "--ntasks=1", "--mem=500", "--nodelist=node1")
        self.wait(f"{running} tasks of {array_id} run", lambda: len(self._running(array_id)) == running)
        # Their scripts may begin a moment later.
        self.wait(f"the tasks of {array_id} have started", lambda: all(map(self._begun, self._running(array_id))))
        return array_id

    def _running(self, job_id: str) -> list[str]:
        """Ids of the job, or of its tasks or components, that are RUNNING."""
        return self.cluster.run("squeue", "-h", f"--jobs={job_id}", "--states=RUNNING", "-o", "%A").stdout.split()

    def het(self) -> str:
        common = "--output=/dev/null --time=60 --exclusive"
        script = f"#!/bin/sh\n#SBATCH {common} -N1\n#SBATCH hetjob\n#SBATCH {common} -N2\nexec sleep 600\n"
        first = self.cluster.sbatch(script, user=self.user)
        # Only the backfill scheduler starts heterogeneous jobs; by default it runs every 30 s.
        self.wait(f"both components of {first} run", lambda: len(self._running(first)) == 2, 90)
        return first

    def configuring(self) -> str:
        job_id = self._submit("--ntasks=1", f"--job-name={SLOW_START}")
        self.wait(f"job {job_id} has nodes", lambda: self._state(job_id) is not JobState.PENDING)
        return job_id

    def configured(self, job_id: str) -> None:
        assert self.prolog is not None
        self.prolog.with_name(job_id).touch()

    def _state(self, job_id: str) -> JobState | None:
        job = self.backend.job(job_id)
        return job.state if job else None

    def let_go(self, job_id: str) -> None:
        self.finish(job_id)

    def finish(self, job_id: str) -> None:
        (self.cluster.work / f"finish.{job_id}").touch()

    def heard(self, job_id: str) -> bool:
        return (self.cluster.work / f"heard.{job_id}").exists()

    def drain_as_somebody_else(self, node: str, reason: str) -> None:
        self.cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def _update(self, job_id: str, asked: Mapping[str, Any], *, check: bool = True) -> bool:
        words: dict[str, Callable[[Any], str]] = {
            "begin_s": lambda s: f"StartTime=now+{s}",
            "deadline_s": lambda s: f"Deadline=now+{s}",
            "nodes": lambda count: f"NumNodes={count}",
            "limit_s": lambda s: f"TimeLimit={s // 60}",
        }
        told = [words[n](v) if n in words else f"{n.capitalize()}={v}" for n, v in asked.items()]
        return self.cluster.run("scontrol", "update", f"JobId={job_id}", *told, check=check).returncode == 0

    def update_job(self, job_id: str, **asked: Any) -> None:
        self._update(job_id, asked)

    def refuses(self, job_id: str, *, nodes: int) -> bool:
        return not self._update(job_id, {"nodes": nodes}, check=False)

    def hold(self, job_id: str) -> None:
        self.cluster.run("scontrol", "hold", job_id, user=self.user)

    def release(self, job_id: str) -> None:
        self.cluster.run("scontrol", "release", job_id)

    def _shown(self, job_id: str) -> dict[str, str]:
        told = self.cluster.run("scontrol", "-o", "show", "job", job_id).stdout
        return dict(word.partition("=")[::2] for word in told.split())

    def nice(self, job_id: str) -> int:
        return int(self._shown(job_id)["Nice"])

    def end(self, job_id: str) -> datetime:
        return datetime.fromisoformat(self._shown(job_id)["EndTime"]).astimezone(UTC)

    def update_partition(self, name: str, state: str) -> None:
        self.cluster.run("scontrol", "update", f"PartitionName={name}", f"State={state}")

    def wait(self, what: str, predicate: Callable[[], bool], timeout_s: float = 30) -> None:
        end = time.monotonic() + timeout_s * SLACK
        while not predicate():
            assert time.monotonic() < end, f"not within {timeout_s * SLACK:g} s: {what}"
            time.sleep(0.1)


@pytest.fixture(scope="session")
def slow_prolog() -> Iterator[Path]:
    """A PrologSlurmctld: a job is CONFIGURING until the prolog's folder has a file of its id. Slurm's user runs it.

    So it does not lie in a folder of pytest's: those are for root alone, and each run of pytest makes them so again.
    """
    folder = Path(tempfile.mkdtemp(prefix="clearway-prolog-"))
    path = folder / "prolog"
    path.write_text(
        f'#!/bin/sh\n[ "$SLURM_JOB_NAME" = {SLOW_START} ] || exit 0\n'
        f"until [ -e {folder}/$SLURM_JOB_ID ] || ! [ -d {folder} ]; do sleep 0.2; done\n"
    )
    for each in (folder, path):
        each.chmod(0o755)
    yield path
    shutil.rmtree(folder)


@pytest.fixture
def site(cluster: SlurmCluster) -> Iterator[RealSite]:
    backend = make_backend(cluster)
    yield RealSite(cluster, backend)
    backend.close()


class TestRealBackend(BackendConformance):
    """Every check of the contract; those that need other settings have a cluster of their own."""

    @pytest.fixture
    def site(self, request: pytest.FixtureRequest) -> Iterator[RealSite]:
        if not any(word in request.node.name for word in ("configuring", "heterogeneous", "completing")):
            yield request.getfixturevalue("site")
            return
        prolog = request.getfixturevalue("slow_prolog")
        settings = [f"PrologSlurmctld={prolog}", "SchedulerParameters=bf_interval=1"]
        # A job that is on its way out stays there until its test lets it go, however long that takes to look.
        with SlurmCluster(extra_conf=settings, kill_wait_s=300) as cluster:
            backend = make_backend(cluster)
            yield RealSite(cluster, backend, prolog)
            backend.close()

    @pytest.mark.fault(
        "Compaction sent jobs to nodes that they exclude, and they stood still until the patience was over.",
        found_by="real cluster",
    )
    def test_excluded_nodes_of_a_running_job(self, site: RealSite) -> None:
        """A job that is moved must not be sent where it asked not to be."""
        job_id = site._started(site._submit("--ntasks=1", "--mem=500", "--exclude=node[3-4]"))
        assert site.backend.snapshot().job_by_id[job_id].excluded_nodes == ("node3", "node4")

    @pytest.mark.parametrize("task", [False, True])
    @pytest.mark.fault(
        "A job that ended between the look and the requeue was run a second time by Slurm.", found_by="real cluster"
    )
    def test_a_job_that_ends_between_look_and_requeue_is_not_run_again(
        self, site: RealSite, monkeypatch: pytest.MonkeyPatch, *, task: bool
    ) -> None:
        """Slurm's plain requeue ran it a second time."""
        job_id = site.full_array() if task else site.run_job("node1")
        job, look_first = look(site, job_id), site.backend._look_all  # type: ignore[attr-defined]

        def look_and_end(job_ids: Sequence[str]) -> object:
            found = look_first(job_ids)
            site.finish(job_id)
            site.wait(f"job {job_id} has ended", lambda: look_first((job_id,))[0][job_id][0].state is JobState.ENDED)
            return found

        monkeypatch.setattr(site.backend, "_look_all", look_and_end)
        site.backend.requeue(job)
        monkeypatch.undo()
        after = look(site, job_id)
        assert (after.state, after.restart_count) == (JobState.ENDED, 0)

    @pytest.mark.fault(
        "One job with a time limit or a begin that Slurm cannot print kept Clearway from planning anything.",
        found_by="real cluster",
    )
    def test_times_and_limits_that_any_user_may_choose(self, site: RealSite) -> None:
        """One such job made the whole snapshot unreadable, so that nothing was planned."""
        endless = site._submit("--hold", "--time=1000000-0")
        late = site._submit("--begin=now+99999999hours")
        last = site._submit("--begin=9999-12-31T23:59:59")
        snapshot = site.backend.snapshot()
        assert not snapshot.skipped
        limit_s = snapshot.job_by_id[endless].time_limit_s
        assert limit_s is None or limit_s >= 1_000 * 86_400
        for job_id in (late, last):
            assert snapshot.job_by_id[job_id].eligible_time == LATEST
