"""Problems like the three scenarios of the CoSim paper: jobs that fill 4,352 of Theta's 4,392 nodes.

The paper: "CoSim: A Simulator for Co-Scheduling of Batch and On-Demand Jobs in HPC Datacenters", DS-RT, 2020,
DOI 10.1109/DS-RT50469.2020.9213578.

The paper publishes the number of jobs (12, 16, 24), the nodes that they hold together, and how it draws the
checkpoint parameters (section IV-A, IV-B); which job had how many nodes and had run for how long is not
published and is drawn here. Everything is a pure function of the seed.

What is the paper's: 192 GB + 16 GB of memory a node, a file system of 250 GB/s, application checkpoints every
hour, 40-90 % of the memory in use, 20-60 % of that in an application checkpoint, deadlines of 0 to 15 minutes
in steps of one, K = 512, 1,024 and 2,048. Lost work is the time since the last application checkpoint times
the nodes; durations are its equation (1).

What is chosen here: Bc, the bandwidth of one node to the file system, which the paper does not give. Its
interconnect has a bisection bandwidth of 7.2 TB/s, which 4,392 / 2 nodes share when all of them write across
it: 3.28 GB/s. Below 76 nodes a job is bound by its nodes, above by the file system.
"""

import math
from dataclasses import dataclass
from random import Random

from clearway.model.problem import Action, Candidate, EvictionProblem, Option

MACHINE_NODES = 4_392
OCCUPIED_NODES = 4_352
NODE_MEMORY_GB = 192 + 16
FILE_SYSTEM_GB_S = 250.0
NODE_GB_S = 7_200.0 / (MACHINE_NODES / 2)
CHECKPOINT_INTERVAL_S = 3_600
MAX_DELAY_S = 900
STEP_S = 60


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

    @property
    def lost_work_node_s(self) -> int:
        return self.nodes * self.checkpoint_age_s

    @property
    def sys_checkpoint_s(self) -> float:
        return write_s(self.nodes, self.memory_gb)

    @property
    def app_checkpoint_s(self) -> float:
        """The wait for the next hourly checkpoint, and writing it."""
        return CHECKPOINT_INTERVAL_S - self.checkpoint_age_s + write_s(self.nodes, self.app_checkpoint_gb)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    nodes_needed: int
    jobs: tuple[ScenarioJob, ...]

    def problem(self) -> EvictionProblem:
        return EvictionProblem(
            nodes_needed=self.nodes_needed,
            max_delay_s=MAX_DELAY_S,
            step_s=STEP_S,
            candidates=tuple(_candidate(job) for job in self.jobs),
        )


_SIZES = {1: (12, 512), 2: (16, 1_024), 3: (24, 2_048)}  # number of the scenario: jobs, K


def scenario(number: int, seed: int, *, node_multiple: int = 128) -> Scenario:
    """Scenario 1, 2 or 3; Theta allots large jobs in multiples of 128 nodes, 1 makes the sizes arbitrary."""
    job_count, nodes_needed = _SIZES[number]
    rng = Random(f"scenario-{number}-{seed}")  # noqa: S311  # a simulation, not a secret
    sizes = _sizes(rng, job_count, node_multiple)
    jobs = tuple(_job(rng, index, nodes) for index, nodes in enumerate(sizes))
    return Scenario(f"Scenario-{number}", nodes_needed, jobs)


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


def _candidate(job: ScenarioJob) -> Candidate:
    options = (
        Option(Action.KILL, lost_work_node_s=job.lost_work_node_s),
        Option(Action.APP_CHECKPOINT, checkpoint_s=math.ceil(job.app_checkpoint_s)),
        Option(Action.SYS_CHECKPOINT, checkpoint_s=math.ceil(job.sys_checkpoint_s)),
    )
    return Candidate(job.job_id, job.nodes, options)
