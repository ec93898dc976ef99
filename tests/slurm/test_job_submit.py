"""The example job submit script in a real slurmctld."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, missing_requirements, slurm_version

SCRIPT = Path(__file__).parents[2] / "plugins" / "slurm" / "job_submit.lua"
PLUGIN = "job_submit_lua.so"


@contextmanager
def cluster_with(script: str) -> Iterator[SlurmCluster]:
    """A cluster with this job_submit.lua, in which @WORK@ stands for a folder that all can read."""
    reason = missing_requirements()
    if reason:
        pytest.skip(f"no Slurm here: {reason}")
    if not list(Path("/usr/lib").glob(f"*/slurm-wlm/{PLUGIN}")):
        pytest.skip(f"this Slurm {slurm_version()} comes without {PLUGIN}")
    with SlurmCluster(nodes=1) as cluster:
        cluster.stop_controller()
        (cluster.root / "job_submit.lua").write_text(script.replace("@WORK@", str(cluster.work)))
        with cluster.conf.open("a") as conf:
            conf.write("JobSubmitPlugins=lua\n")
        cluster.start_controller()
        yield cluster


@pytest.fixture(scope="module")
def lua_cluster() -> Iterator[SlurmCluster]:
    with cluster_with(SCRIPT.read_text()) as cluster:
        yield cluster


def comment(cluster: SlurmCluster, job_id: str) -> str:
    """As squeue prints it: in a scontrol record a Comment with an = and a blank cannot be told from other keys."""
    return cluster.run("squeue", "-h", "-o", "%k", "-j", job_id).stdout.strip()


def refusal(cluster: SlurmCluster, *args: str) -> str:
    done = cluster.run("sbatch", "--parsable", *args, user="cwalice", check=False, stdin="#!/bin/sh\nsleep 60\n")
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_an_urgent_job_gets_a_max_delay(lua_cluster: SlurmCluster) -> None:
    job_id = lua_cluster.sbatch("sleep 60", "-n1", "-p", "urgent", "--comment=my run", user="cwalice")
    assert comment(lua_cluster, job_id) == "my run clearway:max_delay=10m"
    own = lua_cluster.sbatch("sleep 60", "-n1", "-p", "urgent", "--comment=clearway:max_delay=60", user="cwalice")
    assert comment(lua_cluster, own) == "clearway:max_delay=60"


def test_an_ordinary_job_is_left_alone(lua_cluster: SlurmCluster) -> None:
    job_id = lua_cluster.sbatch("sleep 60", "-n1", "--comment=clearway:checkpoint=signal", user="cwalice")
    assert comment(lua_cluster, job_id) == "clearway:checkpoint=signal"
    assert comment(lua_cluster, lua_cluster.sbatch("sleep 60", "-n1", user="cwalice")) == "(null)"


def test_a_bad_claim_is_refused_where_its_user_reads_it(lua_cluster: SlurmCluster) -> None:
    assert "for urgent jobs" in refusal(lua_cluster, "--comment=clearway:max_delay=5m")
    assert "must be a duration" in refusal(lua_cluster, "-p", "urgent", "--comment=clearway:max_delay=soon")


def test_a_claim_cannot_be_made_later(lua_cluster: SlurmCluster) -> None:
    job_id = lua_cluster.sbatch("sleep 60", "-n1", user="cwalice")
    late = lua_cluster.run(
        "scontrol", "update", f"JobId={job_id}", "Comment=clearway:max_delay=1m", user="cwalice", check=False
    )
    assert late.returncode != 0
    lua_cluster.run("scontrol", "update", f"JobId={job_id}", "Comment=clearway:state=saved", user="cwalice")
    assert comment(lua_cluster, job_id) == "clearway:state=saved"


# -- transparent checkpoints -----------------------------------------------------------------------------------

# A checkpointer whose programs can be told from programs that run without it.
DRIVER = """
case $1 in
    start) shift 2; export UNDER_CHECKPOINTER=yes; exec "$@" ;;
    *) echo ok=yes ;;
esac
"""
TELLS = """\
    #!/bin/bash
    #SBATCH --job-name=simulation
    echo "${UNDER_CHECKPOINTER:-no} $# $2"
    n=0
    [ -z "${UNDER_CHECKPOINTER:-}" ] || until squeue -h -o %k -j $SLURM_JOB_ID | grep clearway: || [ $n -ge 100 ]; do
        n=$((n + 1)); sleep 0.2
    done
    echo end
    exit 7
    """


@pytest.fixture(scope="module")
def transparent() -> Iterator[SlurmCluster]:
    script = SCRIPT.read_text()
    for old, new in (
        ("local CHECKPOINTER = nil", 'local CHECKPOINTER = "marks"'),
        ('"/usr/local/bin/clearway-run"', '"@WORK@/clearway-run"'),
    ):
        assert old in script
        script = script.replace(old, new)
    with cluster_with(script) as cluster:
        launcher = cluster.work / "clearway-run"
        launcher.write_text((SCRIPT.parent / "clearway-run").read_text())
        launcher.chmod(0o755)
        (cluster.work / "checkpointers").mkdir()
        (cluster.work / "checkpointers" / "marks.sh").write_text(DRIVER)
        yield cluster


def said(cluster: SlurmCluster, name: str, script: str, *options: str) -> list[str]:
    """The lines that a job prints; the last one is ``end``."""
    folder = cluster.work / name
    folder.mkdir()
    folder.chmod(0o777)
    job = folder / "job"
    job.write_text(textwrap.dedent(script))
    submit = ("sbatch", "-n1", f"--chdir={folder}", "--output=out", *options, str(job), "one", "two words")
    cluster.run(*submit, user="cwalice")
    end = time.monotonic() + 60
    while not (folder / "out").exists() or not (folder / "out").read_text().endswith("end\n"):
        assert time.monotonic() < end, (cluster.run("squeue").stdout, list(folder.iterdir()))
        time.sleep(0.1)
    return (folder / "out").read_text().splitlines()


def test_every_batch_job_runs_under_the_checkpointer(transparent: SlurmCluster) -> None:
    first, claim, *_ = said(transparent, "plain", TELLS)
    assert first == "yes 2 two words"
    assert "checkpoint=signal" in claim
    assert "checkpointer=marks" in claim
    assert "app=simulation" in claim
    assert said(transparent, "own-words", TELLS, "--comment=clearway:checkpoint=none")[0] == "no 2 two words"
    assert said(transparent, "own-call", TELLS.replace("exit 7", "# clearway-run"))[0] == "no 2 two words"
    python = """\
        #!/usr/bin/env python3
        import os
        print(os.environ.get("UNDER_CHECKPOINTER", "no"), "end", sep="\\n")
        """
    assert said(transparent, "python", python) == ["no", "end"]
    interactive = transparent.run("srun", "-n1", "sh", "-c", 'echo "${UNDER_CHECKPOINTER:-no}"', user="cwalice")
    assert interactive.stdout.strip() == "no"


def test_a_transparent_job_ends_with_its_own_exit_code(transparent: SlurmCluster) -> None:
    job_id = transparent.sbatch("#!/bin/sh\nexit 7\n", "-n1", f"--chdir={transparent.work}", user="cwalice")
    transparent.wait_state(job_id, "FAILED")
    assert transparent.job(job_id)["ExitCode"] == "7:0"
