"""The example job submit script in a real slurmctld."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, missing_requirements, slurm_version

SCRIPT = Path(__file__).parents[2] / "plugins" / "slurm" / "job_submit.lua"
PLUGIN = "job_submit_lua.so"


@pytest.fixture(scope="module")
def lua_cluster() -> Iterator[SlurmCluster]:
    reason = missing_requirements()
    if reason:
        pytest.skip(f"no Slurm here: {reason}")
    if not list(Path("/usr/lib").glob(f"*/slurm-wlm/{PLUGIN}")):
        pytest.skip(f"this Slurm {slurm_version()} comes without {PLUGIN}")
    with SlurmCluster(nodes=1) as cluster:
        cluster.stop_controller()
        (cluster.root / "job_submit.lua").write_text(SCRIPT.read_text())
        with cluster.conf.open("a") as conf:
            conf.write("JobSubmitPlugins=lua\n")
        cluster.start_controller()
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
