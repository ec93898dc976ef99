"""The demo's cluster: Theta's 4,392 nodes with the jobs of a scenario like the CoSim paper's Scenario-3."""

from datetime import datetime, timedelta
from random import Random

from clearway.config.configuration import Config
from clearway.model.cluster import Node
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program
from clearway.simulation.scenarios import (
    CHECKPOINT_INTERVAL_S,
    FILE_SYSTEM_GB_S,
    MACHINE_NODES,
    MAX_DELAY_S,
    NODE_GB_S,
    NODE_MEMORY_GB,
    STEP_S,
    ScenarioJob,
    scenario,
)

NODES_NEEDED = 2_048
URGENT_WORK_S = 480.0
_CPUS = 64
_MIB_PER_GB = 10**9 / 2**20
_USERS = ("amara", "bjorn", "chen", "dora", "emeka", "farida")


def demo_cluster(now: datetime, seed: int) -> SimulatedCluster:
    """Every third job saves itself on a signal, every third once an hour, and every third never."""
    cluster = SimulatedCluster(now=now)
    width = len(str(MACHINE_NODES))
    names = [f"nid{number:0{width}d}" for number in range(1, MACHINE_NODES + 1)]
    memory_mib = int(NODE_MEMORY_GB * _MIB_PER_GB)
    cluster.add_nodes(
        Node(
            name=name,
            available=True,
            raw_state="IDLE",
            cpus=_CPUS,
            memory_mib=memory_mib,
            partitions=("default", "urgent"),
        )
        for name in names
    )
    cluster.next_id = 1001
    rng = Random(seed)  # noqa: S311 - a simulation, not a secret
    first = 0
    for index, job in enumerate(scenario(3, seed).jobs):
        comment, program, saved_s = _behaviour(index, job, now, rng)
        cluster.submit(
            program,
            num_nodes=job.nodes,
            on=names[first : first + job.nodes],
            ran_s=job.elapsed_s,
            saved_s=saved_s,
            comment=comment,
            user=_USERS[index % len(_USERS)],
            memory_mib=int(job.memory_gb * _MIB_PER_GB),
        )
        first += job.nodes
    return cluster


def _behaviour(index: int, job: ScenarioJob, now: datetime, rng: Random) -> tuple[str, Program, float]:
    """Comment, program and safe work of one job."""
    work_s = job.elapsed_s + rng.uniform(3_600, 6 * 3_600)
    write_s = max(job.nodes * job.app_checkpoint_gb / FILE_SYSTEM_GB_S, job.app_checkpoint_gb / NODE_GB_S)
    size_mib = int(job.nodes * job.app_checkpoint_gb * _MIB_PER_GB)
    if index % 3 == 2:
        return "", Program(work_s=work_s, exit_s=1.0), 0.0
    last = int((now - timedelta(seconds=job.checkpoint_age_s)).timestamp())
    saved_s = float(job.elapsed_s - job.checkpoint_age_s)
    if index % 3 == 1:
        comment = f"clearway:checkpoint=interval,interval={CHECKPOINT_INTERVAL_S},last={last},size_mib={size_mib}"
        return comment, Program(work_s=work_s, interval_s=CHECKPOINT_INTERVAL_S, exit_s=1.0), saved_s
    comment = f"clearway:checkpoint=signal,last={last},size_mib={size_mib}"
    return comment, Program(work_s=work_s, save_s=write_s, exit_s=1.0), saved_s


def demo_config(store_url: str, port: int) -> Config:
    return Config.model_validate(
        {
            "daemon": {"mode": "automatic", "poll_interval": 0.25, "active_interval": 0.1},
            "store": {"url": store_url},
            "api": {"port": port},
            "preemptors": [{"name": "urgent partition", "partition": ["urgent"], "max_delay": MAX_DELAY_S}],
            "costs": {
                "file_system_mib_s": FILE_SYSTEM_GB_S * 1_000 * _MIB_PER_GB / 1_000,
                "node_mib_s": NODE_GB_S * _MIB_PER_GB,
            },
            "planning": {"steps": MAX_DELAY_S // STEP_S * 4},
            "execution": {"kill_allowance": "20s", "retry_after": "30s"},
        }
    )
