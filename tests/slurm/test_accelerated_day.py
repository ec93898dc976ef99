"""A day of a real cluster in half an hour, beside what ``clearway lab simulate`` makes of its accounting.

With ``CLEARWAY_KEEP_DAY`` its record and its daemon's database stay in that folder, and ``CLEARWAY_DAY_SEED`` draws
another one. ``tests/simulation/slower_day`` is the ``site`` of such a run.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from typer.testing import CliRunner

from clearway.cli import launcher
from clearway.cli.app import app
from clearway.config.configuration import load_config
from tests.simulation.day_cases import NEAR, PACE, check, day_cases, rules
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_without_accounting
from tests.slurm.daemon import RunningDaemon, slurm_settings

pytestmark = [pytest.mark.full, pytest.mark.one_slurm, pytest.mark.timeout(3_600)]

NODES = 48
DAY_S = 1_180
SEED = int(os.environ.get("CLEARWAY_DAY_SEED", "20"))
WHOLE = ("--exclusive", "--mem=0", "--requeue", "--output=/dev/null")
SAVES_S = {"mesh": 40, "flow": 60, "grid": 80}  # how long each application takes to save itself
DELAY_S = 150  # that urgent jobs may wait
HASTE_S = 25  # that some urgent jobs may wait: too short for any of them to save itself

# Computes for a time, in seconds, and goes on from its file; on USR1 it takes a while to save itself.
PROGRAM = """\
#!/bin/bash
left=$1 saves=$2 state=$3
[ -e "$state" ] && left=$(cat "$state")
trap 'save=1' USR1
while [ "$left" -gt 0 ]; do
    began=$SECONDS save=
    sleep "$left" & wait $!
    left=$((left - (SECONDS - began)))
    if [ -n "$save" ]; then
        sleep "$saves"
        echo "$left" > "$state.new" && mv "$state.new" "$state"
    fi
done
"""


@dataclass(frozen=True)
class Submission:
    at_s: float
    nodes: int
    runs_s: int
    app: str = ""  # of ``SAVES_S``; empty: it loses its work
    urgent: bool = False
    hasty: bool = False


def the_day() -> list[Submission]:
    """More than the nodes can do until its end, so that an urgent job hardly ever finds nodes that are free."""
    rng = random.Random(SEED)
    day = [
        Submission(
            at_s=max(0.0, rng.uniform(-400, DAY_S - 110)),
            nodes=rng.choice((1, 1, 2, 2, 3, 4)),
            runs_s=rng.randrange(220, 420),
            app=rng.choice(("", "", "", *SAVES_S)),
        )
        for _ in range(78)
    ]
    times = range(40, DAY_S, 46)
    day += [Submission(at, rng.choice((3, 4, 6, 8)), 60, urgent=True, hasty=n % 4 == 3) for n, at in enumerate(times)]
    return sorted(day, key=lambda each: each.at_s)


def config(folder: Path, cluster: SlurmCluster) -> str:
    api = f'port = 0\ntoken_file = "{folder}/tokens"'
    store = f'url = "sqlite:///{folder}/clearway.sqlite"'
    return f"[daemon]\n{PACE}[slurm]\n{slurm_settings(cluster.conf)}\n[store]\n{store}\n[api]\n{api}\n{rules(DELAY_S)}"


def submit(cluster: SlurmCluster, each: Submission) -> None:
    args = [*WHOLE, f"-N{each.nodes}", f"--time={each.runs_s // 60 + 5}"]
    if each.urgent:
        haste = [f"--comment=clearway:max_delay={HASTE_S}s"] if each.hasty else []
        cluster.sbatch(f"sleep {each.runs_s}", "-p", "urgent", *args, *haste, user="cwalice")
    elif not each.app:
        cluster.sbatch(f"sleep {each.runs_s}", *args, user="cwbob")
    else:
        saves_s, state = SAVES_S[each.app], f'"{cluster.work}/state.$SLURM_JOB_ID"'
        run = f"{cluster.work}/clearway-run --app {each.app} --checkpoint-file {state} --"
        script = f"#!/bin/bash\nexec {run} {cluster.work}/program.sh {each.runs_s} {saves_s} {state}\n"
        cluster.sbatch(script, *args, f"--comment=clearway:took={saves_s}s", user="cwbob")


def live(cluster: SlurmCluster, day: list[Submission]) -> None:
    began = time.monotonic()
    for each in day:
        print(f"{time.monotonic() - began:.0f} s: {each}", flush=True)
        time.sleep(max(0.0, began + each.at_s - time.monotonic()))
        submit(cluster, each)
    cluster.wait_for(lambda: not cluster.run("squeue", "-h").stdout.strip(), 700, "all jobs to end")


def told_to_run(cluster: SlurmCluster) -> set[str]:
    """States of jobs that slurmdbd does not know the end of."""
    states = cluster.run("sacct", "-aXn", "--starttime=now-1hours", "-o", "State").stdout
    return {"RUNNING", "PENDING"} & set(states.split())


@pytest.fixture
def day_cluster() -> Any:
    skip_without_accounting()
    settings = ("AccountingStoreFlags=job_comment", "SchedulerParameters=batch_sched_delay=0,bf_interval=2")
    with SlurmCluster(nodes=NODES, accounting=True, extra_conf=settings) as cluster:
        yield cluster


def test_the_replay_of_a_day_is_as_the_day_was(day_cluster: SlurmCluster, tmp_path: Path) -> None:
    cluster = day_cluster
    launcher.install(cluster.work)
    program = cluster.work / "program.sh"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    folder = tmp_path / "daemon"
    folder.mkdir()
    with RunningDaemon(cluster, folder, config=config(folder, cluster)) as daemon:
        live(cluster, the_day())
        cluster.wait_for(lambda: not told_to_run(cluster), 60, "slurmdbd to know of all ends")
    kept = tmp_path / "site"
    options = ("--config", str(daemon.config), "--save", str(kept), "-o", "json")
    result = CliRunner().invoke(app, ["lab", "simulate", "--from-sacct", "now-1hours", "now", *options])
    if keep := os.environ.get("CLEARWAY_KEEP_DAY"):
        shutil.copytree(tmp_path, keep, dirs_exist_ok=True)
    assert result.exit_code == 0, result.stderr
    gone = [p for e in daemon.evictions() for p in e.preemptions]
    exits = [(p.vacated_at - p.requeued_at).total_seconds() for p in gone if p.vacated_at and p.requeued_at]
    cases = day_cases(kept, load_config(daemon.config), median(exits))
    for case in cases:
        print(case)
    assert len(cases) == sum(each.urgent for each in the_day())
    # What sacct tells of lost work is what the daemon measured.
    measured = sum(p.actual_lost_node_s or 0.0 for p in gone)
    assert sum(case.happened.lost_node_s for case in cases) == pytest.approx(measured, rel=NEAR)
    # Of 25 cases chance decides some, and more where other tests keep the machine busy. What the replay must reach is
    # asserted of the recorded days (tests/simulation/test_recorded_day.py).
    check(cases, waits=0.2, losses=0.3, right_waits=0.8, right_losses=0.8)
