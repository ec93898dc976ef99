"""Urgent jobs of many shapes on a full real cluster: each gets exactly the room that was planned, others run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.machine import missing_requirements
from tests.slurm.shapes import FEATURES, FILL, GPUS, LICENSES, SHAPES, SWITCHES, Shape
from tests.slurm.test_end_to_end import LOOP, no_leftovers, start_of
from tests.slurm.test_gpus import everybody_goes_on, hosts
from tests.slurm.urgent import SCRIPT, is_the_best, let_go

Full = tuple[SlurmCluster, RunningDaemon, list[str]]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Full]:
    """The cluster, a daemon beside it, and the jobs that fill it."""
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    conf = (f"Licenses={LICENSES}",)
    with SlurmCluster(nodes=6, gpus=GPUS, switches=SWITCHES, extra_conf=conf) as cluster:
        for name, features in FEATURES.items():
            what = (f"AvailableFeatures={features}", f"ActiveFeatures={features}")
            cluster.run("scontrol", "update", f"NodeName={name}", *what)
        fixed = ("--requeue", "--output=/dev/null", "--time=60")
        jobs = [
            cluster.sbatch(LOOP, *fixed, "-w", name, *args, user="cwalice") for name, args in FILL.items() for _ in "ab"
        ]
        for job_id in jobs:
            cluster.wait_state(job_id, "RUNNING")
        folder = tmp_path_factory.mktemp("daemon")
        # Through the commands: pyslurm does not tell of GPUs without Slurm's database.
        slurm = f'backend = "cli"\nconf = "{cluster.conf}"'
        often = 'max_preemptions = 100\nmin_runtime = 1\nspare_before_end = "80s"'
        budget = "user_evictions_per_hour = 100"
        config = config_text(folder, cluster.conf, slurm=slurm, candidates=often, budget=budget)
        with RunningDaemon(cluster, folder, config=config) as daemon:
            yield cluster, daemon, jobs


def restarts(cluster: SlurmCluster, jobs: list[str]) -> dict[str, int]:
    found = {record["JobId"]: int(record["Restarts"]) for record in cluster.records("job")}
    return {job_id: found[job_id] for job_id in jobs}


@pytest.mark.one_slurm
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_room_is_made_for_this_shape(shape: Shape, full: Full) -> None:
    cluster, daemon, jobs = full
    before = restarts(cluster, jobs)
    started = {job_id: start_of(cluster, job_id) for job_id in jobs}
    fixed = ("-p", "urgent", "--time=5", "--output=/dev/null")
    urgent = cluster.sbatch(SCRIPT, *fixed, *shape.args, user="cwalice")
    try:
        let_go(cluster, daemon, urgent)
    except AssertionError as error:
        error.add_note(daemon.get("/api/v1/preemptors").text)
        raise
    (eviction,) = [each for each in daemon.evictions() if each.preemptor.job_id == urgent]
    plan = eviction.plan
    is_the_best(eviction)
    gone = {planned.job_id for planned in plan.chosen.actions}
    assert gone
    assert eviction.revision == 0
    assert len(plan.placement_nodes) == shape.nodes
    assert hosts(cluster, urgent) == list(plan.placement_nodes)
    assert not shape.within or any(set(plan.placement_nodes) <= set(each.split(",")) for each in shape.within)
    assert not shape.whole or len(gone) == 2 * shape.nodes
    assert (start_of(cluster, urgent) - eviction.created_at).total_seconds() <= 60
    everybody_goes_on(cluster, daemon, jobs)
    after = restarts(cluster, jobs)
    assert {job_id for job_id in jobs if after[job_id] != before[job_id]} == gone
    assert all(start_of(cluster, job_id) == started[job_id] for job_id in jobs if job_id not in gone)
    no_leftovers(cluster)
