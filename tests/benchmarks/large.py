"""Machines larger than the CoSim paper's, filled with jobs whose parameters are drawn as the paper draws them."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.simulation.theta import CHECKPOINT_INTERVAL_S, FILE_SYSTEM_GB_S, MACHINE_NODES, NODE_GB_S, NODE_MEMORY_GB


def large_problem(
    machine_nodes: int,
    jobs: int,
    nodes_needed: int,
    deadlines: int,
    step_s: int,
    *,
    seed: int = 1,
    multiple: int = 1,
    ends: int = 0,
) -> EvictionProblem:
    """Jobs fill the machine; the file system grows with it, so that checkpoints take as long as on Theta.

    ``ends`` of them also end by themselves at some time before the last deadline.
    """
    rng = Random(seed)
    max_delay_s = (deadlines - 1) * step_s
    blocks = machine_nodes // multiple
    cuts = sorted(rng.sample(range(1, blocks), jobs - 1))
    candidates = []
    for index, (begin, end) in enumerate(zip([0, *cuts], [*cuts, blocks], strict=True)):
        nodes = multiple * (end - begin)
        memory_gb = NODE_MEMORY_GB * rng.uniform(0.4, 0.9)
        app_gb = memory_gb * rng.uniform(0.2, 0.6)
        age_s = rng.randrange(1_800, 6 * 3_600) % CHECKPOINT_INTERVAL_S
        options = (
            Option(Action.KILL, lost_work_node_s=nodes * age_s),
            Option(
                Action.APP_CHECKPOINT,
                checkpoint_s=math.ceil(CHECKPOINT_INTERVAL_S - age_s + _write_s(nodes, app_gb, machine_nodes)),
            ),
            Option(Action.SYS_CHECKPOINT, checkpoint_s=math.ceil(_write_s(nodes, memory_gb, machine_nodes))),
        )
        candidates.append(Candidate(str(1001 + index), nodes, options))
    for index in rng.sample(range(jobs), ends):
        end = Option(Action.END, ready_s=rng.randint(step_s, max_delay_s))
        candidates[index] = replace(candidates[index], options=(*candidates[index].options, end))
    return EvictionProblem(nodes_needed, max_delay_s, step_s, tuple(candidates))


def _write_s(nodes: int, gb_per_node: float, machine_nodes: int) -> float:
    file_system_gb_s = FILE_SYSTEM_GB_S * machine_nodes / MACHINE_NODES
    return max(nodes * gb_per_node / file_system_gb_s, gb_per_node / NODE_GB_S)
