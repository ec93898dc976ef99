"""slurmctld reads its configuration anew, is restarted, or is succeeded by a backup, between any two steps."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text, install_programs, saver_script
from tests.slurm.machine import missing_requirements
from tests.slurm.test_bad_days import stands_still
from tests.slurm.test_end_to_end import LOOP, WHOLE, no_leftovers, submit_urgent

pytestmark = pytest.mark.one_slurm


class TwoControllers(SlurmCluster):
    """A primary and a backup slurmctld: each sees a machine of its own name, as their names are told by that."""

    def _conf_lines(self) -> Iterator[str]:
        replaced = ("SlurmctldHost=", "SlurmctldPidFile=")
        yield from (line for line in super()._conf_lines() if not line.startswith(replaced))
        yield from ("SlurmctldHost=ctl1(127.0.0.1)", "SlurmctldHost=ctl2(127.0.0.2)", "SlurmctldTimeout=5")
        yield "CommunicationParameters=NoCtldInAddrAny"  # both have the same port
        yield f"SlurmctldPidFile={self.root}/pid/slurmctld.pid"  # else the second would end the first

    def start_controller(self, *, clean: bool = False) -> None:
        hosts, pid = self.root / "hosts", self.root / "pid"
        hosts.write_text(Path("/etc/hosts").read_text() + "127.0.0.1 ctl1\n127.0.0.2 ctl2\n")
        pid.mkdir(exist_ok=True)
        self._start_on("ctl1", "-c" if clean else "")
        self.wait_for(self._controller_answers, 60, "an answer of slurmctld")
        self._start_on("ctl2", "")
        self.wait_for(lambda: "ctl2 is UP" in self.run("scontrol", "ping").stdout, 60, "the backup")

    def _start_on(self, host: str, option: str) -> None:
        user = "setpriv --pdeathsig=KILL --reuid=slurm --regid=slurm --init-groups"
        pid = f"{self.root}/pid"
        mounts = f"mount --bind {self.root}/hosts /etc/hosts && mount -t tmpfs none {pid} && chown slurm {pid}"
        program = f"hostname {host} && {mounts} && exec {user} slurmctld -D {option}"
        name = "slurmctld" if host == "ctl1" else "backup"
        self._spawn(name, "unshare", "--uts", "--mount", "sh", "-c", program)


def preempt_with(cluster: SlurmCluster, folder: Path, harm: Callable[[int], None]) -> None:
    """An eviction of two jobs, one of which saves itself; ``harm`` is done before each step, by its number.

    Just the two leave, once each, and come back; nothing of Clearway's stays.
    """
    install_programs(cluster)
    limits = ("--requeue", "--output=/dev/null", "--time=60", *WHOLE)
    saver = cluster.sbatch(saver_script(cluster, 300), *limits, user="cwalice")
    jobs = [saver, *(cluster.sbatch(LOOP, *limits, user="cwalice") for _ in cluster.node_names[1:])]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    cluster.wait_for(lambda: "checkpoint=signal" in cluster.job(saver).get("Comment", ""), 30, "the saver's claim")
    text = config_text(folder, cluster.conf, 600)
    with RunningDaemon(cluster, folder, config=text, kill_at="stop:change") as daemon:
        daemon.wait_ready()
        urgent, _ = submit_urgent(cluster, 2)
        steps = 0

        def over() -> bool:
            nonlocal steps
            if stands_still(daemon.process.pid):
                steps += 1
                harm(steps)
                os.kill(daemon.process.pid, signal.SIGCONT)
                return False
            found = daemon.evictions()
            if found and found[0].started_at:
                (cluster.work / f"let-go.{urgent}").touch()
            return bool(found) and found[0].state.terminal

        try:
            daemon.wait_for(over, 300, "the end of the eviction")
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        (eviction,) = daemon.evictions()
        assert eviction.state.value == "completed", (eviction.state, eviction.outcome)
        gone = {p.job_id for p in eviction.preemptions if p.requeued_at is not None}
        assert len(gone) == 2
        assert saver in gone
        for job_id in jobs:
            assert cluster.job(job_id)["Restarts"] == str(int(job_id in gone))
        assert steps >= 8
        no_leftovers(cluster)


def test_slurm_reads_its_configuration_anew_before_each_step(cluster: SlurmCluster, tmp_path: Path) -> None:
    def reconfigure(_: int) -> None:
        cluster.run("scontrol", "reconfigure")

    preempt_with(cluster, tmp_path / "daemon", reconfigure)


@pytest.mark.full
def test_slurmctld_is_restarted_before_each_step(cluster: SlurmCluster, tmp_path: Path) -> None:
    def restart(_: int) -> None:
        cluster.stop_controller()
        cluster.start_controller()

    preempt_with(cluster, tmp_path / "daemon", restart)


@pytest.fixture
def two_controllers(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoControllers]:
    if reason := missing_requirements():
        skip_or_fail(reason)
    with TwoControllers(nodes=3) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        yield cluster


def test_a_backup_controller_takes_over_in_the_middle(two_controllers: TwoControllers, tmp_path: Path) -> None:
    cluster = two_controllers

    def take_over(step: int) -> None:
        if step == 4:  # once a job has been asked to save itself or has left
            cluster.run("scontrol", "takeover")
            cluster.wait_for(lambda: "ctl1 is DOWN" in cluster.run("scontrol", "ping").stdout, 60, "the takeover")

    preempt_with(cluster, tmp_path / "daemon", take_over)
