"""A mixed day of a site on ten shared nodes, with two daemons that are killed and stopped, watched from outside.

Users and administrators do at random what they may do; ``observer.py`` judges. CLEARWAY_MIXED_DAY_S is its length (five
minutes unless it says otherwise), CLEARWAY_MIXED_DAY_SEED draws one again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from clearway.model.clock import SystemClock
from clearway.model.requests import RequestKind
from tests.integration.store.servers import PostgresServer
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail, skip_without_accounting
from tests.slurm.daemon import RunningDaemon, config_text, install_programs, saver_script
from tests.slurm.machine import SLACK

pytestmark = [pytest.mark.full, pytest.mark.one_slurm, pytest.mark.timeout(9_000)]

DAY_S = float(os.environ.get("CLEARWAY_MIXED_DAY_S", "300"))
SEED = int(os.environ.get("CLEARWAY_MIXED_DAY_SEED", random.SystemRandom().randrange(10_000)))
GPUS = {f"node{at}": {"a100": 2} for at in range(1, 5)}
SETTINGS = ("Licenses=matlab:3", "SchedulerParameters=batch_sched_delay=0,bf_interval=5", "PriorityType=priority/basic")
NODES = 10
MOST_WAITING = 30  # batch jobs
DELAY_S = 60  # that urgent jobs may wait
SMALL = ("--mem=300",)
SHAPES: dict[str, tuple[str, ...]] = {
    "shared": ("-N1", "-n2", *SMALL),
    "one processor": ("-N1", "-n1", *SMALL),
    "a node": ("-N1", "--exclusive", *SMALL),
    "two nodes": ("-N2", "--exclusive", *SMALL),
    "a GPU": ("-N1", "-n1", "--gres=gpu:a100:1", *SMALL),
    "a license": ("-N1", "-n1", "-L", "matlab:1", *SMALL),
    "an array": ("-N1", "-n1", "--array=0-3%2", *SMALL),
    "three nodes": ("-N3", "--exclusive", *SMALL),
}
HET = """\
#!/bin/sh
#SBATCH -N1 -n2 --mem=300 {partition}
#SBATCH hetjob
#SBATCH -N1 -n1 --mem=300 {partition}
sleep {runs_s}
"""


class Day:
    """What users and administrators do, each act written down for the observer before it is done."""

    def __init__(self, cluster: SlurmCluster, daemons: list[RunningDaemon], acts: Path) -> None:
        self.cluster, self.daemons, self.acts = cluster, daemons, acts
        self.rng = random.Random(SEED)
        self.stopped: dict[int, float] = {}  # daemons by their place, and until when
        self.undo: list[tuple[float, Callable[[], None]]] = []  # what administrators take back, and when

    def note(self, what: str, job: str = "", *fields: str, **more: object) -> None:
        with self.acts.open("a") as acts:
            acts.write(json.dumps({"at": time.time(), "what": what, "job": job, "fields": fields} | more) + "\n")

    def scontrol(self, *arguments: str) -> None:
        """Slurm may refuse it: the job has just ended."""
        self.cluster.run("scontrol", *arguments, check=False)

    def jobs(self, states: str, user: str = "") -> list[str]:
        chosen = ["-u", user] if user else []
        return self.cluster.run("squeue", "-h", "-r", "-t", states, *chosen, "-o", "%A %u").stdout.splitlines()

    def a_job(self, states: str, user: str = "") -> str:
        found = self.jobs(states, user)
        return self.rng.choice(found).split()[0] if found else ""

    # -- users -----------------------------------------------------------------------------------------------------

    def submit_batch(self) -> None:
        if len(self.jobs("PENDING")) > MOST_WAITING:
            return
        rng, runs_s = self.rng, self.rng.randrange(30, 150)
        shape = rng.choice(list(SHAPES))
        options = ["--output=/dev/null", f"--time={rng.randrange(3, 8)}", "--requeue"]
        options += rng.choice(([], ["--nice=100"], ["--exclude=node10"], ["--comment=mine"]))
        if rng.random() < 0.1:
            self.cluster.sbatch(HET.format(partition="", runs_s=runs_s), *options, user="cwalice")
        elif rng.random() < 0.3:
            self.cluster.sbatch(saver_script(self.cluster, runs_s), *options, *SHAPES[shape], user="cwalice")
        elif rng.random() < 0.15:
            self.cluster.sbatch(f"sleep {runs_s}", *options, "--no-requeue", *SHAPES[shape], user="cwalice")
        else:
            self.cluster.sbatch(f"sleep {runs_s}", *options, *SHAPES[shape], user="cwalice")

    def submit_protected(self) -> None:
        if len(self.jobs("PENDING,RUNNING,SUSPENDED", "cwbob")) < 4:
            shape = SHAPES[self.rng.choice(("shared", "a node", "a GPU"))]
            options = ("--output=/dev/null", "--time=5", "--requeue", *shape)
            self.cluster.sbatch(f"sleep {self.rng.randrange(40, 120)}", *options, user="cwbob")

    def submit_urgent(self) -> None:
        if len(self.cluster.run("squeue", "-h", "-p", "urgent", "-t", "PENDING").stdout.splitlines()) > 4:
            return
        runs_s, shape = self.rng.randrange(8, 25), self.rng.choice(list(SHAPES))
        options = ("-p", "urgent", "--output=/dev/null", "--time=2")
        if self.rng.random() < 0.1:
            script, shape = HET.format(partition="-p urgent", runs_s=runs_s), "heterogeneous"
            job_id = self.cluster.sbatch(script, "--output=/dev/null", "--time=2", user="cwalice")
        else:
            job_id = self.cluster.sbatch(f"sleep {runs_s}", *options, *SHAPES[shape], user="cwalice")
        self.note("urgent", job_id, asks=shape)

    def change_a_job(self) -> None:
        """Its owner, or an administrator, by scontrol; most of all jobs that wait."""
        job_id = self.a_job(self.rng.choice(("PENDING", "PENDING", "RUNNING")))
        if not job_id:
            return
        after = (datetime.now().astimezone() + timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%S")
        setting, *fields = self.rng.choice((
            (f"StartTime={after}",),
            (f"TimeLimit={self.rng.randrange(3, 9)}",),
            ("Requeue=1", "Requeue"),
            (f"Nice={self.rng.choice((0, 50))}", "Nice", "Priority"),
            (f"Dependency=afterany:{self.a_job('RUNNING')}",),
            ("Comment=changed", "Comment"),
        ))  # fmt: skip
        self.note("change", job_id, *fields, setting=setting)
        self.scontrol("update", f"JobId={job_id}", setting)

    def hold_a_job(self) -> None:
        if job_id := self.a_job("PENDING"):
            self.note("hold", job_id, "Priority")
            self.scontrol("hold", job_id)
            self.later(15, lambda: self.scontrol("release", job_id))

    def cancel_a_job(self) -> None:
        if job_id := self.a_job("PENDING,RUNNING"):
            self.note("cancel", job_id)
            self.cluster.run("scancel", job_id, check=False)

    def requeue_a_job(self) -> None:
        if job_id := self.a_job("RUNNING", "cwalice"):
            self.note("requeue", job_id)
            self.scontrol("requeue", job_id)

    # -- administrators --------------------------------------------------------------------------------------------

    def stop_a_partition(self) -> None:
        name = self.rng.choice(("batch", "batch", "urgent"))
        self.note("partition", setting=name)
        self.scontrol("update", f"PartitionName={name}", "State=DOWN")
        self.later(10, lambda: self.scontrol("update", f"PartitionName={name}", "State=UP"))

    def drain_a_node_by_hand(self) -> None:
        name = f"NodeName=node{self.rng.randrange(1, NODES + 1)}"
        self.note("drained by hand", setting=name)
        self.scontrol("update", name, "State=DRAIN", "Reason=disk")
        self.later(15, lambda: self.scontrol("update", name, "State=RESUME"))

    def drain_a_node(self) -> None:
        name = f"node{self.rng.randrange(1, NODES + 1)}"
        self.note("drain", setting=name)
        self.ask("drains", nodes=name)
        self.later(30, lambda: self.ask("undrains", nodes=name))

    def promise_a_node(self) -> None:
        self.note("promise")
        at = datetime.now(tz=UTC) + timedelta(seconds=70)
        self.ask("promises", nodes=1, partition="batch", at=at.isoformat(), duration_s=60, users=["cwbob"])

    def compact(self) -> None:
        self.note("compact")
        self.ask("compactions")

    def ask(self, path: str, **body: object) -> None:
        """Over REST; a daemon that has just been killed does not answer."""
        awake = [daemon for at, daemon in enumerate(self.daemons) if at not in self.stopped]
        with_address = self.rng.choice(awake)
        try:
            answer = with_address.post(f"/api/v1/{path}", dict(body) or None)
        except httpx.HTTPError as error:
            print(f"{path}: {error}")
        else:
            print(f"{path} {body}: {answer.status_code}")

    # -- bad days of the daemons -----------------------------------------------------------------------------------

    def kill_a_daemon(self) -> None:
        at = self.rng.randrange(len(self.daemons))
        if at not in self.stopped:
            self.note("kill -9", setting=str(at))
            daemon = self.daemons[at]
            daemon.process.kill()
            daemon.process.wait()
            daemon.__enter__()

    def stop_a_daemon(self) -> None:
        at = self.rng.randrange(len(self.daemons))
        if not self.stopped:
            self.note("SIGSTOP", setting=str(at))
            self.stopped[at] = time.monotonic() + self.rng.choice((3, 10, 25))
            os.kill(self.daemons[at].process.pid, signal.SIGSTOP)

    def wake(self, *, all_of_them: bool = False) -> None:
        for at, until in list(self.stopped.items()):
            if all_of_them or time.monotonic() > until:
                os.kill(self.daemons[at].process.pid, signal.SIGCONT)
                del self.stopped[at]

    def resume_evictions(self) -> None:
        """An operator has looked: nodes that were lost, users who are left alone for a while."""
        store = self.daemons[0].store()
        try:
            store.add_request(RequestKind.RESUME, None, "olga", SystemClock().now())
        finally:
            store.close()

    # -- the day ---------------------------------------------------------------------------------------------------

    def later(self, seconds: float, undo: Callable[[], None]) -> None:
        self.undo.append((time.monotonic() + seconds, undo))

    def take_back(self, *, all_of_it: bool = False) -> None:
        due = [each for each in self.undo if all_of_it or time.monotonic() > each[0]]
        self.undo = [each for each in self.undo if each not in due]
        for _, undo in due:
            undo()

    def live(self) -> None:
        weights = {
            self.submit_batch: 60,
            self.submit_protected: 6,
            self.submit_urgent: 12,
            self.change_a_job: 12,
            self.hold_a_job: 3,
            self.cancel_a_job: 3,
            self.requeue_a_job: 2,
            self.stop_a_partition: 1,
            self.drain_a_node_by_hand: 2,
            self.drain_a_node: 2,
            self.promise_a_node: 1,
            self.compact: 1,
            self.kill_a_daemon: 1,
            self.stop_a_daemon: 2,
            self.resume_evictions: 3,
        }
        for _ in range(20):
            self.submit_batch()
        end = time.monotonic() + DAY_S
        while time.monotonic() < end:
            self.take_back()
            self.wake()
            self.rng.choices(list(weights), list(weights.values()))[0]()
            time.sleep(0.5)

    def settle(self) -> None:
        """All is well from here on: what waits may run, and what was begun comes to its end."""
        self.wake(all_of_them=True)
        self.take_back(all_of_it=True)
        self.resume_evictions()
        for job_id in {job.split()[0] for job in self.jobs("PENDING")}:
            self.note("freed", job_id)
            self.scontrol("update", f"JobId={job_id}", "Dependency=")
        self.give_time(self.urgent_jobs_are_through, 240)
        self.give_time(self.all_is_over, 240)

    def urgent_jobs_are_through(self) -> bool:
        self.resume_evictions()
        return not self.cluster.run("squeue", "-h", "-p", "urgent").stdout.strip()

    def all_is_over(self) -> bool:
        for name, reason in self.cluster.node_reasons().items():
            if reason.startswith("clearway drain"):  # while a drain is under way it is refused
                self.ask("undrains", nodes=name)
        open_ones = [e for e in self.daemons[0].evictions() if e.state.acting]
        return not open_ones and not self.cluster.node_reasons()

    def give_time(self, done: Callable[[], bool], seconds: float) -> None:
        """Where it was not enough the observer says what is wrong."""
        end = time.monotonic() + seconds
        while not done() and time.monotonic() < end:
            time.sleep(2)


@pytest.fixture
def mixed_cluster() -> Iterator[SlurmCluster]:
    skip_without_accounting()
    with SlurmCluster(nodes=NODES, accounting=True, gpus=GPUS, extra_conf=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def database_url() -> Iterator[str]:
    if reason := PostgresServer.missing():
        skip_or_fail(reason)
    with PostgresServer() as server:
        yield server.new_database()


def config(folder: Path, cluster: SlurmCluster, database_url: str) -> str:
    often = 'misuse_pause = "1s"\ncancelled_pause = "1s"\nuser_evictions_per_hour = 9999\nuser_jobs_per_hour = 9999'
    return config_text(
        folder,
        cluster.conf,
        DELAY_S,
        store=f'url = "{database_url}"',
        candidates='min_runtime = 1\nprotected_users = ["cwbob"]\nspare_before_end = "1s"\nallow_suspend = true',
        execution='kill_allowance = 12\nwatch_return = "60s"',
        budget=f"{often}\nloop_repeats = 99",
        drain='operators = ["tester"]',
        compaction="min_gain = 0.1",
        promises="spare = 25",
    )


@pytest.mark.debian12("they have no PostgreSQL")
def test_an_observer_from_outside_finds_nothing_wrong(
    mixed_cluster: SlurmCluster, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = mixed_cluster
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    print(f"CLEARWAY_MIXED_DAY_SEED={SEED}", flush=True)
    install_programs(cluster)
    acts, report = tmp_path / "acts", tmp_path / "report"
    acts.touch()
    with ExitStack() as stack:
        daemons = []
        for name in ("first", "second"):
            folder = tmp_path / name
            folder.mkdir()
            text = config(folder, cluster, database_url)
            daemons.append(stack.enter_context(RunningDaemon(cluster, folder, config=text)))
        day = Day(cluster, daemons, acts)
        stack.callback(lambda: day.wake(all_of_them=True))  # else they could not be ended
        told = (database_url, str(cluster.conf), str(acts), str(report))
        observer = subprocess.Popen([sys.executable, str(Path(__file__).with_name("observer.py")), *told])
        stack.callback(observer.kill)
        day.live()
        day.settle()
        day.note("over")
        assert observer.wait(120 * SLACK) == 0
    found = json.loads(report.read_text())
    print(json.dumps(found, indent=1), flush=True)
    assert found["looks"] > DAY_S / 10
    assert found["urgent"]["ran"]
    assert found["faults"] == [], f"CLEARWAY_MIXED_DAY_SEED={SEED}"
