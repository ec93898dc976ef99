"""A day of a real cluster in minutes, with evictions, beside what ``clearway simulate`` makes of its accounting."""

from __future__ import annotations

import json
import os
import random
import shutil
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clearway.cli import launcher
from clearway.cli.app import app
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_without_accounting
from tests.slurm.daemon import RunningDaemon, slurm_settings
from tests.slurm.machine import SLACK

pytestmark = [pytest.mark.full, pytest.mark.one_slurm]

NODES = 16
DAY_S = 220
SEED = 18
WHOLE = ("--exclusive", "--mem=0", "--requeue", "--output=/dev/null")

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
    saves_s: int | None = None  # None: it loses its work
    urgent: bool = False


def the_day() -> list[Submission]:
    rng = random.Random(SEED)
    day = [
        Submission(
            at_s=max(0.0, rng.uniform(-50, DAY_S)),
            nodes=rng.choice((1, 1, 1, 2, 2, 3, 4)),
            runs_s=rng.randrange(10, 45),
            saves_s=rng.choice((None, 10)),
        )
        for _ in range(60)
    ]
    day += [Submission(at_s, rng.choice((2, 3, 4)), 12, urgent=True) for at_s in range(20, DAY_S, 8)]
    return sorted(day, key=lambda each: each.at_s)


def config(folder: Path, cluster: SlurmCluster) -> str:
    return textwrap.dedent(f"""\
        [daemon]
        mode = "automatic"
        poll_interval = 1
        active_interval = 0.5
        [slurm]
        {textwrap.indent(slurm_settings(cluster.conf), " " * 8).strip()}
        [store]
        url = "sqlite:///{folder}/clearway.sqlite"
        [api]
        port = 0
        token_file = "{folder}/tokens"
        [[preemptors]]
        name = "urgent"
        partition = ["urgent"]
        max_delay = "60s"
        [candidates]
        min_runtime = 5
        [costs]
        checkpoint_overhead = 2
        [execution]
        kill_allowance = 6
        concurrent_checkpoints = 8
        [budget]
        user_evictions_per_hour = 1000
        user_jobs_per_hour = 1000
        """)


def submit(cluster: SlurmCluster, each: Submission) -> None:
    args = [*WHOLE, f"-N{each.nodes}", f"--time={each.runs_s // 60 + 2}"]
    if each.urgent:
        cluster.sbatch(f"sleep {each.runs_s}", "-p", "urgent", *args, user="cwalice")
    elif each.saves_s is None:
        cluster.sbatch(f"sleep {each.runs_s}", *args, user="cwbob")
    else:
        state = f'"{cluster.work}/state.$SLURM_JOB_ID"'
        run = f"{cluster.work}/clearway-run --app steps --checkpoint-file {state} --"
        script = f"#!/bin/bash\nexec {run} {cluster.work}/program.sh {each.runs_s} {each.saves_s} {state}\n"
        cluster.sbatch(script, *args, "--comment=clearway:took=10s", user="cwbob")


def live(cluster: SlurmCluster, day: list[Submission]) -> None:
    began = time.monotonic()
    for each in day:
        print(f"{time.monotonic() - began:.0f} s: {each}", flush=True)
        time.sleep(max(0.0, began + each.at_s - time.monotonic()))
        submit(cluster, each)
    cluster.wait_for(lambda: not cluster.run("squeue", "-h").stdout.strip(), 240 * SLACK, "all jobs to end")


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
        happened = daemon.get("/api/v1/report?since=1h").json()
    time.sleep(5)  # slurmdbd
    kept = tmp_path / "site"
    options = ("--config", str(daemon.config), "--save", str(kept), "-o", "json")
    result = CliRunner().invoke(app, ["simulate", "--from-sacct", "now-1hours", "now", *options])
    if keep := os.environ.get("CLEARWAY_KEEP_DAY"):
        shutil.copytree(kept, Path(keep) / "site", dirs_exist_ok=True)
        shutil.copytree(folder, Path(keep) / "daemon", dirs_exist_ok=True)
        (Path(keep) / "happened.json").write_text(json.dumps(happened))
        (Path(keep) / "result.json").write_text(result.stdout)
    assert result.exit_code == 0, result.stderr
