"""The demo's cluster: Theta's 4,392 nodes, of which jobs like those of the CoSim paper's Scenario-3 fill 4,352.

The paper: "CoSim: A Simulator for Co-Scheduling of Batch and On-Demand Jobs in HPC Datacenters", DS-RT, 2020,
DOI 10.1109/DS-RT50469.2020.9213578.

Which job had how many nodes and had run for how long is not published: it is drawn, by the seed alone.

What is the paper's: 192 GB + 16 GB of memory a node, a file system of 250 GB/s, application checkpoints every
hour, 40-90 % of the memory in use, 20-60 % of that in an application checkpoint, deadlines of 0 to 15 minutes
in steps of one. Lost work is the time since the last application checkpoint times the nodes.

What is chosen here: Bc, the bandwidth of one node to the file system, which the paper does not give. Its
interconnect has a bisection bandwidth of 7.2 TB/s, which 4,392 / 2 nodes share when all of them write across
it: 3.28 GB/s. Below 76 nodes a job is bound by its nodes, above by the file system.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from clearway.config.configuration import Config, Mode
from clearway.model.cluster import Node
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program

MACHINE_NODES = 4_392
OCCUPIED_NODES = 4_352
NODE_MEMORY_GB = 192 + 16
FILE_SYSTEM_GB_S = 250.0
NODE_GB_S = 7_200.0 / (MACHINE_NODES / 2)
CHECKPOINT_INTERVAL_S = 3_600
MAX_DELAY_S = 900
STEP_S = 60
NODES_NEEDED = 2_048
URGENT_WORK_S = 480.0
_CPUS = 64
_MIB_PER_GB = 10**9 / 2**20
_USERS = ("amara", "bjorn", "chen", "dora", "emeka", "farida")


@dataclass(frozen=True, slots=True)
class ScenarioJob:
    """A running job as drawn, before the cost model."""

    job_id: str
    nodes: int
    elapsed_s: int
    memory_gb: float  # in use on each node: the size of a system-level checkpoint there
    app_checkpoint_gb: float  # on each node

    @property
    def checkpoint_age_s(self) -> int:
        """Seconds since the last hourly application checkpoint, else since the start."""
        return self.elapsed_s % CHECKPOINT_INTERVAL_S


def scenario_jobs(number: int, job_count: int, seed: int, *, node_multiple: int = 128) -> tuple[ScenarioJob, ...]:
    """Theta allots large jobs in multiples of 128 nodes, 1 makes the sizes arbitrary."""
    rng = Random(f"scenario-{number}-{seed}")  # noqa: S311  # a simulation, not a secret
    sizes = _sizes(rng, job_count, node_multiple)
    return tuple(_job(rng, index, nodes) for index, nodes in enumerate(sizes))


def _sizes(rng: Random, job_count: int, multiple: int) -> list[int]:
    """Positive multiples that add up to the occupied nodes: cuts at random places."""
    blocks = OCCUPIED_NODES // multiple
    cuts = sorted(rng.sample(range(1, blocks), job_count - 1))
    sizes = [multiple * (end - begin) for begin, end in zip([0, *cuts], [*cuts, blocks], strict=True)]
    sizes[-1] += OCCUPIED_NODES - sum(sizes)
    return sizes


def _job(rng: Random, index: int, nodes: int) -> ScenarioJob:
    memory_gb = NODE_MEMORY_GB * rng.uniform(0.4, 0.9)
    return ScenarioJob(
        job_id=str(1001 + index),
        nodes=nodes,
        elapsed_s=rng.randrange(1_800, 6 * 3_600),  # none is expendable: the paper's are under 30 minutes
        memory_gb=memory_gb,
        app_checkpoint_gb=memory_gb * rng.uniform(0.2, 0.6),
    )


def write_s(nodes: int, gb_per_node: float) -> float:
    """Equation (1) for the same size on every node."""
    return max(nodes * gb_per_node / FILE_SYSTEM_GB_S, gb_per_node / NODE_GB_S)


def demo_cluster(now: datetime, seed: int) -> SimulatedCluster:
    """Every third job saves itself on a signal, every third once an hour, and every third never."""
    cluster = SimulatedCluster(now=now)
    width = len(str(MACHINE_NODES))
    names = [f"nid{number:0{width}d}" for number in range(1, MACHINE_NODES + 1)]
    memory_mib = int(NODE_MEMORY_GB * _MIB_PER_GB)
    plain = Node(
        name="", available=True, raw_state="IDLE", cpus=_CPUS, memory_mib=memory_mib, partitions=("default", "urgent")
    )
    cluster.add_nodes(replace(plain, name=name) for name in names)
    cluster.next_id = 1001
    rng = Random(seed)  # noqa: S311 - a simulation, not a secret
    first = 0
    for index, job in enumerate(scenario_jobs(3, 24, seed)):
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
    size_mib = int(job.nodes * job.app_checkpoint_gb * _MIB_PER_GB)
    if index % 3 == 2:
        return "", Program(work_s=work_s, exit_s=1.0), 0.0
    last = int((now - timedelta(seconds=job.checkpoint_age_s)).timestamp())
    saved_s = float(job.elapsed_s - job.checkpoint_age_s)
    said = f"last={last},size_mib={size_mib}"
    if index % 3 == 1:
        every_s = CHECKPOINT_INTERVAL_S
        program = Program(work_s=work_s, interval_s=every_s, exit_s=1.0)
        return f"clearway:checkpoint=interval,interval={every_s},{said}", program, saved_s
    program = Program(work_s=work_s, save_s=write_s(job.nodes, job.app_checkpoint_gb), exit_s=1.0)
    return f"clearway:checkpoint=signal,{said}", program, saved_s


def demo_config(folder: Path, user: str, port: int, mode: Mode) -> Config:
    """A daemon with its database and its tokens in this folder; this user may empty nodes."""
    return Config.model_validate(
        {
            "daemon": {"mode": mode, "poll_interval": 0.25, "active_interval": 0.1},
            "store": {"url": f"sqlite:///{folder / 'clearway.sqlite'}"},
            "api": {"port": port, "token_file": folder / "tokens"},
            "access": {"public": "reading"},
            "drain": {"operators": [user]},
            "preemptors": [{"name": "urgent partition", "partition": ["urgent"], "max_delay": MAX_DELAY_S}],
            "costs": {
                "file_system_mib_s": FILE_SYSTEM_GB_S * 1_000 * _MIB_PER_GB / 1_000,
                "node_mib_s": NODE_GB_S * _MIB_PER_GB,
            },
            "planning": {"steps": MAX_DELAY_S // STEP_S * 4},
            "execution": {"kill_allowance": "20s", "retry_after": "30s"},
        }
    )
