"""Chains of walltime requests on a real Slurm, as an ordinary user and without a daemon.

Slurm lets a requeued job wait two minutes; the tests lift that, so as not to wait too.
"""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clearway.cli import launcher
from clearway.cli.app import app
from clearway.walltime.chain import ChainState, Stage, first_state, limit_minutes, parse_state, plan_text
from clearway.walltime.request_sequence import Costs, Milestone, requests
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.machine import missing_requirements
from tests.slurm.test_service_user import SERVICE_USER, as_service_user

pytestmark = pytest.mark.one_slurm

STEPPER = Path(__file__).with_name("stepper.py")


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[SlurmCluster]:
    """Where a job that is requeued has Slurm's usual time to say which request comes next, also on a busy machine."""
    if reason := missing_requirements():
        skip_or_fail(reason)
    with SlurmCluster(nodes=2, kill_wait_s=30) as patient_cluster:
        yield patient_cluster


def install_programs(cluster: SlurmCluster) -> tuple[Path, str]:
    """The launcher, and how to start the stepper, where every user and node can read them."""
    launcher.install(cluster.work)
    stepper = cluster.work / "saves_itself.py"
    stepper.write_text(STEPPER.read_text())
    return cluster.work / "clearway-run", f"/usr/bin/python3 {stepper}"


class Chain:
    """One chain: its folder, its job, and the stepper's file."""

    def __init__(self, cluster: SlurmCluster, milestones: list[tuple[float, bool]], costs: Costs) -> None:
        self.cluster = cluster
        self.sequence = requests([Milestone(*each) for each in milestones], costs)
        self.folder = cluster.work / f"chain-{os.urandom(4).hex()}"
        self.folder.mkdir()
        (self.folder / "plan").write_text(plan_text(self.sequence))
        (self.folder / "state").write_text(first_state(self.sequence, costs))
        for path in (self.folder, self.folder / "plan", self.folder / "state"):
            os.chown(path, pwd.getpwnam("cwalice").pw_uid, -1)
        self.file = self.folder / "saved"
        self.launcher, self.stepper = install_programs(cluster)
        self.job = ""

    def start(self, *, checkpoint_s: float = 0.5, status: int = 0, before: str = ":", requeue: str = "requeue") -> None:
        """Its program works until it is told that it is ``enough``."""
        program = f"{self.stepper} {self.file} inf {checkpoint_s} 0.5 {status}"
        begin = f"date +%s.%N >>{self.folder}/runs\n{before}\n"
        run = f"{begin}exec {self.launcher} --checkpoint-file {self.file} -- {program}"
        options = ["-n1", f"--{requeue}", "--open-mode=append", f"--time={limit_minutes(self.sequence[0].request_s)}"]
        export = f"--export=ALL,CLEARWAY_CHAIN={self.folder}"
        self.job = self.cluster.sbatch(run, *options, export, user="cwalice")

    @property
    def state(self) -> ChainState:
        return parse_state((self.folder / "state").read_text())

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def _said(self) -> list[tuple[str, float]]:
        log = Path(f"{self.file}.log")
        lines = log.read_text().splitlines() if log.exists() else []
        return [(text, float(at)) for text, at in (line.split(" @") for line in lines)]

    @property
    def did(self) -> list[str]:
        """What the program says it did."""
        return [text for text, _ in self._said()]

    @property
    def late_s(self) -> float:
        """What the start of launcher and program took in the run that was saved first."""
        began = next(at for (_, at), (text, _) in pairwise(self._said()) if text.startswith("saved "))
        runs = map(float, (self.folder / "runs").read_text().split())
        return began - max(at for at in runs if at <= began)

    def enough(self) -> None:
        """Let the program end."""
        Path(f"{self.file}.enough").touch()

    def wait_request(self, number: int) -> None:
        self.wait(lambda: (state := self.state).request == number and state.stage is Stage.RUNNING)

    def wait(self, done: Callable[[], Any], timeout: float = 60) -> None:
        def look() -> Any:
            self.cluster.lift_waits()
            return done()

        self.cluster.wait_for(look, timeout, f"{done}; {self.state}")

    def wait_over(self) -> str:
        """Until the job has left; its exit code as Slurm writes it."""
        self.wait(lambda: self.state.stage.over)
        self.cluster.wait_state(self.job, "COMPLETED", "FAILED", "CANCELLED")
        return self.cluster.job(self.job)["ExitCode"]


def test_one_request_after_the_other_until_the_program_ends(cluster: SlurmCluster) -> None:
    """The first request is lost, the second ends in a checkpoint, the third is long enough."""
    chain = Chain(cluster, [(6, False), (12, True), (100, False)], Costs(1, 1))
    chain.start(status=7)
    chain.wait_request(3)
    chain.enough()
    code = chain.wait_over()

    assert code == "7:0", "the program's own"
    assert (chain.state.stage, chain.state.code, chain.state.request) == (Stage.ENDED, 7, 3)
    *lost, again, saved, restarted, done = chain.did
    assert lost in ([], ["from 0.00"]), "on a busy machine the first request may end before its program begins"
    assert (again, done) == ("from 0.00", "done")
    assert saved.removeprefix("saved ") == restarted.removeprefix("from ")
    saved_s = float(saved.removeprefix("saved "))
    assert chain.state.saved_s >= 12 - chain.late_s, "at the milestone, but for what the start of a program takes"
    assert saved_s >= chain.state.saved_s - chain.late_s
    assert cluster.job(chain.job)["Restarts"] == "2"
    # The last: 1 s to restart, the work up to 100 s that is not saved, no checkpoint; and Slurm's limit behind it.
    assert chain.state.asked_s == pytest.approx(101 - chain.state.saved_s, abs=0.02)
    assert cluster.job(chain.job)["TimeLimit"] == f"00:{limit_minutes(chain.state.asked_s):02d}:00"


def test_accounting_lets_an_ordinary_user_have_the_next_limit_too(
    accounting_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = accounting_cluster
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    cluster.reset()
    chain = Chain(cluster, [(8, True), (200, False)], Costs(1, 1))
    chain.start()
    chain.wait_request(2)
    chain.enough()
    assert chain.wait_over() == "0:0"
    assert cluster.job(chain.job)["TimeLimit"] == f"00:{limit_minutes(chain.state.asked_s):02d}:00"
    assert chain.did[0] == "from 0.00"
    assert float(chain.did[2].removeprefix("from ")) >= 8 - 2 * chain.late_s > 0
    cluster.reset()


@pytest.mark.full
def test_a_slow_checkpoint_makes_the_next_requests_longer(cluster: SlurmCluster) -> None:
    chain = Chain(cluster, [(8, True), (14, True), (60, False)], Costs(1, 1))
    chain.start(checkpoint_s=3)
    chain.wait_request(3)
    chain.enough()
    assert chain.wait_over() == "0:0"
    saves = [line for line in chain.log.splitlines() if " saved " in line]
    assert len(saves) == 2
    (asked,) = [line for line in chain.log.splitlines() if "requeued request=2 " in line]
    first_saved_s = int(saves[0].split("work_cs=")[1].split()[0]) / 100
    asked_s = int(asked.split("asked_cs=")[1].split()[0]) / 100
    assert asked_s >= 1 + 14 - first_saved_s + 3, "restart, work, and the three seconds that it takes"
    assert [line for line in chain.did if line == "from 0.00"] == ["from 0.00"]


@pytest.mark.full
def test_a_program_that_outlasts_the_plan_stops_the_chain(cluster: SlurmCluster) -> None:
    chain = Chain(cluster, [(7, False), (8, False)], Costs(1, 1))
    chain.start()
    assert chain.wait_over() == "124:0"
    assert chain.state.stage is Stage.STOPPED
    assert "longer than the longest time" in chain.state.reason
    assert cluster.job(chain.job)["Restarts"] == "1"

    cluster.run("scontrol", "requeue", chain.job)  # somebody runs it again: it is over
    chain.wait(lambda: cluster.state(chain.job) == "FAILED")
    assert cluster.job(chain.job)["Restarts"] == "2"
    # On a busy machine a request may end before its program begins.
    assert chain.did in (["from 0.00"], ["from 0.00"] * 2)


def test_where_slurm_refuses_to_requeue_the_program_goes_on(cluster: SlurmCluster) -> None:
    chain = Chain(cluster, [(8, True), (60, False)], Costs(1, 1))
    chain.start(status=3, requeue="no-requeue")
    chain.wait(lambda: chain.state.stage is Stage.STOPPED)
    chain.enough()
    assert chain.wait_over() == "3:0"
    assert "does not requeue" in chain.state.reason
    assert chain.did[-1] == "done"
    assert cluster.job(chain.job)["Restarts"] == "0"


def test_a_limit_that_slurm_refuses_stops_the_chain(cluster: SlurmCluster) -> None:
    tools = cluster.work / f"bin-{os.urandom(4).hex()}"
    tools.mkdir()
    refusal = 'case "$*" in *TimeLimit*) echo "Requested time limit is invalid" >&2; exit 1 ;; esac'
    (tools / "scontrol").write_text(f'#!/bin/sh\n{refusal}\nexec /usr/bin/scontrol "$@"\n')
    (tools / "scontrol").chmod(0o755)
    chain = Chain(cluster, [(8, True), (60, False)], Costs(1, 1))
    chain.start(before=f"export PATH={tools}:$PATH")
    chain.wait(lambda: chain.state.stage is Stage.STOPPED)
    assert "refuses a time limit of 2 minutes: Requested time limit is invalid" in chain.state.reason
    cluster.wait_state(chain.job, "CANCELLED")


def test_a_requeue_from_outside_repeats_the_request(cluster: SlurmCluster) -> None:
    """Clearway, an administrator or a broken node: the plan does not move on."""
    chain = Chain(cluster, [(200, False)], Costs(1, 1))
    chain.start()
    chain.wait(lambda: chain.did == ["from 0.00"])
    cluster.run("scontrol", "requeue", chain.job)
    assert cluster.job(chain.job)["Restarts"] == "1"
    chain.wait(lambda: chain.did == ["from 0.00"] * 2)
    chain.enough()
    assert chain.wait_over() == "0:0"
    assert "interrupted by TERM" in chain.log
    assert (chain.state.stage, chain.state.request, chain.did) == (Stage.ENDED, 1, ["from 0.00", "from 0.00", "done"])


def test_an_eviction_in_between_loses_nothing(cluster: SlurmCluster) -> None:
    """What Clearway does: ask by a signal, wait for the answer in the Comment, requeue."""
    chain = Chain(cluster, [(200, False)], Costs(1, 0.5))
    chain.start()
    chain.wait(lambda: chain.did == ["from 0.00"])  # the program is ready for a signal
    chain.wait(lambda: "checkpoint=signal" in cluster.job(chain.job).get("Comment", ""))
    cluster.run("scancel", "--batch", "--signal=USR1", chain.job)
    chain.wait(lambda: "state=saved" in cluster.job(chain.job).get("Comment", ""))
    cluster.run("scontrol", "requeue", chain.job)
    assert cluster.job(chain.job)["Restarts"] == "1"
    chain.wait(lambda: len(chain.did) == 3)  # it has begun again: the first run might end just as well
    chain.enough()
    assert chain.wait_over() == "0:0"
    assert len(chain.did) == 4, chain.did
    _, saved, restarted, done = chain.did
    assert (restarted.removeprefix("from "), done) == (saved.removeprefix("saved "), "done")
    assert (chain.state.stage, chain.state.request) == (Stage.ENDED, 1)
    assert 0 < chain.state.saved_s <= float(saved.removeprefix("saved ")) + chain.late_s


def test_a_user_follows_the_guide(cluster: SlurmCluster) -> None:
    """submit, status, and the end, with the commands alone."""
    home = cluster.work / "home"
    home.mkdir()
    os.chown(home, pwd.getpwnam(SERVICE_USER).pw_uid, -1)
    (home / "times.txt").write_text("# seconds\n" + "20\n" * 12 + "100\n" * 8)
    script = home / "fit.sh"
    run, stepper = install_programs(cluster)
    program = f"{stepper} {home}/state inf 0.5 0.5 0"
    script.write_text(f"#!/bin/sh\n#SBATCH -n1\nexec {run} --checkpoint-file {home}/state -- {program}\n")
    chains = ["--chains", str(home / "chains")]

    def clearway(*arguments: str) -> tuple[int, str, str]:
        return as_service_user(lambda: _run(arguments))  # type: ignore[no-any-return]

    plan = ["--distribution", f"samples:{home}/times.txt", "--unit", "s", "--checkpoint-s", "1", "--restart-s", "1"]
    refused = clearway("walltime", "submit", *plan, *chains, "--", "--time=10", str(script))
    assert refused[0] == 2
    assert "--time=10: a chain sets its own time limits" in refused[2]
    assert clearway("walltime", "status", *chains)[1].startswith("no chains in")

    code, said, errors = clearway("walltime", "submit", *plan, *chains, "--", f"--chdir={home}", str(script))
    assert (code, errors) == (0, "")
    job = said.split()[1].rstrip(":")
    assert "the first of 2 requests, 21s; chain fit-" in said

    def listed() -> dict[str, Any]:
        (row,) = json.loads(clearway("walltime", "status", *chains, "-o", "json")[1])
        return row  # type: ignore[no-any-return]

    row = cluster.wait_for(lambda: (seen := listed())["state"] == "running" and seen, 30, "the first request")
    assert (row["job_id"], row["request"], row["requests"], row["asked_s"]) == (job, 1, 2, 21.0)
    cluster.wait_for(lambda: (seen := listed())["state"].startswith("waiting") and seen["request"] == 2, 30)
    assert listed()["saved_s"] > 0
    (home / "state.enough").touch()
    cluster.wait_for(lambda: cluster.lift_waits() or listed()["state"] == "done", 30)
    table = clearway("walltime", "status", *chains)[1]
    assert "2 of 2" in table
    assert clearway("walltime", "status", *chains, "--forget")[1].startswith("no chains in")

    unknown = clearway("walltime", "submit", *plan, *chains, "--", "--partition=nowhere", str(script))
    assert unknown[0] == 1
    assert list((home / "chains").iterdir()) == [], "nothing is left of a chain that Slurm did not take"


def _run(arguments: tuple[str, ...]) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    sys.stdout.flush()
    return result.exit_code, result.stdout, result.stderr
