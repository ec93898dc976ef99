"""An urgent job that wants its nodes under one leaf switch, on a real cluster with topology/tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.exhaustive import exhaustive
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import missing_requirements
from tests.slurm.test_end_to_end import no_leftovers, start_of
from tests.slurm.test_gpus import everybody_goes_on, hosts, run, urgent
from tests.slurm.urgent import is_the_best, let_go

LEAVES = {f"node{at}": "leaf1" if at < 5 else "leaf2" for at in range(1, 9)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    with SlurmCluster(switches={"leaf1": "node[1-4]", "leaf2": "node[5-8]"}) as tree:
        yield tree


def test_nodes_under_one_switch_are_freed_though_others_would_cost_less(cluster: SlurmCluster, tmp_path: Path) -> None:
    # Under each switch a job of one node and one of three: two of the former lose least, but are apart.
    wide = [run(cluster, "-w", nodes, "-N3", "--exclusive") for nodes in ("node[2-4]", "node[6-8]")]
    single = [run(cluster, "-w", node, "--exclusive") for node in ("node1", "node5")]
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        together = urgent(cluster, "-N2", "--exclusive", "--switches=1@10:00")
        let_go(cluster, daemon, together)
        (eviction,) = daemon.evictions()
        plan = eviction.plan
        is_the_best(eviction)
        needs = plan.problem.needs
        assert needs is not None
        assert {node.name: node.switch for node in plan.problem.nodes} == LEAVES
        anywhere = exhaustive(replace(plan.problem, needs=replace(needs, one_switch=False)))
        cheapest = min(answer[:2] for answer in anywhere if answer is not None)
        assert plan.chosen.lost_work_node_s is not None
        assert cheapest[0] < plan.chosen.lost_work_node_s
        gone = {planned.job_id for planned in plan.chosen.actions}
        assert len(gone) == 1
        assert gone < set(wide)
        assert plan.switch in ("leaf1", "leaf2")
        # Three nodes are freed under the switch; Slurm may take whichever two of them are free first.
        freed = {name for name in LEAVES if LEAVES[name] == plan.switch} - {"node1", "node5"}
        assert set(plan.placement_nodes) < freed
        assert set(hosts(cluster, together)) < freed
        assert (start_of(cluster, together) - eviction.created_at).total_seconds() <= 60
        shown = daemon.get(f"/api/v1/evictions/{eviction.eviction_id}").json()
        assert shown["plan"]["switch"] == plan.switch
        everybody_goes_on(cluster, daemon, [*wide, *single])
        for job_id in (*wide, *single):
            assert cluster.job(job_id)["Restarts"] == str(int(job_id in gone)), job_id
        no_leftovers(cluster)
