"""The demo's cluster: Theta's 4,392 nodes with the jobs of a scenario like the CoSim paper's Scenario-3."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from clearway.config.configuration import Config, Mode
from clearway.model.cluster import Node
from clearway.simulation import scenarios
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program

NODES_NEEDED = 2_048
URGENT_WORK_S = 480.0
_CPUS = 64
_MIB_PER_GB = 10**9 / 2**20
_USERS = ("amara", "bjorn", "chen", "dora", "emeka", "farida")


def demo_cluster(now: datetime, seed: int) -> SimulatedCluster:
    """Every third job saves itself on a signal, every third once an hour, and every third never."""
    cluster = SimulatedCluster(now=now)
    width = len(str(scenarios.MACHINE_NODES))
    names = [f"nid{number:0{width}d}" for number in range(1, scenarios.MACHINE_NODES + 1)]
    memory_mib = int(scenarios.NODE_MEMORY_GB * _MIB_PER_GB)
    plain = Node(
        name="", available=True, raw_state="IDLE", cpus=_CPUS, memory_mib=memory_mib, partitions=("default", "urgent")
    )
    cluster.add_nodes(replace(plain, name=name) for name in names)
    cluster.next_id = 1001
    rng = Random(seed)  # noqa: S311 - a simulation, not a secret
    first = 0
    for index, job in enumerate(scenarios.scenario(3, seed).jobs):
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


def _behaviour(index: int, job: scenarios.ScenarioJob, now: datetime, rng: Random) -> tuple[str, Program, float]:
    """Comment, program and safe work of one job."""
    work_s = job.elapsed_s + rng.uniform(3_600, 6 * 3_600)
    size_mib = int(job.nodes * job.app_checkpoint_gb * _MIB_PER_GB)
    if index % 3 == 2:
        return "", Program(work_s=work_s, exit_s=1.0), 0.0
    last = int((now - timedelta(seconds=job.checkpoint_age_s)).timestamp())
    saved_s = float(job.elapsed_s - job.checkpoint_age_s)
    said = f"last={last},size_mib={size_mib}"
    if index % 3 == 1:
        every_s = scenarios.CHECKPOINT_INTERVAL_S
        program = Program(work_s=work_s, interval_s=every_s, exit_s=1.0)
        return f"clearway:checkpoint=interval,interval={every_s},{said}", program, saved_s
    program = Program(work_s=work_s, save_s=scenarios.write_s(job.nodes, job.app_checkpoint_gb), exit_s=1.0)
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
            "preemptors": [{"name": "urgent partition", "partition": ["urgent"], "max_delay": scenarios.MAX_DELAY_S}],
            "costs": {
                "file_system_mib_s": scenarios.FILE_SYSTEM_GB_S * 1_000 * _MIB_PER_GB / 1_000,
                "node_mib_s": scenarios.NODE_GB_S * _MIB_PER_GB,
            },
            "planning": {"steps": scenarios.MAX_DELAY_S // scenarios.STEP_S * 4},
            "execution": {"kill_allowance": "20s", "retry_after": "30s"},
        }
    )
