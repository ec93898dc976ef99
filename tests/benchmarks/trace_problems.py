"""Eviction problems drawn from recorded workloads: what ran at a busy moment, with the CoSim paper's checkpoints.

The traces (Standard Workload Format, xz) are no part of this repository; they are looked for in ../shared/traces beside
it, or where CLEARWAY_TRACES says. Their starts and ends are the recorded ones. Where more jobs are recorded at a
moment than the machine has nodes for, those that started last are left out.

From the CoSim paper (section IV-B): an application checkpoint every hour after the start, 40-90 % of 208 GB in use on
each node, 20-60 % of that in an application checkpoint, an urgent job of 12.5, 25 or 50 % of the machine, deadlines
of 0 to 15 minutes by the minute. Its file system, 250 GB/s for 4,392 nodes, is scaled to each machine. From the UJFB
paper: a moment is busy when 75 % of the nodes are in use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.simulation.theta import (
    CHECKPOINT_INTERVAL_S,
    FILE_SYSTEM_GB_S,
    MACHINE_NODES,
    MAX_DELAY_S,
    NODE_GB_S,
    NODE_MEMORY_GB,
    STEP_S,
)
from clearway_lab.traces.swf import read_swf
from tests.traces import FOLDER

BUSY = 0.75
SHARES = (0.125, 0.25, 0.5)  # of the machine, that the urgent job asks for
FEWEST_JOBS = 6
MOST_DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class Machine:
    file: str
    nodes: int
    processors_per_node: int = 1

    @property
    def name(self) -> str:
        return self.file.removesuffix(".swf.xz").removesuffix("-cln")

    @property
    def path(self) -> Path:
        return FOLDER / self.file


MACHINES = (
    Machine("KTH-SP2-1996-2.1-cln.swf.xz", 100),
    Machine("LANL-CM5-1994-4.1-cln.swf.xz", 1_024),
    Machine("SDSC-DS-2004-2.1-cln.swf.xz", 208, processors_per_node=8),  # 1,664 processors; most nodes have 8
    Machine("dwd-2020-09-17.swf.xz", 1_024),
    Machine("mira-2018-wk1.swf.xz", 49_152),
    Machine("mira-2018-wk2.swf.xz", 49_152),
    Machine("sx-ace-2019.swf.xz", 2_560),
)


@dataclass(frozen=True, slots=True)
class Trace:
    """One row for each job that ran, in the order of its start; times in seconds since the trace began."""

    machine: Machine
    job_id: npt.NDArray[np.int64]
    submit_s: npt.NDArray[np.int64]
    start_s: npt.NDArray[np.int64]
    end_s: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]
    limit_s: npt.NDArray[np.int64]  # -1: none recorded


def read(machine: Machine) -> Trace:
    rows = []
    for job in read_swf(machine.path).jobs:
        nodes = -(-job.size // machine.processors_per_node)
        if nodes <= machine.nodes:
            start_s = job.submit_s + max(0, job.wait_s)
            rows.append((job.job_id, job.submit_s, start_s, start_s + job.run_s, nodes, job.requested_s))
    rows.sort(key=lambda row: (row[2], row[0]))
    return Trace(machine, *np.array(rows, dtype=np.int64).T)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The same moment twice: with everything known, and with what is known of jobs that say nothing."""

    trace: str
    share: float
    known: EvictionProblem
    ages_unknown: EvictionProblem

    def true_lost_node_s(self, job_id: str, action: Action) -> float:
        candidate = next(candidate for candidate in self.known.candidates if candidate.job_id == job_id)
        return next(option.lost_work_node_s for option in candidate.options if option.action is action)


def draw(trace: Trace, number: int) -> Drawn:
    """The problem of this number; a pure function of the trace and the number."""
    rng = Random(f"{trace.machine.name}-{number}")
    share = SHARES[number % len(SHARES)]
    asked = math.ceil(share * trace.machine.nodes)
    for _ in range(MOST_DRAWS):
        now_s = rng.randint(int(trace.start_s[0]), int(trace.end_s.max()))
        running = np.flatnonzero((trace.start_s <= now_s) & (trace.end_s > now_s))
        running = running[np.cumsum(trace.nodes[running]) <= trace.machine.nodes]
        used = int(trace.nodes[running].sum())
        needed = asked - (trace.machine.nodes - used)
        if used >= BUSY * trace.machine.nodes and len(running) >= FEWEST_JOBS and needed > 0:
            pairs = [_candidates(trace, int(row), now_s, rng) for row in running]
            known, unknown = (
                EvictionProblem(needed, MAX_DELAY_S, STEP_S, candidates, preemptor_nodes=asked)
                for candidates in zip(*pairs, strict=True)
            )
            return Drawn(trace.machine.name, share, known, unknown)
    raise ValueError(f"{trace.machine.name} is never busy enough")


def _candidates(trace: Trace, row: int, now_s: int, rng: Random) -> tuple[Candidate, Candidate]:
    nodes, ran_s = int(trace.nodes[row]), now_s - int(trace.start_s[row])
    limit_s = int(trace.limit_s[row])
    remaining_s = float(max(0, limit_s - ran_s)) if limit_s > 0 else None
    memory_gb = NODE_MEMORY_GB * rng.uniform(0.4, 0.9)
    saved_gb = memory_gb * rng.uniform(0.2, 0.6)
    age_s = ran_s % CHECKPOINT_INTERVAL_S
    write_s = _write_s(trace.machine, nodes, memory_gb)
    save_s = CHECKPOINT_INTERVAL_S - age_s + _write_s(trace.machine, nodes, saved_gb)
    saves = Option(Action.SYS_CHECKPOINT, checkpoint_s=math.ceil(write_s))
    ends = ()
    if remaining_s is not None and 0 < remaining_s <= MAX_DELAY_S:  # past its limit: it does not keep to it
        ends = (Option(Action.END, ready_s=remaining_s),)
    asked = Option(Action.APP_CHECKPOINT, checkpoint_s=math.ceil(save_s))
    past = {"ran_s": float(ran_s), "remaining_s": remaining_s}
    waited_s = float(trace.start_s[row] - trace.submit_s[row])
    # A job that says nothing counts as never checkpointed, and nobody can ask it to save itself.
    return tuple(
        Candidate(str(trace.job_id[row]), nodes, (*options, saves, *ends), waited_s=waited_s, job_nodes=nodes, **past)
        for options in ((Option(Action.KILL, nodes * age_s), asked), (Option(Action.KILL, nodes * ran_s),))
    )


def _write_s(machine: Machine, nodes: int, gb_per_node: float) -> float:
    """Equation 1 of the CoSim paper, with a file system as fast for this machine as the paper's for Theta."""
    file_system_gb_s = FILE_SYSTEM_GB_S * machine.nodes / MACHINE_NODES
    return max(nodes * gb_per_node / file_system_gb_s, gb_per_node / NODE_GB_S)
